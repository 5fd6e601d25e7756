"use strict";
// The review queue: one pair at a time, or a grid. Everything that can be done is a key and a button.

const LIMIT = 50;
const find = (id) => document.getElementById(id);
const state = {
  items: [], index: 0, total: 0, counts: null, grid: false, selected: new Set(), start: Date.now(), done: 0, ticket: 0,
  ended: false, // whether the server has no pair behind the loaded ones
  reasonOf: null, // the pair and the stored reason that the field Reason was set for
  view: 0, // counts what was drawn
  acting: 0, // the number of actions that are under way or wait: each draws at its end
  shown: null, // the pair that was drawn last, or the first one of the grid
  ready: false, // whether what was drawn last has been painted long enough to be decided on
  stale: false, // whether the server may have done more than is shown
  asked: null, // a bulk action that waits for a choice, since decided pairs are among its pairs
};
const PAINTED = 120; // milliseconds after which a person may have seen what was painted

function show(error) { // a text is no error
  find("message").classList.toggle("note", typeof error === "string");
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
      show(error.status || !["TypeError", "TimeoutError"].includes(error.name) ? error : new Error("pairsift serve does not answer: is it still running?"));
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
  if (!item.linked || values.unsent) state.total += passes(item) - before;
  else state.total = (await ask(`api/pairs?${query()}&limit=1`)).total; // only the server knows whether it is in the filter
}

async function askLatest(path) {
  // Ask for pairs. Where a kept answer was recorded meanwhile, what the server said may be older than it: ask again.
  for (;;) {
    const before = answered;
    const found = await ask(path);
    if (before === answered) return found;
  }
}

async function load(fresh) {
  const ticket = fresh ? ++state.ticket : state.ticket;
  const wanted = query();
  const loaded = state.items.filter((item) => !item.linked);
  if (!fresh && loaded.length) wanted.set("after", loaded.at(-1).pair);
  wanted.set("limit", LIMIT);
  const page = await askLatest(`api/pairs?${wanted}`);
  if (ticket !== state.ticket) return;
  state.ended = page.pairs.length < LIMIT;
  const known = new Set(fresh ? [] : state.items.map((item) => item.pair));
  const kept = unsent();
  const found = page.pairs.filter((item) => !known.has(item.pair)).map((item) => Object.assign(item, kept.get(item.pair)));
  state.items = (fresh ? [] : state.items).concat(found);
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
      const item = await askLatest(`api/pairs/${pair}`).catch((error) => { missing = error; });
      if (item) {
        state.items.unshift({ ...item, ...unsent().get(item.pair), linked: true });
        state.index = 0;
      }
    }
  }
  state.counts = (await askLatest("api/overview")).counts;
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
  drawKept();
  drawAsked(null);
  state.view += 1;
  setReady(null);
  if (!state.items.length) return;
  (state.grid ? drawGrid : drawSingle)();
  const shown = state.grid ? state.items[0].pair : shownItem().pair;
  const box = find(state.grid ? "grid" : "single");
  if (shown !== state.shown && box.getBoundingClientRect().top < 0) box.scrollIntoView(); // on a phone, the buttons are below
  state.shown = shown;
  settleView(state.view, state.grid ? "grid" : shownItem().pair);
}

function setReady(what) {
  // What can be decided on: the id of a pair, "grid", or null for nothing.
  state.ready = what !== null;
  if (state.ready) document.body.dataset.ready = what;
  else delete document.body.dataset.ready;
}

function shownItem() {
  return state.items[Math.min(state.index, state.items.length - 1)];
}

async function settleView(view, what) {
  // Keys and clicks decide once the pair, or what is in sight of the grid, has been painted and could be seen.
  const images = state.grid
    ? [...find("cells").querySelectorAll("img")].filter((image) => image.getBoundingClientRect().top < innerHeight)
    : [find("image")];
  await Promise.all(images.map((image) => image.decode().catch(() => null))); // a lost image is told
  for (let frames = 0; frames < 2; frames += 1) await new Promise(requestAnimationFrame);
  await new Promise((resolve) => setTimeout(resolve, PAINTED));
  if (view === state.view && !state.acting) setReady(what);
}

