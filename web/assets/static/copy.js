// Copy buttons: data-copy names the element whose text is copied. The result is announced politely.
export function say(text) {
  const toast = document.querySelector(".toast");
  toast.textContent = text;
  clearTimeout(say.timer);
  say.timer = setTimeout(() => toast.replaceChildren(), 2500);
}

document.addEventListener("click", async (e) => {
  const button = e.target.closest("[data-copy]");
  if (!button) return;
  const text = document.getElementById(button.dataset.copy).textContent;
  try {
    await navigator.clipboard.writeText(text);
    say("Copied");
  } catch {
    getSelection().selectAllChildren(document.getElementById(button.dataset.copy));
    say("Press Ctrl C to copy the selected text");
  }
});
