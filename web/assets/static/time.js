// Times are printed by the server in the organization's zone; the title adds the reader's own.
const format = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "long" });

function localise() {
  for (const t of document.querySelectorAll("time:not([data-local])")) {
    t.dataset.local = "";
    t.title += ` · here: ${format.format(new Date(t.dateTime))}`;
  }
}
localise();
document.addEventListener("htmx:load", localise);