function element(name, properties, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

function imageOf(pair, size) {
  return `image/${pair}?size=${size}&run=${RUN}`;
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
    const image = element("img", { src: imageOf(row.from_pair, "small"), alt: row.image, loading: "lazy" });
    const link = element("a", { href: `./?decision=&pair=${row.from_pair}` }, image);
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
    rows.push([text, element("a", { href: `./?${wanted}`, textContent: "show all" })]);
  }
  find("columns").replaceChildren(...rows.flatMap(([name, value]) =>
    [element("dt", { textContent: name }), element("dd", {}, value)]));
}

function drawSingle() {
  const item = shownItem();
  const source = imageOf(item.pair, "large");
  if (find("image").getAttribute("src") !== source) find("image").src = source;
  find("image").alt = `image of pair ${item.pair}`;
  find("place").textContent = `${item.image} · pair ${item.pair} · ${item.split}`;
  find("meter").value = item.match_probability;
  find("probability").textContent = `${percent(item.match_probability)} that they belong together · ${item.verdict}`;
  find("given").textContent = item.given_caption;
  drawSuggestions(item);
  const reasonOf = `${item.pair} ${item.reason ?? ""}`;
  if (reasonOf !== state.reasonOf) find("reason").value = item.reason ?? "";
  state.reasonOf = reasonOf;
  const words = { keep: "kept", drop: "dropped", replace: `new caption: “${item.new_caption}”` };
  find("decided").textContent = item.decision
    ? words[item.decision] + (item.reason ? ` (${item.reason})` : "") + (item.reviewer ? ` by ${item.reviewer}` : "") +
      (item.unsent ? " – not saved yet" : "") : "";
  const draft = drafts.of(item.pair);
  find("draft").hidden = !draft;
  find("draft-text").textContent = draft ?? "";
  drawColumns(item);
  const next = state.items[state.index + 1];
  if (next) new Image().src = imageOf(next.pair, "large");
  history.replaceState(null, "", address(item.pair));
}

function choose(item, toHere) {
  // With Shift, all pairs from the last one that was clicked to this one.
  const shown = state.items.slice(state.index, state.index + LIMIT);
  const [from, to] = [shown.findIndex((other) => other.pair === state.anchor), shown.indexOf(item)].sort((a, b) => a - b);
  if (toHere && from >= 0) shown.slice(from, to + 1).forEach((other) => state.selected.add(other.pair));
  else if (!state.selected.delete(item.pair)) state.selected.add(item.pair);
  state.anchor = item.pair;
  drawSelection();
}

function drawSelection() {
  drawAsked(null);
  const shown = state.items.slice(state.index, state.index + LIMIT);
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
    image.src = imageOf(item.pair, "small");
    image.alt = "";
    image.loading = "lazy";
    button.title = item.given_caption;
    text.className = "caption";
    text.textContent = item.given_caption;
    small.className = "small";
    const parts = [isSample() ? null : percent(item.match_probability), item.decision, item.unsent ? "not saved yet" : null];
    small.textContent = parts.filter(Boolean).join(" · ");
    button.append(image, text, small);
    button.addEventListener("click", (event) => { if (state.ready) choose(item, event.shiftKey); });
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
    show(`this was the last pair of the filter${left}`);
  }
}

async function decide(pairs, choice, caption = null, source = null, typed = false) {
  const reason = choice === "keep" || state.grid ? null : find("reason").value || null; // the grid does not show it
  const items = new Map(state.items.map((item) => [item.pair, item]));
  const decisions = pairs.map((pair) => {
    const { time, given_caption } = items.get(pair);
    return { pair, choice, caption, from_pair: source, reason, seen: time, given: given_caption };
  });
  let answer;
  try {
    answer = await submit({ decisions, reviewer: reviewer() }, typed);
  } catch (error) {
    await correct(error);
    throw error;
  }
  state.counts = answer?.counts ?? state.counts;
  forgetRefused(pairs);
  if (pairs.length === 1) state.done += 1;
  const now = { decision: choice, new_caption: caption, from_pair: source, reason, reviewer: reviewer() };
  const kept = { time: answer?.time ?? UNKNOWN, unsent: !answer };
  for (const pair of pairs) await change(items.get(pair), { ...now, ...kept });
}

