"use strict";
// Ask the server: without a body by GET, with a file or an object by POST, perhaps with a limit in milliseconds. An
// error has the server's message and its status. A path has no slash before it: a proxy may serve this below any path.

const BETWEEN = 502; // the status of what a proxy answers in the server's place, such as a page to log in

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

async function ask(path, body, patience = null) {
  const isFile = body instanceof Blob;
  const headers = body && !isFile ? { "Content-Type": "application/json" } : {};
  const options = body ? { method: "POST", headers, body: isFile ? body : JSON.stringify(body) } : {};
  if (patience) options.signal = AbortSignal.timeout(patience);
  const answer = await fetch(path, options);
  const text = await answer.text();
  const content = parsed(text);
  if (answer.ok && content) return content;
  const detail = Array.isArray(content?.detail) ? content.detail.map((part) => `${part.loc.at(-1)}: ${part.msg}`).join("; ") : content?.detail;
  if (detail) throw Object.assign(new Error(detail), { content, status: answer.status });
  const isLine = answer.headers.get("content-type")?.startsWith("text/plain") && text.length < 300;
  const words = isLine ? text : "a proxy answers in the place of pairsift serve: are you still logged in?";
  throw Object.assign(new Error(`${answer.status}: ${words}`), { status: BETWEEN });
}

function newKey() {
  // crypto.randomUUID is missing on pages from another computer without https.
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
