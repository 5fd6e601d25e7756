"use strict";
// What a person typed or answered and the server does not have yet: kept in the browser, under the id of the run.

const RUN = document.querySelector("main").dataset.run;
const WAIT = 3000; // milliseconds until answers are sent again
const PATIENCE = 20000; // milliseconds that the server may take for an answer
const UNKNOWN = "unknown"; // the time of a decision that the server may not have yet

const memory = new Map(); // where the browser keeps nothing, as in some private windows
let lasting = true;
const store = {
  name: (kind, key) => `pairsift ${RUN} ${kind} ${key}`,
  all(kind) {
    const start = store.name(kind, "");
    let kept = [];
    try {
      kept = Object.entries(localStorage);
    } catch {
      lasting = false;
    }
    return [...kept, ...memory].filter(([name]) => name.startsWith(start)).map(([name, value]) => [name.slice(start.length), JSON.parse(value)]);
  },
  set(kind, key, value) {
    try {
      localStorage.setItem(store.name(kind, key), JSON.stringify(value));
    } catch {
      lasting = false;
      memory.set(store.name(kind, key), JSON.stringify(value));
    }
  },
  remove(kind, key) {
    try {
      localStorage.removeItem(store.name(kind, key));
    } catch { /* as above */ }
    memory.delete(store.name(kind, key));
  },
};

// Captions that are typed and not saved, by pair.
const drafts = {
  of: (pair) => Object.fromEntries(store.all("draft"))[pair],
  keep(pair, text, original) {
    if (text.trim() && text !== original) store.set("draft", pair, text);
    else store.remove("draft", pair);
  },
  remove: (pair) => store.remove("draft", pair),
  pairs: () => store.all("draft").map(([pair]) => Number(pair)).sort((a, b) => a - b),
};

// Requests that did not reach the server, in the order in which they were made. Each has a key, by which the server
// does it once however often it is sent.
const outbox = store.all("unsent").map(([, entry]) => entry).sort((a, b) => a.number - b.number);
let sending = false;
let trouble = null; // why the last request did not reach the server

function isRefused(error) {
  // The server has looked at the request and will not do it. All else may still reach it.
  return error.status === 409 || error.status === 422 || error.status === 404;
}

async function post(entry) {
  const unsure = entry.body.decisions?.find((one) => one.seen === UNKNOWN);
  if (unsure) throw Object.assign(new Error(`pair ${unsure.pair}: the answer before this one was not recorded; look again`), { status: 409 });
  return ask(entry.path, { ...entry.body, run: RUN, key: entry.key }, PATIENCE);
}

function enqueue(entry) {
  const last = outbox.at(-1);
  outbox.push(Object.assign(entry, { number: last ? last.number + 1 : Date.now() }));
  store.set("unsent", entry.key, entry);
}

function dequeue(entry) {
  outbox.splice(outbox.indexOf(entry), 1);
  store.remove("unsent", entry.key);
}

async function submit(path, body, typed = false) {
  // Return the answer of the server; null where the request is kept, to be sent when it answers again.
  const entry = { path, body, typed, key: newKey() };
  if (outbox.length || sending) {
    enqueue(entry);
    flush();
    return null;
  }
  try {
    return await post(entry);
  } catch (error) {
    if (isRefused(error)) throw error;
    trouble = error;
    enqueue(entry);
    drawKept();
    return null;
  }
}

async function flush() {
  // Send what is kept, one after the other, until the server does not answer.
  if (sending || !outbox.length) return;
  sending = true;
  trouble = null;
  while (outbox.length && !trouble) {
    const [entry] = outbox;
    try {
      const answer = await post(entry);
      dequeue(entry);
      for (const other of outbox) {
        for (const one of other.body.decisions ?? []) {
          if (one.seen === UNKNOWN && answer.pairs?.includes(one.pair)) one.seen = answer.time;
        }
        store.set("unsent", other.key, other);
      }
      await settle(entry, answer);
    } catch (error) {
      if (!isRefused(error)) {
        trouble = error;
        break;
      }
      dequeue(entry);
      if (entry.typed) drafts.keep(entry.body.decisions[0].pair, entry.body.decisions[0].caption);
      await refuse(entry, error);
    }
  }
  sending = false;
  drawKept();
}

function unsent() {
  // The decision of the last kept request on each pair.
  const found = new Map();
  for (const { body } of outbox) {
    for (const one of body.decisions ?? []) {
      found.set(one.pair, {
        decision: one.choice, new_caption: one.caption, from_pair: one.from_pair, reason: one.reason,
        reviewer: body.reviewer, time: UNKNOWN, unsent: true,
      });
    }
  }
  return found;
}

function drawKept() {
  const lines = [];
  if (outbox.length) {
    const n = outbox.length;
    const why = trouble?.status ? ` (${trouble.message})` : "";
    lines.push(`${n} answer${n > 1 ? "s are" : " is"} not saved: pairsift serve does not answer${why}. ` +
      `${n > 1 ? "They are" : "It is"} kept in this browser and sent as soon as it does.`);
  }
  const pairs = drafts.pairs();
  const text = document.getElementById("kept-answers");
  text.textContent = lines.join(" ");
  const links = pairs.map((pair) => Object.assign(document.createElement("a"), { href: `/?decision=&pair=${pair}`, textContent: `pair ${pair}` }));
  const typed = document.getElementById("kept-captions");
  typed.replaceChildren(...(pairs.length ? ["Typed and not saved: ", ...links.flatMap((link, place) => (place ? [", ", link] : [link]))] : []));
  document.getElementById("kept").hidden = !lines.length && !pairs.length;
}

setInterval(flush, WAIT);
addEventListener("online", flush);
document.addEventListener("visibilitychange", flush);
addEventListener("beforeunload", (event) => { if (outbox.length && !lasting) event.preventDefault(); });
