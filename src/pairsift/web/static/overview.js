"use strict";
// Keep the numbers and the histogram up to date while others decide.

const PAUSE = 5000; // milliseconds

async function update() {
  if (document.visibilityState !== "visible") return;
  const answer = await fetch("overview").catch(() => null);
  if (!answer || !answer.ok) return;
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const [old, fresh] = [document, page].map((side) => side.getElementById("live"));
  if (fresh && fresh.innerHTML !== old.innerHTML && !old.contains(document.activeElement)) old.replaceWith(fresh);
}

setInterval(update, PAUSE);
document.addEventListener("visibilitychange", update);
