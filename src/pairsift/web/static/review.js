"use strict";
// The review queue: one pair at a time, or a grid. Everything that can be done is a key and a button.

const LIMIT = 50;
const find = (id) => document.getElementById(id);
const state = {
  items: [], index: 0, total: 0, counts: null, grid: false, selected: new Set(), start: Date.now(), done: 0, ticket: 0,
  ended: false, // whether the server has no pair behind the loaded ones
  reasonOf: null, // the pair and the stored reason that the field Reason was set for
  draft: null, // a new caption that could not be saved
};

function show(error) {
  find("message").textContent = error ? error.message || String(error) : "";
}

let last = Promise.resolve();

function guarded(work) {
  // One action after the other: a key that comes while an answer is awaited acts on what the answer leaves.
  last = last.then(async () => {
    try {
      show(null);
      await work();
    } catch (error) {
      show(error instanceof TypeError ? new Error("pairsift serve does not answer: is it still running?") : error);
    }
  });
  return last;
}

function reviewer() {
  return find("reviewer").value.trim() || "reviewer";
}

async function change(item, values) {
  const before = passes(item);
  Object.assign(item, values);
  if (!item.linked) state.total += passes(item) - before;
  else state.total = (await ask(`/api/pairs?${query()}&limit=1`)).total; // only the server knows whether it is in the filter
}

async function load(fresh) {
  const ticket = fresh ? ++state.ticket : state.ticket;
  const wanted = query();
  const loaded = state.items.filter((item) => !item.linked);
  if (!fresh && loaded.length) wanted.set("after", loaded.at(-1).pair);
  wanted.set("limit", LIMIT);
  const page = await ask(`/api/pairs?${wanted}`);
  if (ticket !== state.ticket) return;
  state.ended = page.pairs.length < LIMIT;
  const known = new Set(fresh ? [] : state.items.map((item) => item.pair));
  state.items = (fresh ? [] : state.items).concat(page.pairs.filter((item) => !known.has(item.pair)));
  state.total = page.total;
  if (fresh) {
    state.index = 0;
    state.selected.clear();
  }
}

async function reload() {
  await load(true);
  const pair = new URLSearchParams(location.search).get("pair");
  let missing = null;
  if (pair !== null) {
    const place = state.items.findIndex((item) => String(item.pair) === pair);
    if (place >= 0) state.index = place;
    else if (/^\d+$/.test(pair)) {
      const item = await ask(`/api/pairs/${pair}`).catch((error) => { missing = error; });
      if (item) {
        state.items.unshift({ ...item, linked: true });
        state.index = 0;
      }
    }
  }
  state.counts = (await ask("/api/overview")).counts;
  draw();
  if (missing) throw missing;
}

function percent(value) {
  if (value < 0.0001) return "under 0.01%";
  if (value > 0.9999) return "over 99.99%";
  return `${(100 * value).toFixed(value < 0.01 || value > 0.99 ? 2 : 1)}%`;
}

function draw() {
  const { counts } = state;
  if (counts) {
    const decided = counts.keep + counts.drop + counts.replace;
    const minutes = (Date.now() - state.start) / 60000;
    const pace = state.done > 4 ? ` · ${Math.round(state.done / minutes)} a minute` : "";
    find("progress").textContent =
      `${decided.toLocaleString()} decided (${counts.keep.toLocaleString()} keep, ${counts.drop.toLocaleString()} drop, ` +
      `${counts.replace.toLocaleString()} replace) · ${state.total.toLocaleString()} in this filter${pace}`;
  }
  find("single").hidden = state.grid || !state.items.length;
  find("grid").hidden = !state.grid || !state.items.length;
  find("empty").hidden = state.items.length > 0;
  find("grid-toggle").setAttribute("aria-pressed", String(state.grid));
  if (!state.items.length) return;
  (state.grid ? drawGrid : drawSingle)();
}