async function correct(error) {
  // Of pairs that were decided meanwhile, or have another caption, the answer has what is valid now.
  for (const row of error.content?.pairs ?? []) {
    const item = state.items.find((other) => other.pair === row.pair);
    if (item) await change(item, { ...row, unsent: false });
  }
}

async function settle({ body }, answer) {
  // An answer that was kept has reached the server. The view stays where it is.
  state.counts = answer.counts;
  const kept = unsent();
  for (const { pair } of body.decisions) {
    const item = state.items.find((other) => other.pair === pair);
    if (item && !kept.has(pair)) await change(item, { time: answer.time, unsent: false });
  }
  draw();
}

async function refuse({ body }, error) {
  // An answer that was kept is not recorded: its pairs are shown as they are now.
  for (const { pair } of body.decisions) {
    const item = state.items.find((other) => other.pair === pair);
    if (item) await change(item, { ...(await ask(`api/pairs/${pair}`)), unsent: false, ...unsent().get(pair) });
  }
  draw();
  show(new Error(`an answer of before was not recorded: ${error.message}`));
}

async function request(path, body) {
  // Ask for what cannot be kept. Where no answer comes it may have been done: the page is read again when one does.
  await flush();
  if (outbox.length) throw new Error("wait until your answers are saved: pairsift serve does not answer");
  try {
    return await ask(path, { ...body, run: RUN, reviewer: reviewer(), key: newKey() }, PATIENCE);
  } catch (error) {
    state.stale = !isRefused(error);
    throw error;
  }
}

async function again(path) {
  const answer = await request(path, {});
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
}

function sure(text, choices) {
  // Ask for one of some choices, each a value with its words; an empty text for none of them.
  const dialog = find("sure");
  find("sure-text").textContent = text;
  find("sure-choices").replaceChildren(...Object.entries(choices).map(([value, textContent]) => element("button", { value, textContent })),
    element("button", { value: "", textContent: "Cancel", autofocus: true }));
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve) => dialog.addEventListener("close", () => resolve(dialog.returnValue), { once: true }));
}

async function type(item) {
  const dialog = find("typing");
  const original = item.new_caption || item.given_caption;
  const field = find("typed");
  const note = () => { find("typed-note").hidden = !drafts.of(item.pair); };
  field.value = drafts.of(item.pair) ?? original;
  field.oninput = () => { drafts.keep(item.pair, field.value, original); note(); };
  find("typed-discard").onclick = () => { field.value = original; field.oninput(); field.focus(); };
  note();
  dialog.returnValue = "";
  dialog.showModal();
  find("typed").select();
  await new Promise((resolve) => dialog.addEventListener("close", resolve, { once: true }));
  const text = find("typed").value.trim();
  if (dialog.returnValue !== "save") return false;
  if (!text) throw new Error("the new caption is empty");
  await decide([item.pair], "replace", text, null, true);
  drafts.remove(item.pair);
  return true;
}

async function take(item, place) {
  const row = item.captions[place];
  if (!row || isSample()) return;
  await decide([item.pair], "replace", row.caption, row.from_pair);
  await move(1);
}

const moves = { ArrowLeft: () => move(-1), ArrowRight: () => move(1) };

const single = {
  k: async (item) => { await decide([item.pair], "keep"); await move(1); },
  d: async (item) => { await decide([item.pair], "drop"); await move(1); },
  t: async (item) => { if (await type(item)) await move(1); },
};

function act(work) {
  // Do what changes the view, and draw it. Nothing is decided until what the last waiting action leaves is painted.
  setReady(null);
  state.view += 1; // what is still to be painted of the old view makes nothing ready
  state.acting += 1;
  return guarded(async () => {
    try {
      await work();
    } finally {
      state.acting -= 1;
      draw();
    }
  });
}

