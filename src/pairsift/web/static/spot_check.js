"use strict";

document.getElementById("draw")?.addEventListener("submit", async (event) => {
  event.preventDefault();
  const answered = Number(event.target.dataset.answered);
  const text = `The ${answered} answers so far no longer count for the result; the decisions stay. Draw new pairs?`;
  if (answered && !confirm(text)) return;
  const pairs = Number(new FormData(event.target).get("pairs"));
  try {
    await ask("api/spot-check", { pairs });
    location.assign("./?sample=1&decision=undecided&order=random");
  } catch (error) {
    document.getElementById("message").textContent = error.message;
  }
});