function element(name, properties, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

function drawSuggestions(item) {
  const hidden = isSample(); // a person who judges a sample is not told what the run thinks
  find("probability").parentElement.hidden = hidden;
  find("suggestion-box").hidden = hidden || !item.captions.length;
  find("suggestions").replaceChildren(...item.captions.map((row, place) => {
    const button = element("button", { type: "button" }, element("kbd", { textContent: place + 1 }), ` ${row.caption} `,
      element("span", { className: "small", textContent: percent(row.probability) }));
    button.dataset.key = place + 1;
    return element("li", {}, button);
  }));
  find("image-box").hidden = hidden || !item.images.length;
  find("images").replaceChildren(...item.images.map((row) => {
    const image = element("img", { src: `/image/${row.from_pair}?size=small`, alt: row.image, loading: "lazy" });
    const link = element("a", { href: `/?decision=&pair=${row.from_pair}` }, image);
    return element("li", {}, link, element("span", { className: "small", textContent: percent(row.probability) }));
  }));
}

function drawColumns(item) {
  const rows = Object.entries(item.columns).filter(([, value]) => value !== null && value !== "")
    .map(([name, value]) => [name, String(value)]);
  const groups = [["copies of this image", "image_duplicates"], ["images with this caption", "caption_duplicates"]];
  for (const [text, name] of groups) {
    if (item[name] == null) continue;
    const wanted = new URLSearchParams({ decision: "", order: "source", column: condition(name, item[name]) });
    rows.push([text, element("a", { href: `/?${wanted}`, textContent: "show all" })]);
  }
  find("columns").replaceChildren(...rows.flatMap(([name, value]) =>
    [element("dt", { textContent: name }), element("dd", {}, value)]));
}

function drawSingle() {
  const item = state.items[Math.min(state.index, state.items.length - 1)];
  find("image").src = `/image/${item.pair}?size=large`;
  find("image").alt = `image of pair ${item.pair}`;
  find("place").textContent = `${item.image} · pair ${item.pair} · ${item.split}`;
  find("meter").value = item.match_probability;
  find("probability").textContent = `${percent(item.match_probability)} that they belong together · ${item.verdict}`;
  find("given").textContent = item.given_caption;
  drawSuggestions(item);
  const reasonOf = `${item.pair} ${item.reason ?? ""}`;
  if (reasonOf !== state.reasonOf) find("reason").value = item.reason ?? "";
  state.reasonOf = reasonOf;
  const words = { keep: "kept", drop: "dropped", replace: `new caption: ${item.new_caption}` };
  find("decided").textContent = item.decision
    ? words[item.decision] + (item.reason ? ` (${item.reason})` : "") + (item.reviewer ? ` by ${item.reviewer}` : "") : "";
  drawColumns(item);
  const next = state.items[state.index + 1];
  if (next) new Image().src = `/image/${next.pair}?size=large`;
  history.replaceState(null, "", address(item.pair));
}

function choose(item, toHere) {
  // With Shift, all pairs from the last one that was clicked to this one.
  const shown = state.items.slice(state.index, state.index + LIMIT);
  const [from, to] = [shown.findIndex((other) => other.pair === state.anchor), shown.indexOf(item)].sort((a, b) => a - b);
  if (toHere && from >= 0) shown.slice(from, to + 1).forEach((other) => state.selected.add(other.pair));
  else if (!state.selected.delete(item.pair)) state.selected.add(item.pair);
  state.anchor = item.pair;
  [...find("cells").querySelectorAll("button")].forEach((button, place) =>
    button.setAttribute("aria-pressed", String(state.selected.has(shown[place].pair))));
  find("selected").textContent = `${state.selected.size} selected`;
}

function drawGrid() {
  const shown = state.items.slice(state.index, state.index + LIMIT);
  find("cells").replaceChildren(...shown.map((item) => {
    const cell = document.createElement("li");
    const button = document.createElement("button");
    const image = document.createElement("img");
    const text = document.createElement("span");
    const small = document.createElement("span");
    button.type = "button";
    button.setAttribute("aria-pressed", String(state.selected.has(item.pair)));
    image.src = `/image/${item.pair}?size=small`;
    image.alt = "";
    image.loading = "lazy";
    button.title = item.given_caption;
    text.className = "caption";
    text.textContent = item.given_caption;
    small.className = "small";
    const parts = [isSample() ? null : percent(item.match_probability), item.decision];
    small.textContent = parts.filter(Boolean).join(" · ");
    button.append(image, text, small);
    button.addEventListener("click", (event) => choose(item, event.shiftKey));
    cell.append(button);
    return cell;
  }));
  find("selected").textContent = `${state.selected.size} selected`;
  for (const button of document.querySelectorAll("[data-grid$=-all]")) button.hidden = isSample();
}

async function move(step) {
  const place = state.index + step;
  if (place < 0) return;
  if (place + 10 >= state.items.length && !state.ended) {
    await load(false).catch((error) => { if (place >= state.items.length) throw error; }); // else there is time to try again
  }
  if (place < state.items.length) state.index = place;
  else if (step > 0) {
    await load(false); // others may have decided meanwhile: the server counts
    const left = query().has("decision") && state.total ? `; ${state.total.toLocaleString()} in it are left: reload the page to see them` : "";
    show(new Error(`this was the last pair of the filter${left}`));
  }
  draw();
}

async function decide(pairs, choice, caption = null, source = null) {
  const reason = choice === "keep" || state.grid ? null : find("reason").value || null; // the grid does not show it
  const items = new Map(state.items.map((item) => [item.pair, item]));
  const decisions = pairs.map((pair) => ({ pair, choice, caption, from_pair: source, reason, seen: items.get(pair).time }));
  let answer;
  try {
    answer = await ask("/api/decisions", { decisions, reviewer: reviewer(), key: newKey() });
  } catch (error) { // of pairs that were decided meanwhile, the answer has what is valid now
    for (const row of error.content?.pairs ?? []) await change(items.get(row.pair), row);
    draw();
    throw error;
  }
  state.counts = answer.counts;
  if (pairs.length === 1) state.done += 1;
  const now = { decision: choice, new_caption: caption, from_pair: source, reason, reviewer: reviewer(), time: answer.time };
  for (const pair of pairs) await change(items.get(pair), now);
}

async function again(path) {
  const answer = await ask(path, { reviewer: reviewer(), key: newKey() });
  state.counts = answer.counts;
  if (!answer.total) return show(new Error(path.endsWith("undo") ? "there is nothing to undo" : "there is nothing to redo"));
  const place = (row) => state.items.findIndex((item) => item.pair === row.pair);
  const [first] = answer.pairs;
  if (answer.total > answer.pairs.length || answer.pairs.some((row) => place(row) < 0)) {
    await load(true);
    if (first && place(first) < 0) state.items.unshift({ ...first, linked: true });
    state.index = state.grid || !first ? 0 : place(first);
  } else {
    for (const row of answer.pairs) await change(state.items[place(row)], row);
    if (!state.grid) state.index = place(first);
  }
  draw();
}

function sure(text) {
  const dialog = find("sure");
  find("sure-text").textContent = text;
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve) => dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true }));
}