function press(key) {
  if (key === "u") return act(() => again("api/undo"));
  if (key === "r") return act(() => again("api/redo"));
  if (key === "g") return act(() => {
    state.grid = !state.grid;
    state.selected.clear(); // pairs that are out of sight are not selected
    if (state.grid) state.index -= state.index % LIMIT;
  });
  if (key === "/") return filters.elements.text.focus();
  if (state.grid) return gridKeys[key] && onGrid(gridKeys[key]);
  if (moves[key]) return act(() => moves[key]());
  const item = shownItem();
  if (item && key === "t" && !state.acting) return act(() => single.t(item)); // which decides nothing yet
  if (!item || !state.ready) return; // nobody has seen yet what the key would decide on
  if (single[key]) return act(() => single[key](item));
  if (key >= "1" && key <= "5") return act(() => take(item, key - 1));
}

function decidedOf(pairs) {
  // The number of pairs by decision, without the undecided ones.
  const counts = {};
  for (const { pair, decision } of state.items) {
    if (decision && pairs.includes(pair)) counts[decision] = (counts[decision] ?? 0) + 1;
  }
  return counts;
}

function counted(counts) {
  // The number of decided pairs, and what was decided, such as "3 keep, 3 replace".
  const parts = ["keep", "drop", "replace"].filter((name) => counts[name]).map((name) => `${counts[name].toLocaleString()} ${name}`);
  return [Object.entries(counts).reduce((sum, [name, n]) => sum + (name === "undecided" ? 0 : n), 0), parts.join(", ")];
}

async function decideSelected(choice, pairs) {
  await decide(pairs, choice);
  state.selected.clear();
}

function askSelected(choice) {
  // Decide on the selected pairs. Where decided ones are among them, a bar asks what to do with these.
  const pairs = [...state.selected];
  if (!pairs.length) return show(new Error("no pair is selected"));
  const [n, parts] = counted(decidedOf(pairs));
  if (!n) return act(() => decideSelected(choice, pairs));
  if (state.asked?.choice === choice) return bulk.others();
  drawAsked({ choice, pairs, n, parts });
}

function drawAsked(asked) {
  state.asked = asked;
  find("asked").hidden = !asked;
  if (!asked) return;
  const verb = asked.choice === "keep" ? "Keep" : "Drop";
  const others = asked.pairs.length - asked.n;
  find("asked-text").textContent = `${asked.n} of ${asked.pairs.length} ${asked.n > 1 ? "are" : "is"} decided: ${asked.parts}`;
  find("asked-others").hidden = !others;
  find("asked-others").replaceChildren(`${verb} the ${others} other${others > 1 ? "s" : ""} `, element("kbd", { textContent: asked.choice[0] }));
  find("asked-all").textContent = `${verb} all ${asked.pairs.length}`;
}

function select(wanted) {
  state.items.slice(state.index, state.index + LIMIT).filter(wanted).forEach((item) => state.selected.add(item.pair));
  drawSelection();
}

const bulk = {
  keep: () => askSelected("keep"),
  drop: () => askSelected("drop"),
  others: () => {
    const { choice, pairs } = state.asked;
    const others = pairs.filter((pair) => !state.items.find((item) => item.pair === pair).decision);
    if (others.length) act(() => decideSelected(choice, others));
  },
  all: () => {
    const { choice, pairs } = state.asked;
    act(() => decideSelected(choice, pairs));
  },
  cancel: () => drawAsked(null),
  page: () => select((item) => !item.decision),
  everything: () => select(() => true),
  none: () => { state.selected.clear(); drawSelection(); },
  before: () => act(() => turn(-Math.min(LIMIT, state.index))),
  after: () => act(() => turn(LIMIT)),
  "keep-all": () => act(() => all("keep")),
  "drop-all": () => act(() => all("drop")),
};

const gridKeys = { k: "keep", d: "drop", a: "page", A: "everything", n: "none", Escape: "cancel", ArrowLeft: "before", ArrowRight: "after" };

async function turn(step) {
  // Pairs that are out of sight are not selected.
  const before = state.index;
  await move(step);
  if (state.index !== before) state.selected.clear();
}

