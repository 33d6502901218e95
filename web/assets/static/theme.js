// Theme: auto, light or dark, kept in a cookie so that the server draws the right one at once.
document.addEventListener("submit", (e) => {
  if (!e.target.matches("form[data-theme-form]")) return;
  e.preventDefault();
  const choice = e.submitter.value;
  document.cookie = `millrace_theme=${choice}; path=/; max-age=31536000; samesite=lax`;
  if (choice === "auto") document.documentElement.removeAttribute("data-theme");
  else document.documentElement.dataset.theme = choice;
  for (const b of e.target.elements) b.setAttribute("aria-pressed", String(b.value === choice));
});