async function type(item) {
  const dialog = find("typing");
  find("typed").value = state.draft?.pair === item.pair ? state.draft.text : item.new_caption || item.given_caption;
  dialog.returnValue = "";
  dialog.showModal();
  find("typed").select();
  await new Promise((resolve) => dialog.addEventListener("close", resolve, { once: true }));
  const text = find("typed").value.trim();
  if (dialog.returnValue !== "save") return false;
  if (!text) throw new Error("the new caption is empty");
  state.draft = { pair: item.pair, text }; // for the next time, should the server not answer
  await decide([item.pair], "replace", text);
  state.draft = null;
  return true;
}

async function take(item, place) {
  const row = item.captions[place];
  if (!row || isSample()) return;
  await decide([item.pair], "replace", row.caption, row.from_pair);
  await move(1);
}

const single = {
  k: async (item) => { await decide([item.pair], "keep"); await move(1); },
  d: async (item) => { await decide([item.pair], "drop"); await move(1); },
  t: async (item) => { if (await type(item)) await move(1); else draw(); },
  ArrowLeft: () => move(-1),
  ArrowRight: () => move(1),
};

function press(key) {
  if (key === "u") return guarded(() => again("/api/undo"));
  if (key === "r") return guarded(() => again("/api/redo"));
  if (key === "g") return guarded(async () => {
    state.grid = !state.grid;
    state.selected.clear(); // pairs that are out of sight are not selected
    if (state.grid) state.index -= state.index % LIMIT;
    draw();
  });
  if (key === "/") return filters.elements.text.focus();
  if (state.grid && gridKeys[key]) return onGrid(gridKeys[key]);
  if (!state.grid) return guarded(() => {
    const item = state.items[state.index];
    if (item && single[key]) return single[key](item);
    if (item && key >= "1" && key <= "5") return take(item, key - 1);
  });
}

