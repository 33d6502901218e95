// One event stream a page, only while it is seen: browsers allow six connections to a host. Events become DOM events
// on <body> that htmx parts wait for.
const from = document.body.dataset.live;
let stream;

function connect() {
  if (document.hidden) {
    stream?.close();
    stream = undefined;
  } else if (!stream) {
    stream = new EventSource(from);
    for (const name of document.body.dataset.events.split(" ")) {
      stream.addEventListener(name, () => document.body.dispatchEvent(new Event(name)));
    }
  }
}

if (from) {
  connect();
  document.addEventListener("visibilitychange", connect);
}