function onGrid(what) {
  const changes = ["before", "after", "none", "cancel"].includes(what);
  if (!changes && !state.ready) return; // nobody has seen yet what it would decide on
  show(null);
  bulk[what]();
}

async function all(choice) {
  const wanted = Object.fromEntries(["text", "low", "high", "order", "duplicates", "sample"].map((name) => [name, query().get(name) ?? undefined]));
  for (const name of ["low", "high"]) wanted[name] = wanted[name] && Number(wanted[name]);
  for (const name of ["decision", "verdict", "split", "reason", "column"]) wanted[name] = query().getAll(name);
  const { total, decided } = await ask(`api/pairs?${query()}&limit=1`);
  if (!total) throw new Error("no pair passes this filter");
  const verb = choice === "keep" ? "Keep" : "Drop";
  const [n, parts] = counted(decided);
  const choices = total > n ? { leave: `${verb} the ${(total - n).toLocaleString()} undecided` } : {};
  if (n) choices.change = `${verb} all ${total.toLocaleString()}`;
  const known = n ? ` ${n.toLocaleString()} of them ${n > 1 ? "are" : "is"} decided: ${parts}.` : "";
  const answer = await sure(`${verb} all ${total.toLocaleString()} pairs of this filter?${known} One undo takes it back.`, choices);
  if (!answer) return;
  await request("api/decisions/filter", { filter: wanted, choice, decided: answer, seen: decided });
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
  if (button.dataset.key || what) button.blur(); // else Enter or Space would decide on the next pair
});

// A list keeps the focus while its choice is changed by keys, which then decide nothing; after the mouse it loses it.
let byPointer = true;
document.addEventListener("pointerdown", () => { byPointer = true; });
document.addEventListener("change", (event) => { if (byPointer && event.target.matches("select")) event.target.blur(); });

function keyOf({ key, code, shiftKey }) {
  // The letter on the key, whatever Caps Lock does. Where the keyboard writes another script, or digits only with
  // Shift, the place of the key says which one it is.
  const place = code === "Slash" ? "/" : code.match(/^(?:Key|Digit)(.)$/)?.[1].toLowerCase();
  const isOther = key === "Process" || (key.length === 1 && !/[\p{Script=Latin}!-~]/u.test(key));
  const isDigit = code.startsWith("Digit") && !shiftKey;
  const name = place && (isOther || isDigit) ? place : key.length === 1 ? key.toLowerCase() : key;
  return name === "a" && shiftKey ? "A" : name;
}

document.addEventListener("keydown", (event) => {
  byPointer = false;
  if (event.repeat && event.target.matches("button")) event.preventDefault(); // a held Enter clicks once
  if (event.ctrlKey && event.key === "Enter" && find("typing").open && !event.repeat) return find("typing").close("save");
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (event.target.matches("input, textarea, select")) return;
  if (event.repeat) return; // a held key repeats nothing
  const key = keyOf(event);
  const known = key in moves || (key === "Escape" && state.asked);
  if ((state.grid ? "kdaAnurg/" : "kdturg/12345").includes(key) || known) {
    event.preventDefault();
    press(key);
  }
});

find("image").addEventListener("error", () => { find("lost").hidden = !("images" in document.querySelector("main").dataset); });
find("image").addEventListener("load", () => { find("lost").hidden = true; });
filters.addEventListener("submit", (event) => event.preventDefault());
filters.addEventListener("change", (event) => {
  const fields = filters.elements;
  if (event.target.name === "reason" && event.target.value && fields.decision.value === "undecided") fields.decision.value = "";
  act(async () => {
    history.replaceState(null, "", address()); // after what is still under way, which may name a pair
    try {
      await reload();
    } catch (error) {
      state.items = []; // these belong to another filter
      state.selected.clear();
      throw error;
    }
  });
});
find("reviewer").addEventListener("change", () => {
  try { localStorage.setItem("reviewer", reviewer()); } catch { /* private windows keep nothing */ }
});

try { find("reviewer").value = localStorage.getItem("reviewer") || ""; } catch { /* as above */ }
act(reload);
flush();
setInterval(() => { if (state.stale) act(async () => { await reload(); state.stale = false; }); }, WAIT);