const bulk = {
  keep: () => decide([...state.selected], "keep"),
  drop: () => decide([...state.selected], "drop"),
  page: () => state.items.slice(state.index, state.index + LIMIT).forEach((item) => state.selected.add(item.pair)),
  none: () => state.selected.clear(),
  before: () => turn(-Math.min(LIMIT, state.index)),
  after: () => turn(LIMIT),
};

const gridKeys = { k: "keep", d: "drop", a: "page", n: "none", ArrowLeft: "before", ArrowRight: "after" };

async function turn(step) {
  // Pairs that are out of sight are not selected.
  const before = state.index;
  await move(step);
  if (state.index === before) return;
  state.selected.clear();
  draw();
}

function onGrid(what) {
  return guarded(async () => {
    if (what.endsWith("-all")) return all(what.split("-")[0]);
    if ((what === "keep" || what === "drop") && !state.selected.size) throw new Error("no pair is selected");
    await bulk[what]();
    if (what === "keep" || what === "drop") state.selected.clear();
    draw();
  });
}

async function all(choice) {
  const wanted = Object.fromEntries(["text", "low", "high", "order", "duplicates", "sample"].map((name) => [name, query().get(name) ?? undefined]));
  for (const name of ["low", "high"]) wanted[name] = wanted[name] && Number(wanted[name]);
  for (const name of ["decision", "verdict", "split", "reason", "column"]) wanted[name] = query().getAll(name);
  if (!(await sure(`${choice} all ${state.total.toLocaleString()} pairs of this filter? One undo takes it back.`))) return;
  await ask("/api/decisions/filter", { filter: wanted, choice, reviewer: reviewer(), key: newKey() });
  history.replaceState(null, "", address()); // the pair that was shown may have left the filter
  await reload();
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  if (button.dataset.key) press(button.dataset.key);
  const what = button.dataset.grid;
  if (what) onGrid(what);
  if (button.id === "grid-toggle") press("g");
});

// A list keeps the focus while its choice is changed by keys, which then decide nothing; after the mouse it loses it.
let byPointer = true;
document.addEventListener("pointerdown", () => { byPointer = true; });
document.addEventListener("change", (event) => { if (byPointer && event.target.matches("select")) event.target.blur(); });

document.addEventListener("keydown", (event) => {
  byPointer = false;
  if (event.ctrlKey && event.key === "Enter" && find("typing").open) return find("typing").close("save");
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (event.target.matches("input, textarea, select")) return;
  if (event.repeat && !event.key.startsWith("Arrow")) return;
  const moves = ["ArrowLeft", "ArrowRight"].includes(event.key);
  if ((state.grid ? "kdanurg/" : "kdturg/12345").includes(event.key) || moves) {
    event.preventDefault();
    press(event.key);
  }
});

find("image").addEventListener("error", () => { find("lost").hidden = !("images" in document.querySelector("main").dataset); });
find("image").addEventListener("load", () => { find("lost").hidden = true; });
filters.addEventListener("submit", (event) => event.preventDefault());
filters.addEventListener("change", (event) => {
  const fields = filters.elements;
  if (event.target.name === "reason" && event.target.value && fields.decision.value === "undecided") fields.decision.value = "";
  guarded(async () => {
    history.replaceState(null, "", address()); // after what is still under way, which may name a pair
    try {
      await reload();
    } catch (error) {
      state.items = []; // they are those of another filter
      state.selected.clear();
      draw();
      throw error;
    }
  });
});
find("reviewer").addEventListener("change", () => {
  try { localStorage.setItem("reviewer", reviewer()); } catch { /* private windows keep nothing */ }
});

try { find("reviewer").value = localStorage.getItem("reviewer") || ""; } catch { /* as above */ }
guarded(reload);
