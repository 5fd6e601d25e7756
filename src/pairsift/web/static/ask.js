"use strict";
// Ask the server: without a body by GET, with a file or an object by POST, perhaps with a limit in milliseconds. An
// error has the server's message and its status. A path has no slash before it: a proxy may serve this below any path.

async function ask(path, body, patience = null) {
  const isFile = body instanceof Blob;
  const headers = body && !isFile ? { "Content-Type": "application/json" } : {};
  const options = body ? { method: "POST", headers, body: isFile ? body : JSON.stringify(body) } : {};
  if (patience) options.signal = AbortSignal.timeout(patience);
  const answer = await fetch(path, options);
  const refused = answer.headers.get("content-type")?.startsWith("text/plain"); // in a line without JSON
  const content = refused ? { detail: await answer.text() } : await answer.json().catch(() => ({}));
  if (!answer.ok) {
    const detail = Array.isArray(content.detail) ? content.detail.map((part) => `${part.loc.at(-1)}: ${part.msg}`).join("; ") : content.detail;
    throw Object.assign(new Error(detail || `the server answered ${answer.status}`), { content, status: answer.status });
  }
  return content;
}

function newKey() {
  // crypto.randomUUID is missing on pages from another computer without https.
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
