"use strict";
// The list of all questions. What comes from data or models is only ever set as text, never as markup.

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
  return [same ? "same answer" : "answers differ", ...(right === 1 ? ["only one is right"] : [])];
}

function ofSteps(row) {
  if (!row.false) return ["none judged"];
  return row.false.length ? ["a step is false", ...row.false.map(name => `${name} is false`)] : ["all judged are true"];
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
      ["Right for the wrong reason", { codevqa: "right", steps: "a step is false" }],
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
  const filters = [
    ...data.methods.map(([name, label], at) => [name, label, row => ofMethod(row, at)]),
    ["between", "Between them", ofAll],
    ["steps", "Steps", ofSteps],
    ["error", "Error", ofErrors],
    ["run", "Run", row => [data.runs[row.run]]],
    ...data.keys.map((key, at) => [`group.${key}`, key.replaceAll("_", " "), row => row.groups[at] == null ? [] : [row.groups[at]]]),
  ].map(([name, label, values]) => ({ name, label, values, select: make("select") }));

  const wanted = new URLSearchParams(location.hash.slice(1)); // what is chosen, kept in the address
  const find = chosen => {
    const active = filters.filter(one => chosen.get(one.name));
    const words = (chosen.get("search") ?? "").toLowerCase().split(/\s+/).filter(Boolean);
    return rows.filter(row => words.every(word => row.text.includes(word))
      && active.every(one => one.values(row).includes(chosen.get(one.name))));
  };
  const choose = (values, anew = false) => {
    if (anew) for (const name of [...wanted.keys()]) wanted.delete(name);
    for (const [name, value] of Object.entries(values)) value ? wanted.set(name, value) : wanted.delete(name);
    history.replaceState(null, "", `#${wanted}`);
    show();
  };

  const search = make("input", { type: "search", placeholder: "question, answer, program", "aria-label": "Search" });
  search.addEventListener("input", () => choose({ search: search.value }));
  const grid = make("div", { class: "filters" });
  for (const { name, label, values, select } of filters) {
    const counts = new Map();
    for (const row of rows) for (const value of values(row)) counts.set(value, (counts.get(value) ?? 0) + 1);
    if (counts.size < 2) continue;
    const sorted = [...counts].sort((a, b) => a[0] - b[0] || b[1] - a[1] || (a[0] < b[0] ? -1 : 1));
    select.append(make("option", { value: "" }, "any"),
      ...sorted.map(([value, n]) => make("option", { value }, `${value} (${shown(n)})`)));
    select.addEventListener("change", () => choose({ [name]: select.value }));
    grid.append(make("label", {}, make("span", {}, label), select));
  }
  const looks = looksAt(data.methods).map(([label, values]) => [label, values, find(new Map(Object.entries(values))).length])
    .filter(([, , n]) => n).map(([label, values, n]) => button(`${label} (${shown(n)})`, () => choose(values, true)));

  const list = make("ol", { class: "rows", "aria-label": "Questions" });
  const status = make("p", { role: "status" });
  let matching = [];
  const more = button("More", () => grow());
  const grow = () => {
    const at = list.children.length;
    list.append(...matching.slice(at, at + PAGE).map(row => item(row, data)));
    more.hidden = list.children.length === matching.length;
  };

  function show() {
    search.value = wanted.get("search") ?? "";
    for (const one of filters) one.select.value = wanted.get(one.name) ?? "";
    matching = find(wanted);
    list.replaceChildren();
    grow();
    const whole = matching.length === rows.length ? "" : ` of ${shown(rows.length)}`;
    const good = data.methods.map(([, label], at) => [label, matching.filter(row => row.answers[at]?.right).length])
      .filter((_, at) => rows.some(row => row.answers[at]?.right != null));
    status.textContent = `${shown(matching.length)}${whole} ${rows.length === 1 ? "question" : "questions"}`
      + good.map(([label, n]) => `; ${label} right in ${shown(n)}`).join("");
  }

  const part = data.every > 1 ? `Of ${shown(data.total)} questions, one in ${shown(data.every)} is listed here.` : "";
  main.append(part && make("p", { class: "note" }, part), make("div", { class: "looks" }, ...looks),
    make("div", { class: "find", role: "search" }, search, button("Clear", () => choose({}, true))), grid, status, list, more);
  show();
  main.dataset.whole = "yes";
}

function item(row, data) {
  const answer = (label, said, good) => make("span", {}, make("span", { class: "soft" }, `${label} `), make("b", {}, said), verdict(good));
  const said = row.answers.map((one, at) =>
    one ? answer(one.fallback ? "fallback" : data.methods[at][1], one.said || "(nothing)", one.right) : "");
  const wrong = [ofErrors(row).slice(1).join(", "), row.false?.length ? `false: ${row.false.join(", ")}` : ""]
    .map(text => text && make("span", { class: "wrong" }, text));
  const box = make("details", {}, make("summary", {}, make("span", { class: "asked" }, row.question),
    make("span", { class: "answers" }, answer("gold", row.gold || "hidden"), ...[...said, ...wrong].filter(Boolean))));
  box.addEventListener("toggle", () => box.append(opened(row, data)), { once: true });
  return make("li", {}, box);
}

function opened(row, data) {
  const groups = data.keys.map((key, at) => row.groups[at] && `${key.replaceAll("_", " ")}: ${row.groups[at]}`);
  const link = row.full ? make("a", { href: `#${row.full}` }, "With its pictures and heat maps, among the examples") : "";
  return make("div", { class: "opened" },
    make("p", { class: "note" }, [row.id, row.pictures, ...groups].filter(Boolean).join("; ")), link, make("pre", {}, row.trace));
}

unpacked().then(begin).catch(error => main.append(make("p", { class: "wrong", role: "alert" }, error.message)));
