"use strict";
// The list of all questions. What comes from data or models is only ever set as text, never as markup.

const PAGE = 50;
const main = document.getElementById("questions");
const source = main.dataset.source; // "inline", "live", or the folder that chunks are in

const make = (tag, attributes = {}, ...children) => {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children.filter(child => child !== ""));
  return made;
};
const count = (number, word) => `${number.toLocaleString("en")} ${word}${number === 1 ? "" : "s"}`;

// -- chunks ---------------------------------------------------------------------------------------------------------

const awaited = {}; // what to call with a chunk of a folder, by its name
window.chunk = (name, data) => awaited[name]?.(data);
const loaded = new Promise(done =>
  document.readyState === "loading" ? document.addEventListener("DOMContentLoaded", done) : done());

async function packed(name) {
  if (source !== "inline")
    return new Promise((done, failed) => {
      awaited[name] = done;
      const script = make("script", { src: `${source}/${name}.js` });
      script.onerror = () => failed(new Error(`${source}/${name}.js is missing: keep the folder beside this page.`));
      document.head.append(script);
    });
  if (!document.getElementById(name)) await loaded; // it stands further down
  return document.getElementById(name).textContent;
}

async function unpacked(name) {
  if (!window.DecompressionStream) throw new Error("The list needs a browser of 2023 or later.");
  const text = atob(await packed(name));
  const bytes = new Uint8Array(text.length);
  for (let at = 0; at < text.length; at++) bytes[at] = text.charCodeAt(at);
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
}

async function asked(path) {
  const answer = await fetch(path);
  if (!answer.ok) throw new Error(await answer.text());
  return answer.json();
}

// -- questions ------------------------------------------------------------------------------------------------------

let head = { methods: [], runs: [] };
const rows = [];
const places = new Map(); // of each question in rows
const keys = []; // of groups, such as "structural"

function add(part) {
  const columns = part.keys.map(([key]) => (keys.includes(key) ? keys.indexOf(key) : keys.push(key) - 1));
  for (const [run, id, question, gold, answers, program, wrong, codes] of part.rows) {
    const said = answers.map(one => one?.[0] ?? "");
    const text = [question, gold, ...said, id, program].join("\n").toLowerCase();
    const groups = [];
    codes.forEach((code, at) => (groups[columns[at]] = code < 0 ? undefined : part.keys[at][1][code]));
    const name = `${run} ${id}`;
    if (!places.has(name)) places.set(name, places.size);
    const place = places.get(name);
    const old = rows[place];
    if (old) for (const one of filters) one.counted = 0;
    const same = old && JSON.stringify([answers, wrong]) === JSON.stringify([old.answers, old.wrong]);
    rows[place] = { place, run, id, question, gold, answers, wrong, groups, text };
    if (same) rows[place].node = old.node; // read again, an opened one stays open
  }
  offer();
  show();
}

const right = (row, method) => (row.answers[method]?.[1] == null ? null : row.answers[method][1] >= 0.5);

function ofMethod(row, method) {
  const [said, , fallback] = row.answers[method] ?? [""];
  const found = { true: ["right"], false: ["wrong"], null: [] }[right(row, method)];
  return [...found, ...(fallback ? ["fallback"] : []), ...(row.answers[method] && !said ? ["no answer"] : [])];
}

function ofBoth(row) {
  const [ours, theirs] = row.answers;
  if (!ours || !theirs) return [];
  const verdicts = [right(row, 0), right(row, 1)];
  return [ours[0] === theirs[0] ? "same answer" : "answers differ",
    ...(verdicts[0] !== verdicts[1] ? ["only one is right"] : [])];
}

function ofSteps(row) {
  if (!row.wrong) return ["none judged"];
  return row.wrong.length ? ["a step is false", ...row.wrong.map(name => `${name} is false`)] : ["all judged are true"];
}

function ofErrors(row) {
  const found = [...new Set(row.answers.map(one => one?.[3]).filter(Boolean))];
  return found.length ? ["any error", ...found] : ["no error"];
}

