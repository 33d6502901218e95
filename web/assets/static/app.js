// The console's own script: small modules, each of which only improves a page that works without it.
import "./theme.js";
import "./copy.js";
import "./dialog.js";
import "./palette.js";
import "./time.js";
import "./live.js";
import "./playground.js";

document.documentElement.classList.add("js");

// A notice that came with a redirect (?done=…) must not come back on reload.
const here = new URL(location.href);
if (here.searchParams.has("done")) {
  here.searchParams.delete("done");
  history.replaceState(null, "", here);
}
const toast = document.querySelector(".toast");
if (toast?.textContent.trim()) setTimeout(() => toast.replaceChildren(), 8000);

// Filters apply as soon as a choice is made; the button stays for those who use it.
document.addEventListener("change", (e) => {
  if (e.target.matches("form[data-auto] select")) e.target.form.requestSubmit();
});
