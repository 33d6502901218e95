// Playground: streams through the public endpoint with a short-lived key, like any client. Without this script the
// form posts to the server, which makes the same call whole.
const form = document.getElementById("play");
let abort;

const $ = (id) => document.getElementById(id);

// dollars writes an exact amount of pico-USD, rounded half up to nano for reading.
function dollars(pico) {
  const nano = (pico + 500n) / 1000n;
  return `$${nano / 1000000000n}.${String(nano % 1000000000n).padStart(9, "0")}`;
}

function cost(u, option) {
  const price = (c) => BigInt(option.dataset[c] ?? 0);
  const cached = u.prompt_tokens_details?.cached_tokens ?? 0;
  const thought = u.completion_tokens_details?.reasoning_tokens ?? 0;
  return price("request") + BigInt(u.prompt_tokens - cached) * price("input") + BigInt(cached) * price("cached") +
    BigInt(u.completion_tokens - thought) * price("output") + BigInt(thought) * price("reasoning");
}

function body() {
  const messages = [];
  if ($("system").value.trim()) messages.push({ role: "system", content: $("system").value });
  messages.push({ role: "user", content: $("message").value });
  const b = { model: $("model").value, messages, max_tokens: Number($("max_tokens").value), stream: true,
    stream_options: { include_usage: true } };
  if ($("temperature").value !== "") b.temperature = Number($("temperature").value);
  return b;
}

async function* events(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let buffer = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    buffer += value;
    const lines = buffer.split("\n");
    buffer = lines.pop();
    for (const line of lines) {
      if (line.startsWith("data:") && line.slice(5).trim() !== "[DONE]") yield JSON.parse(line.slice(5));
    }
  }
}

async function problem(answer) {
  const e = (await answer.json().catch(() => ({}))).error;
  return new Error(e?.message ?? `The service answered ${answer.status}.`);
}

async function run() {
  abort = new AbortController();
  const signal = abort.signal;
  const started = performance.now();
  let first, pieces = 0, usage;
  $("said").textContent = "";
  $("thinking").hidden = true;
  $("thinking").textContent = "";
  $("answer").hidden = false;
  const minted = await fetch(form.dataset.key, { method: "POST", signal });
  if (!minted.ok) throw new Error("No key could be made for the playground. Reload the page and try again.");
  const { key } = await minted.json();
  const answer = await fetch(form.dataset.endpoint, { method: "POST", signal, body: JSON.stringify(body()),
    headers: { "content-type": "application/json", authorization: `Bearer ${key}` } });
  if (!answer.ok) throw await problem(answer);
  for await (const e of events(answer.body)) {
    if (e.error) throw new Error(e.error.message);
    const d = e.choices?.[0]?.delta ?? {};
    const thought = d.reasoning_content ?? d.reasoning ?? "";
    if (d.content || thought) {
      first ??= performance.now() - started;
      pieces++;
    }
    if (thought) $("thinking").hidden = false;
    $("thinking").append(thought);
    $("said").append(d.content ?? "");
    if (e.usage) usage = e.usage;
    tally(first, performance.now() - started, pieces, usage);
  }
}

function tally(first, total, pieces, usage) {
  $("t-first").textContent = first === undefined ? "–" : `${Math.round(first)} ms`;
  $("t-rate").textContent = first === undefined || pieces < 2 ? "–" : `${Math.round((pieces - 1) / ((total - first) / 1000))} tokens/s`;
  $("t-out").textContent = usage ? usage.completion_tokens.toLocaleString("en") : `about ${pieces}`;
  $("t-in").textContent = usage ? `${usage.prompt_tokens.toLocaleString("en")} (${usage.prompt_tokens_details?.cached_tokens ?? 0} cached)` : "–";
  $("t-cost").textContent = usage ? dollars(cost(usage, $("model").selectedOptions[0])) : "–";
}

function busy(on) {
  $("stop").hidden = !on;
  $("send").disabled = on;
  $("said").setAttribute("aria-busy", String(on));
}

form?.addEventListener("submit", async (e) => {
  e.preventDefault();
  $("failed").hidden = true;
  busy(true);
  try {
    await run();
  } catch (err) {
    const stopped = err.name === "AbortError";
    $("failed").querySelector("div").textContent = stopped ? "Stopped. What was written until now is billed." : err.message;
    $("failed").hidden = false;
  }
  busy(false);
});
if (form) $("stop").addEventListener("click", () => abort?.abort());