// -- filters --------------------------------------------------------------------------------------------------------

const wanted = new URLSearchParams(location.hash.slice(1)); // what is chosen, kept in the address
const filters = []; // each with the values that a question has of it
const search = make("input", { type: "search", placeholder: "question, answer, program", "aria-label": "Search" });
const grid = make("div", { class: "filters" });
const more = make("div", { class: "filters" });
const moreBox = make("details", { class: "more" }, make("summary", {}, "Groups"), more);

function filter(name, label, values, into = grid) {
  if (filters.some(one => one.name === name)) return;
  const select = make("select");
  const box = make("label", {}, make("span", {}, label), select);
  filters.push({ name, values, select, box, options: "", counts: new Map(), counted: 0 });
  select.addEventListener("change", () => choose(name, select.value));
  into.append(box);
}

function offer() {
  head.methods.forEach((label, at) => filter(`method${at}`, label, row => ofMethod(row, at)));
  filter("between", "Between them", ofBoth);
  filter("steps", "Steps", ofSteps);
  filter("error", "Error", ofErrors);
  filter("run", "Run", row => [head.runs[row.run]]);
  keys.forEach((key, at) => filter(`group.${key}`, key.replaceAll("_", " "),
    row => (row.groups[at] === undefined ? [] : [row.groups[at]]), more));
  for (const one of filters) {
    if (!one.counted) one.counts.clear();
    for (; one.counted < rows.length; one.counted++)
      for (const value of one.values(rows[one.counted])) one.counts.set(value, (one.counts.get(value) ?? 0) + 1);
    const chosen = wanted.get(one.name) ?? "";
    if (chosen && !one.counts.has(chosen)) one.counts.set(chosen, 0);
    const sorted = [...one.counts].sort((a, b) => a[0] - b[0] || b[1] - a[1] || (a[0] < b[0] ? -1 : 1));
    const options = JSON.stringify(sorted);
    one.box.hidden = sorted.length < 2;
    if (options === one.options || (one.options && document.activeElement === one.select)) continue;
    one.options = options;
    const named = sorted.map(([value, n]) => make("option", { value }, `${value} (${n.toLocaleString("en")})`));
    one.select.replaceChildren(make("option", { value: "" }, "any"), ...named);
    one.select.value = chosen;
  }
  moreBox.hidden = !more.querySelector("label:not([hidden])");
  if (filters.some(one => one.name.startsWith("group.") && wanted.get(one.name))) moreBox.open = true;
}

function choose(name, value) {
  if (value) wanted.set(name, value);
  else wanted.delete(name);
  if (name !== "page") wanted.delete("page");
  history.replaceState(null, "", `#${wanted}`);
  show();
}

function found() {
  const active = filters.filter(one => wanted.get(one.name));
  const words = (wanted.get("search") ?? "").toLowerCase().split(/\s+/).filter(Boolean);
  return rows.filter(row => words.every(word => row.text.includes(word))
    && active.every(one => one.values(row).includes(wanted.get(one.name))));
}

// -- the list -------------------------------------------------------------------------------------------------------

const list = make("ol", { class: "rows", "aria-label": "Questions" });
const status = make("p", { role: "status" });
const pages = make("input", { type: "number", min: 1, "aria-label": "Page" });
const last = make("span");
const step = (label, by) => {
  const button = make("button", { type: "button" }, label);
  button.addEventListener("click", () => turn(Number(pages.value) + by));
  return button;
};
const [before, after] = [step("Previous", -1), step("Next", 1)];
const pager = make("nav", { class: "pager", "aria-label": "Pages" }, before, make("span", {}, "page "), pages, last, after);

function turn(page) {
  choose("page", page > 1 ? String(page) : "");
  list.scrollIntoView({ block: "nearest" });
}

