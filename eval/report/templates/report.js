"use strict";
// Sorts tables, and lists all questions. What comes from data or models is only ever set as text, never as markup.

const PAGE = 100;
const main = document.getElementById("questions");

const make = (tag, attributes = {}, ...children) => {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children.filter(child => child !== ""));
  return made;
};
const button = (label, act) => {
  const made = make("button", { type: "button" }, label);
  made.addEventListener("click", act);
  return made;
};
const shown = number => number.toLocaleString("en");

// -- sorting --------------------------------------------------------------------------------------------------------

const words = new Intl.Collator("en", { numeric: true });
const NEXT = { none: "ascending", ascending: "descending", descending: "none" };

// Orders by numbers where both texts begin with one, else as words; what is empty comes last.
function sorted(items, textOf, order) {
  if (order === "none") return items;
  const keyed = items.map(item => [item, textOf(item).replace("−", "-").replace(/^–$|,(?=\d{3})/g, "")]);
  const compare = (a, b) => parseFloat(a) - parseFloat(b) || words.compare(a, b);
  const way = order === "ascending" ? 1 : -1;
  return keyed.sort(([, a], [, b]) => !a - !b || way * compare(a, b)).map(([item]) => item);
}

function sortable(heads, act) {
  for (const [at, head] of heads.entries()) {
    if (!head.textContent) continue;
    head.setAttribute("aria-sort", "none");
    head.replaceChildren(button(head.textContent, () => act(at, NEXT[head.getAttribute("aria-sort")])));
  }
}

function mark(heads, place, order) {
  for (const [at, head] of heads.entries()) if (head.firstElementChild) head.setAttribute("aria-sort", at === place ? order : "none");
}

for (const table of document.querySelectorAll(".wide table:not(.matrix)")) {
  const rows = [...table.tBodies[0].rows], heads = [...table.tHead.rows[0].cells];
  if (rows.length > 2) sortable(heads, (at, order) => {
    table.tBodies[0].append(...sorted(rows, row => row.cells[at].textContent, order));
    mark(heads, at, order);
  });
}

async function unpacked() {
  if (!window.DecompressionStream) throw new Error("The list needs a browser of 2023 or later.");
  const text = atob(document.getElementById("data").textContent);
  const bytes = new Uint8Array(text.length);
  for (let at = 0; at < text.length; at++) bytes[at] = text.charCodeAt(at);
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
}

// -- what a question is found by ------------------------------------------------------------------------------------

function ofMethod(row, method) {
  const answer = row.answers[method];
  if (!answer) return [];
  const verdict = answer.right === null ? [] : [answer.right ? "right" : "wrong"];
  return [...verdict, ...(answer.fallback ? ["fallback"] : []), ...(answer.said ? [] : ["no answer"])];
}

function ofAll(row) {
  if (row.answers.length < 2 || !row.answers.every(Boolean)) return [];
  const same = row.answers.every(one => one.said === row.answers[0].said);
  const right = row.answers.filter(one => one.right).length;
  return [same ? "same answer" : "different answers", ...(right === 1 ? ["only one is right"] : [])];
}

function ofCalls(row) {
  if (!row.false) return ["none judged"];
  return row.false.length ? ["any wrong", ...row.false.map(name => `${name} wrong`)] : ["all right"];
}

function ofErrors(row) {
  const found = [...new Set(row.answers.map(one => one?.error).filter(Boolean))];
  return found.length ? ["any error", ...found] : ["no error"];
}

function looksAt(methods) {
  const names = methods.map(([name]) => name);
  const against = (name, what) => names.includes("codevqa") && names.includes(name) ? [
    [`The program is right, ${what} wrong`, { codevqa: "right", [name]: "wrong" }],
    [`The program is wrong, ${what} right`, { codevqa: "wrong", [name]: "right" }],
  ] : [];
  return [
    ...against("direct", "the direct question"),
    ...against("pnpvqa", names.includes("direct") ? "PnP-VQA" : "the baseline"),
    ...(names.includes("codevqa") ? [
      ["Right for the wrong reason", { codevqa: "right", calls: "any wrong" }],
      ["The program failed and the baseline answered", { codevqa: "fallback" }],
    ] : []),
    ...(names.length > 1 ? [["No method is right", Object.fromEntries(names.map(name => [name, "wrong"]))]] : []),
  ];
}

