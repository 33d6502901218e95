// Ctrl-K palette: the server's list, filtered while typing. "/" focuses a page's filter.
const box = document.getElementById("palette");

async function open() {
  document.querySelector(".side:popover-open")?.hidePopover();
  box.showModal();
  const input = box.querySelector("input");
  input.value = ""; // before the list comes: what is typed meanwhile stays
  input.focus();
  if (!box.querySelector("ul")) {
    const answer = await fetch(box.dataset.from, { headers: { "HX-Request": "true" } });
    if (!answer.ok) return location.reload();
    box.querySelector(".list").innerHTML = await answer.text();
  }
  filter();
}

const shown = () => [...box.querySelectorAll('[role="option"]:not([hidden])')];

function filter() {
  const words = box.querySelector("input").value.toLowerCase().split(/\s+/);
  for (const o of box.querySelectorAll('[role="option"]')) {
    o.hidden = !words.every((w) => o.textContent.toLowerCase().includes(w));
  }
  box.querySelector(".none").hidden = shown().length > 0;
  choose(0);
}

function choose(i) {
  const list = shown();
  const at = list[(i + list.length) % list.length];
  for (const o of box.querySelectorAll('[role="option"]')) o.setAttribute("aria-selected", String(o === at));
  box.querySelector("input").setAttribute("aria-activedescendant", at?.id ?? "");
  at?.scrollIntoView({ block: "nearest" });
}

function go(option) {
  if (option) location.href = option.dataset.href;
}

if (box) {
  box.addEventListener("input", filter);
  box.addEventListener("click", (e) => go(e.target.closest('[role="option"]')));
  box.addEventListener("keydown", (e) => {
    const at = shown().findIndex((o) => o.getAttribute("aria-selected") === "true");
    if (e.key === "ArrowDown") choose(at + 1);
    else if (e.key === "ArrowUp") choose(at - 1);
    else if (e.key === "Enter") go(shown()[at]);
    else return;
    e.preventDefault();
  });
  document.addEventListener("click", (e) => e.target.closest("[data-palette]") && open());
}

document.addEventListener("keydown", (e) => {
  const typing = e.target.closest("input, textarea, select, [contenteditable]");
  if (box && (e.ctrlKey || e.metaKey) && e.key.toLowerCase() === "k") {
    e.preventDefault();
    if (!box.open) open();
  } else if (e.key === "/" && !typing && !e.ctrlKey && !e.metaKey && !e.altKey) {
    const field = document.querySelector("[data-filter]");
    if (field) {
      e.preventDefault();
      field.focus();
    }
  }
});