function show() {
  const matching = found();
  const end = Math.max(1, Math.ceil(matching.length / PAGE));
  const page = Math.min(end, Math.max(1, Math.floor(Number(wanted.get("page"))) || 1));
  const shown = matching.slice((page - 1) * PAGE, page * PAGE);
  shown.forEach((row, at) => { // what stands there already keeps its place, so that focus and traces stay
    row.node ??= item(row);
    if (list.children[at] !== row.node) list.insertBefore(row.node, list.children[at] ?? null);
  });
  while (list.children.length > shown.length) list.lastChild.remove();
  list.start = (page - 1) * PAGE + 1;
  const good = head.methods.map((label, at) => [label, matching.filter(row => right(row, at)).length])
    .filter((_, at) => rows.some(row => right(row, at) !== null));
  const whole = matching.length === rows.length ? "" : ` of ${rows.length.toLocaleString("en")}`;
  status.textContent = `${matching.length.toLocaleString("en")}${whole} ${rows.length === 1 ? "question" : "questions"}`
    + good.map(([label, n]) => `; ${label} right in ${n.toLocaleString("en")}`).join("");
  pages.value = page;
  pages.max = end;
  last.textContent = ` of ${end.toLocaleString("en")}`;
  [before.disabled, after.disabled, pager.hidden] = [page === 1, page === end, end === 1];
}

const verdict = good => (good == null ? "" : make("span", { class: good ? "right" : "wrong" }, good ? " ✓ right" : " ✗ wrong"));

function item(row) {
  const said = row.answers.map((one, at) => one && make("span", {},
    make("span", { class: "soft" }, `${one[2] ? "fallback" : head.methods[at]} `), make("b", {}, one[0] || "(nothing)"),
    verdict(right(row, at)))).filter(Boolean);
  const error = ofErrors(row).slice(1).join(", ");
  const box = make("details", {}, make("summary", {}, make("span", { class: "asked" }, row.question),
    make("span", { class: "answers" }, make("span", {}, make("span", { class: "soft" }, "gold "), make("b", {}, row.gold || "hidden")),
      ...said, error && make("span", { class: "wrong" }, error),
      row.wrong?.length ? make("span", { class: "wrong" }, `false: ${row.wrong.join(", ")}`) : "")));
  box.addEventListener("toggle", () => box.open && !box.dataset.opened && open(row, box));
  return make("li", {}, box);
}

list.addEventListener("keydown", event => {
  const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  const all = [...list.querySelectorAll("li > details > summary")];
  const next = all[all.indexOf(document.activeElement) + by];
  if (!next || !all.includes(document.activeElement)) return;
  event.preventDefault();
  next.focus();
});

// -- a trace --------------------------------------------------------------------------------------------------------

const traces = new Map();

async function trace(row) {
  if (source === "live") return asked(`trace?id=${encodeURIComponent(row.id)}`);
  const at = Math.floor(row.place / head.traces);
  if (!traces.has(at)) traces.set(at, unpacked(`trace-${at}`));
  return (await traces.get(at))[row.place % head.traces];
}

async function open(row, box) {
  box.dataset.opened = "yes";
  const place = make("div", { class: "opened" }, "…");
  box.append(place);
  try {
    const told = await trace(row);
    const pictures = told.pictures.map(([name, where]) => picture(name, where));
    const groups = keys.map((key, at) => row.groups[at] && `${key.replaceAll("_", " ")}: ${row.groups[at]}`);
    place.replaceChildren(make("p", { class: "note" }, [row.id, ...groups.filter(Boolean)].join("; ")),
      make("div", { class: "pictures" }, ...pictures), ...told.methods.map(method));
  } catch (error) {
    place.replaceChildren(make("p", { class: "wrong", role: "alert" }, error.message));
    delete box.dataset.opened;
    box.addEventListener("toggle", () => place.remove(), { once: true });
  }
}

function picture(name, where) {
  const figure = make("figure", {}, make("figcaption", {}, name));
  const put = src => figure.prepend(make("img", { src, alt: name }));
  if (where && source === "live") put(where);
  else if (where) packed(where).then(data => put(`data:image/jpeg;base64,${data}`), () => {});
  return figure;
}