// -- the list -------------------------------------------------------------------------------------------------------

const verdict = good => good == null ? "" : make("span", { class: good ? "right" : "wrong" }, good ? " ✓ right" : " ✗ wrong");

function begin(data) {
  const { rows } = data;
  for (const row of rows)
    row.text = [row.question, row.gold, ...row.answers.map(one => one?.said ?? ""), row.id, row.trace].join("\n").toLowerCase();
  const ofAnswers = [
    ...data.methods.map(([name, label], at) => [name, label, row => ofMethod(row, at)]),
    ["between", "Methods compared", ofAll],
    ["calls", "Judged calls", ofCalls],
    ["error", "Error", ofErrors],
    ["run", "Run", row => [data.runs[row.run]]],
  ];
  const ofQuestions = [
    ["outside", "Unknown to the models", row => row.outside.length ? row.outside : ["nothing"]],
    ...data.keys.map((key, at) => [`group.${key}`, key, row => row.groups[at] == null ? [] : [row.groups[at]]]),
  ];
  const filters = [["Filter by answer", ofAnswers], ["Filter by question", ofQuestions]].flatMap(([legend, all]) =>
    all.map(([name, label, values]) => ({ legend, name, label, values, select: make("select") })));
  const columns = [
    ["question", "Question", row => row.question], ["gold", "Gold answer", row => row.gold],
    ...data.methods.map(([name, label], at) => [name, label, ({ answers: { [at]: one } }) => one ? `${one.right ? 0 : 1} ${one.said}` : ""]),
    ["wrong", "Errors", row => ofWrong(row).join(", ")],
  ];

  const wanted = new URLSearchParams(location.hash.slice(1)); // what is chosen, kept in the address
  const sortedBy = chosen => {
    const [name, order] = (chosen.get("sort") ?? "").split(" ");
    return [order in NEXT ? columns.findIndex(([column]) => column === name) : -1, order];
  };
  const find = chosen => {
    const active = filters.filter(one => chosen.get(one.name));
    const words = (chosen.get("search") ?? "").toLowerCase().split(/\s+/).filter(Boolean);
    const kept = rows.filter(row => words.every(word => row.text.includes(word))
      && active.every(one => one.values(row).includes(chosen.get(one.name))));
    const [place, order] = sortedBy(chosen);
    return place < 0 ? kept : sorted(kept, columns[place][2], order);
  };
  const choose = (values, anew = false) => {
    if (anew) for (const name of [...wanted.keys()]) wanted.delete(name);
    for (const [name, value] of Object.entries(values)) value ? wanted.set(name, value) : wanted.delete(name);
    history.replaceState(null, "", `#${wanted}`);
    show();
  };

  const search = make("input", { type: "search", placeholder: "question, answer, program", "aria-label": "Search" });
  search.addEventListener("input", () => choose({ search: search.value }));
  const grids = new Map();
  for (const { legend, name, label, values, select } of filters) {
    const counts = new Map();
    for (const row of rows) for (const value of values(row)) counts.set(value, (counts.get(value) ?? 0) + 1);
    if (counts.size < 2) continue;
    const ordered = [...counts].sort((a, b) => a[0] - b[0] || b[1] - a[1] || (a[0] < b[0] ? -1 : 1));
    select.append(make("option", { value: "" }, "any"),
      ...ordered.map(([value, n]) => make("option", { value }, `${value} (${shown(n)})`)));
    select.addEventListener("change", () => choose({ [name]: select.value }));
    if (!grids.has(legend)) grids.set(legend, make("fieldset", { class: "filters" }, make("legend", {}, legend)));
    grids.get(legend).append(make("label", {}, make("span", {}, label), select));
  }
  const looks = looksAt(data.methods).map(([label, values]) => [label, values, find(new Map(Object.entries(values))).length])
    .filter(([, , n]) => n).map(([label, values, n]) => button(`${label} (${shown(n)})`, () => choose(values, true)));

  const list = make("tbody"), heads = columns.map(([, label]) => make("th", { scope: "col" }, label));
  const table = make("table", { class: "rows", "aria-label": "Questions" }, make("thead", {}, make("tr", {}, ...heads)), list);
  sortable(heads, (at, order) => choose({ sort: order === "none" ? "" : `${columns[at][0]} ${order}` }));
  const status = make("p", { role: "status" });
  let matching = [], count = 0;
  const more = button("More", () => grow());
  const grow = () => {
    list.append(...matching.slice(count, count + PAGE).map(row => item(row, data, columns)));
    count = Math.min(count + PAGE, matching.length);
    more.hidden = count === matching.length;
  };

  function show() {
    search.value = wanted.get("search") ?? "";
    for (const one of filters) one.select.value = wanted.get(one.name) ?? "";
    matching = find(wanted);
    mark(heads, ...sortedBy(wanted));
    list.replaceChildren();
    count = 0;
    grow();
    const whole = matching.length === rows.length ? "" : ` of ${shown(rows.length)}`;
    const good = data.methods.map(([, label], at) => [label, matching.filter(row => row.answers[at]?.right).length])
      .filter((_, at) => rows.some(row => row.answers[at]?.right != null));
    status.textContent = `${shown(matching.length)}${whole} ${rows.length === 1 ? "question" : "questions"}`
      + good.map(([label, n]) => `; ${label} right in ${shown(n)}`).join("");
  }

  const part = data.every > 1 ? `Of ${shown(data.total)} questions, one in ${shown(data.every)} is listed here.` : "";
  main.append(part && make("p", { class: "note" }, part), make("div", { class: "looks" }, ...looks),
    make("div", { class: "find", role: "search" }, search, button("Clear", () => choose({}, true))), ...grids.values(), status, table, more);
  show();
  main.dataset.whole = "yes";
}

