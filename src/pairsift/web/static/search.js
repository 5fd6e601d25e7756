"use strict";
// The search page: images for a text or like a pair's image, captions for an image file.

const STEPS = [24, 48, 96, 200];
const find = (id) => document.getElementById(id);
const { images, maxUpload } = document.querySelector("main").dataset;
const state = { query: null, step: 0, ticket: 0 };

function show(error) {
  const lost = error instanceof TypeError;
  find("message").textContent = lost ? "pairsift serve does not answer: is it still running?" : error ? error.message : "";
}

const kinds = {
  text: { path: (query, k) => `api/search?${new URLSearchParams({ text: query.text, k })}`, title: (query) => `images for “${query.text}”` },
  like: { path: (query, k) => `api/like/${query.like}?k=${k}`, title: (query) => `images like the image of pair ${query.like}` },
  file: { path: (query, k) => `api/search/image?k=${k}`, title: (query) => `captions for ${query.file.name}` },
};

async function search() {
  const { query, step } = state;
  const ticket = ++state.ticket;
  const kind = kinds[Object.keys(query)[0]];
  find("status").textContent = `Searching ${kind.title(query)} …`;
  show(null);
  try {
    const { results, recall } = await ask(kind.path(query, STEPS[step]), query.file);
    if (ticket !== state.ticket) return;
    find("results").replaceChildren(...results.map(card));
    find("status").textContent = `${results.length} ${kind.title(query)}${recall && ` · ${recall}`}`;
    find("more").hidden = results.length < STEPS[step] || step + 1 === STEPS.length;
  } catch (error) {
    if (ticket !== state.ticket) return;
    find("results").replaceChildren();
    find("status").textContent = "";
    find("more").hidden = true;
    show(error);
  }
}

function start(query, address) {
  Object.assign(state, { query, step: 0 });
  if (!query.file && find("file")) find("file").value = "";
  if (!query.text) find("text").value = "";
  if (address !== undefined) history.pushState(null, "", address);
  preview(query);
  search();
}

function element(name, content, className) {
  const made = document.createElement(name);
  if (content !== undefined) made.textContent = content;
  if (className) made.className = className;
  return made;
}

function percent(value) {
  if (value < 0.0001) return "under 0.01%";
  if (value > 0.9999) return "over 99.99%";
  return `${(100 * value).toFixed(value < 0.01 || value > 0.99 ? 2 : 1)}%`;
}

function picture(pair, alt) {
  const image = element("img");
  image.src = `image/${pair}?size=small`;
  image.alt = alt;
  image.loading = "lazy";
  return image;
}

function card(result) {
  const item = element("li");
  const links = element("p", undefined, "links");
  const parts = [`score ${result.score.toFixed(3)}`, result.image];
  if (result.match_probability !== null) parts.push(`match ${percent(result.match_probability)}`);
  if (result.decision) parts.push(result.decision);
  if (result.pair !== null) {
    if (images === "yes") item.append(picture(result.pair, `image of pair ${result.pair}`));
    const like = element("button", "More like this");
    like.type = "button";
    like.dataset.like = result.pair;
    links.append(like);
  }
  if (result.judged) {
    const review = element("a", `Review pair ${result.pair}`);
    review.href = `./?pair=${result.pair}&decision=`;
    links.append(review);
  }
  item.append(element("p", result.caption ?? "", "caption"), element("p", parts.join(" · "), "small"), links);
  return item;
}

async function preview(query) {
  const box = find("query");
  box.replaceChildren();
  box.hidden = true;
  if (query.like && images === "yes") {
    box.append(picture(query.like, `image of pair ${query.like}`));
    box.hidden = false;
  }
  if (!query.file) return;
  const bitmap = await createImageBitmap(query.file, { resizeWidth: 240, resizeQuality: "medium" }).catch(() => null);
  if (!bitmap || state.query !== query) return;
  const canvas = element("canvas");
  canvas.width = bitmap.width;
  canvas.height = bitmap.height;
  canvas.getContext("2d").drawImage(bitmap, 0, 0);
  box.append(canvas);
  box.hidden = false;
}

find("by-text").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = find("text").value.trim();
  if (text) start({ text }, `?${new URLSearchParams({ text })}`);
});
find("file")?.addEventListener("change", () => {
  const [file] = find("file").files;
  if (!file) return;
  if (file.size > Number(maxUpload)) return show(new Error(`the image has more than ${Number(maxUpload).toLocaleString()} bytes: choose a smaller one`));
  start({ file }, location.pathname);
});
find("results").addEventListener("click", (event) => {
  const pair = event.target.dataset.like;
  if (pair === undefined) return;
  scrollTo(0, 0);
  start({ like: pair }, `?like=${pair}`);
});
find("more").addEventListener("click", () => {
  state.step += 1;
  search();
});

function open() {
  const wanted = new URLSearchParams(location.search);
  const like = wanted.get("like");
  find("text").value = wanted.get("text") || "";
  if (/^\d+$/.test(like || "")) start({ like });
  else if (find("text").value.trim()) start({ text: find("text").value.trim() });
  else {
    state.ticket += 1;
    find("results").replaceChildren();
    find("status").textContent = "";
    find("query").hidden = find("more").hidden = true;
  }
}
addEventListener("popstate", open);

// Text and files that were entered before this script was loaded are kept.
const draft = location.search ? "" : find("text").value;
open();
if (draft) find("text").value = draft;
if (find("file")?.files.length) find("file").dispatchEvent(new Event("change"));