function method(told) {
  const calls = told.calls.map(call => make("li", {}, call.text, verdict(call.right),
    call.right === false ? make("span", { class: "soft" }, ` true: ${call.truth}`) : "", ...call.evidence.map(evidence)));
  const attempts = told.attempts.map(([program, why]) =>
    make("details", {}, make("summary", {}, `An attempt that failed: ${why}`), make("pre", {}, program)));
  return make("section", {}, make("h3", {}, `${told.method} `, make("span", { class: "soft" }, told.facts)),
    told.error && make("p", { class: "wrong" }, told.error), told.program && make("pre", {}, told.program),
    calls.length ? make("ol", { class: "steps" }, ...calls) : "", ...attempts,
    told.printed && make("pre", {}, `printed:\n${told.printed}`), ...told.evidence.map(evidence));
}

function evidence(one) {
  const lists = (one.captions ?? []).map((captions, at) => make("div", {}, make("p", { class: "soft" },
    `image ${one.images?.[at] ?? at + 1}`), make("ul", {}, ...captions.map(caption => make("li", {}, caption)))));
  const lines = [["asked", one.text], ["scores", one.scores], ["read", one.completion]].filter(([, text]) => text)
    .map(([label, text]) => make("p", {}, make("span", { class: "soft" }, `${label} `), text));
  const captions = (one.captions ?? []).flat().length;
  return make("details", {}, make("summary", {}, [one.kind ?? "evidence", captions ? count(captions, "caption") : ""]
    .filter(Boolean).join(", ")), ...lines, ...lists);
}

// -- a run that goes on ---------------------------------------------------------------------------------------------

const progress = document.getElementById("progress");

async function figures() {
  const text = await (await fetch("figures")).text(); // made by the templates, which escape; it runs under the policy
  const fresh = new DOMParser().parseFromString(text, "text/html");
  document.getElementById("figures").replaceChildren(...fresh.body.childNodes);
}

async function follow() {
  let [mark, graphs, drawn, latest] = [0, -1, -1, Date.now()];
  for (;;) {
    try {
      const news = await asked(`rows?after=${mark}`);
      if (graphs !== news.graphs) [mark, graphs] = [graphs < 0 ? news.mark : 0, news.graphs]; // judged by more: read again
      else mark = news.mark;
      head = news.head;
      if (news.part.rows.length) {
        add(news.part);
        latest = Date.now();
      }
      if (drawn !== news.figures) [drawn] = [news.figures, await figures()];
      const of = news.total === null ? "" : ` of ${news.total.toLocaleString("en")}`;
      const seconds = Math.round((Date.now() - latest) / 1000);
      progress.textContent = `Live: ${news.done.toLocaleString("en")}${of} ${news.done === 1 ? "question" : "questions"} answered`
        + (seconds > 5 ? `; nothing new for ${count(seconds, "second")}.` : ".");
      if (news.more) continue;
    } catch (error) {
      progress.textContent = `codevqa view does not answer (${error.message}); what was read stays here.`;
    }
    await new Promise(done => setTimeout(done, 1000));
  }
}

// -- begin ----------------------------------------------------------------------------------------------------------

async function begin() {
  const clear = make("button", { type: "button" }, "Clear");
  clear.addEventListener("click", () => {
    for (const name of [...wanted.keys()]) wanted.delete(name);
    search.value = "";
    for (const one of filters) one.select.value = "";
    choose("page", "");
  });
  search.value = wanted.get("search") ?? "";
  search.addEventListener("input", () => choose("search", search.value));
  pages.addEventListener("change", () => turn(Number(pages.value)));
  const controls = make("form", { role: "search" }, make("div", { class: "find" }, search, clear), grid, moreBox);
  controls.addEventListener("submit", event => event.preventDefault());
  main.append(controls, status, list, pager);
  if (source === "live") return follow();
  head = await unpacked("head");
  for (let part = 0; part < head.parts; part++) {
    add(await unpacked(`part-${part}`));
    if (!part) performance.mark("listed");
    await new Promise(requestAnimationFrame); // lets the browser paint
  }
  main.dataset.whole = "yes";
}

begin().catch(error => main.append(make("p", { class: "wrong", role: "alert" }, error.message)));
