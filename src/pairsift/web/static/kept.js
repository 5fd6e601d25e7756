"use strict";
// Captions and decisions that the server does not have yet, kept in the browser under the id of the run.

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

// Captions that are not saved yet, by pair.
const drafts = {
  of: (pair) => Object.fromEntries(store.all("draft"))[pair],
  keep(pair, text, original) {
    if (text.trim() && text !== original) store.set("draft", pair, text);
    else store.remove("draft", pair);
  },
  remove: (pair) => store.remove("draft", pair),
  pairs: () => store.all("draft").map(([pair]) => Number(pair)).sort((a, b) => a - b),
};

// Decisions that the server may not have yet, the oldest first. They are kept before they are sent. Each has a key:
// the server records a key once, however often it is sent.
const outbox = store.all("unsent").map(([, entry]) => entry).sort((a, b) => a.number - b.number);
let sending = false;
let trouble = null; // why the last one did not reach the server
let answered = 0; // the number of those that the server has answered

function isRefused(error) {
  // The server has looked at the request and will not do it. All else may still reach it.
  return error.status === 409 || error.status === 422;
}

async function post({ body, key }) {
  const unsure = body.decisions.find((one) => one.seen === UNKNOWN);
  if (unsure) throw Object.assign(new Error(`pair ${unsure.pair}: the answer before this one was not recorded; look again`), { status: 409 });
  return ask("api/decisions", { ...body, run: RUN, key }, PATIENCE);
}

function dequeue(entry) {
  const place = outbox.indexOf(entry);
  if (place >= 0) outbox.splice(place, 1);
  answered += 1;
  store.remove("unsent", entry.key);
}

async function submit(body, typed = false) {
  // Return the answer of the server; null where the decisions are kept, to be sent when it answers again.
  const entry = { body, typed, key: newKey(), number: Math.max(Date.now(), (outbox.at(-1)?.number ?? 0) + 1) };
  outbox.push(entry);
  store.set("unsent", entry.key, entry);
  return sending ? null : flush(entry);
}

async function flush(own = null) {
  // Send what is kept, one after the other, until the server does not answer. Return the answer to one of them.
  if (sending || !outbox.length) return null;
  sending = true;
  try {
    while (outbox.length) {
      const [entry] = outbox;
      let answer;
      try {
        answer = await post(entry);
      } catch (error) {
        if (!isRefused(error)) {
          trouble = error;
          return null;
        }
        dequeue(entry);
        if (entry === own) throw error;
        keepRefused(entry, error);
        await refuse(entry, error).catch(show); // what is shown of the pair may be old
        continue;
      }
      trouble = null;
      dequeue(entry);
      noteTime(answer);
      if (entry === own) return answer;
      await settle(entry, answer).catch(show);
    }
    return null;
  } finally {
    sending = false;
    drawKept();
  }
}

function noteTime(answer) {
  // The next answer to each of these pairs was given in sight of this one; those behind it saw the next one.
  const pairs = new Set(answer.pairs);
  for (const other of outbox) {
    for (const one of other.body.decisions) {
      if (pairs.delete(one.pair) && one.seen === UNKNOWN) one.seen = answer.time;
    }
    store.set("unsent", other.key, other);
  }
}

function keepRefused(entry, error) {
  // Say of each pair what was not recorded until the person has seen it; a typed caption is a draft again.
  for (const { pair, choice, caption } of entry.body.decisions) {
    const words = caption === null ? choice : `new caption “${caption}”`;
    store.set("refused", `${entry.key} ${pair}`, { pair, words, why: error.message });
    if (entry.typed && !drafts.of(pair)) drafts.keep(pair, caption);
  }
}

function forgetRefused(pairs) {
  for (const [key, { pair }] of store.all("refused")) {
    if (pairs.includes(pair)) store.remove("refused", key);
  }
}

function unsent() {
  // The decision of the last kept answer on each pair.
  const found = new Map();
  for (const { body } of outbox) {
    for (const one of body.decisions) {
      found.set(one.pair, {
        decision: one.choice, new_caption: one.caption, from_pair: one.from_pair, reason: one.reason,
        reviewer: body.reviewer, time: UNKNOWN, unsent: true,
      });
    }
  }
  return found;
}

function linkTo(pair) {
  return Object.assign(document.createElement("a"), { href: `./?decision=&pair=${pair}`, textContent: `pair ${pair}` });
}

function drawKept() {
  const n = trouble ? outbox.length : 0;
  const why = trouble?.status ? ` (${trouble.message})` : "";
  document.getElementById("kept-answers").textContent = n ? `${n} answer${n > 1 ? "s are" : " is"} not saved: pairsift serve does not ` +
    `answer${why}. ${n > 1 ? "They are" : "It is"} kept in this browser and sent as soon as it does.` : "";
  const links = drafts.pairs().map(linkTo);
  const typed = links.length ? ["Typed and not saved: ", ...links.flatMap((link, place) => (place ? [", ", link] : [link]))] : [];
  document.getElementById("kept-captions").replaceChildren(...typed);
  const refused = store.all("refused").map(([, one]) => one);
  const lines = refused.slice(0, 5).flatMap(({ pair, words, why }) => [`${words} of `, linkTo(pair), ` (${why}); `]);
  const more = refused.length > 5 ? [`and ${refused.length - 5} more. `] : [];
  document.getElementById("kept-refused").replaceChildren(...(refused.length ? ["Not recorded: ", ...lines, ...more] : []));
  document.getElementById("kept-dismiss").hidden = !refused.length;
  document.getElementById("kept").hidden = !n && !links.length && !refused.length;
}

document.getElementById("kept-dismiss").addEventListener("click", () => {
  forgetRefused(store.all("refused").map(([, { pair }]) => pair));
  drawKept();
});
const retry = () => { flush(); };
setInterval(retry, WAIT);
addEventListener("online", retry);
document.addEventListener("visibilitychange", retry);
addEventListener("beforeunload", (event) => { if (memory.size || (outbox.length && !lasting)) event.preventDefault(); });