const ofWrong = row => [...ofErrors(row).slice(1), ...(row.false ?? []).map(name => `${name} wrong`)];

function item(row, data, columns) {
  const said = row.answers.map(one =>
    one ? [one.said || "(nothing)", one.fallback ? make("span", { class: "soft" }, " (fallback)") : "", verdict(one.right)] : []);
  const cells = [[row.gold || "hidden"], ...said, ofWrong(row).map((text, at) => `${at ? ", " : ""}${text}`)];
  const open = button(row.question, () => {
    const closed = open.getAttribute("aria-expanded") === "false";
    open.setAttribute("aria-expanded", closed);
    if (closed) line.after(make("tr", {}, make("td", { colspan: columns.length }, opened(row, data))));
    else line.nextSibling.remove();
  });
  open.className = "asked";
  open.setAttribute("aria-expanded", "false");
  const line = make("tr", {}, make("th", { scope: "row" }, open),
    ...cells.map((cell, at) => make("td", { "data-label": columns[at + 1][1] }, ...cell)));
  return line;
}

function opened(row, data) {
  const groups = data.keys.map((key, at) => row.groups[at] && `${key}: ${row.groups[at]}`);
  const link = row.full ? make("a", { href: `#${row.full}` }, "With its pictures and heat maps, among the examples") : "";
  return make("div", { class: "opened" },
    make("p", { class: "note" }, [row.id, row.pictures, ...groups].filter(Boolean).join("; ")), link, make("pre", {}, row.trace));
}

unpacked().then(begin).catch(error => main.append(make("p", { class: "wrong", role: "alert" }, error.message)));
