// Playground: streams through the public endpoint with a short-lived key, like any client. Without it the form posts.
const form = document.getElementById("play");
const $ = (id) => document.getElementById(id);
let abort;

// dollars writes an exact amount of pico-USD, rounded half to even to nano as the rating does.
function dollars(pico) {
  let nano = pico / 1000n;
  const rest = pico % 1000n;
  if (rest > 500n || (rest === 500n && nano % 2n)) nano++;
  return `$${nano / 1000000000n}.${String(nano % 1000000000n).padStart(9, "0")}`;
}

function cost(u, price) {
  const cached = u.prompt_tokens_details?.cached_tokens ?? 0;
  const thought = u.completion_tokens_details?.reasoning_tokens ?? 0;
  const counts = { request: 1, input: u.prompt_tokens - cached, cached, output: u.completion_tokens - thought, reasoning: thought };
  return Object.entries(counts).reduce((sum, [c, n]) => sum + BigInt(n) * BigInt(price[c]), 0n);
}

function body() {
  const messages = [{ role: "user", content: $("message").value }];
  if ($("system").value.trim()) messages.unshift({ role: "system", content: $("system").value });
  const temperature = $("temperature").value;
  return JSON.stringify({ model: $("model").value, messages, max_tokens: Number($("max_tokens").value), stream: true,
    stream_options: { include_usage: true }, ...(temperature && { temperature: Number(temperature) }) });
}

async function* events(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let buffer = "";
  for (let r; !(r = await reader.read()).done; ) {
    const lines = (buffer + r.value).split("\n");
    buffer = lines.pop();
    for (const line of lines) {
      if (/^data: ?{/.test(line)) yield JSON.parse(line.slice(5));
    }
  }
}

async function post(url, signal, init) {
  const answer = await fetch(url, { method: "POST", signal, ...init });
  if (answer.ok) return answer;
  const e = (await answer.json().catch(() => ({}))).error;
  throw new Error(e?.message ?? `The service answered ${answer.status}. Reload the page and try again.`);
}

async function run(signal) {
  let first, usage, pieces = 0;
  for (const id of ["said", "thinking"]) $(id).textContent = "";
  $("thinking").hidden = true;
  $("answer").hidden = false;
  const { key } = await (await post(form.dataset.key, signal)).json();
  const started = performance.now();
  const answer = await post(form.dataset.endpoint, signal, { body: body(), headers: { "content-type": "application/json", authorization: `Bearer ${key}` } });
  for await (const e of events(answer.body)) {
    if (e.error) throw new Error(e.error.message);
    const d = e.choices?.[0]?.delta ?? {};
    const thought = d.reasoning_content ?? d.reasoning ?? "";
    if ((d.content || thought) && !pieces++) first = performance.now() - started;
    if (thought) $("thinking").hidden = false;
    $("thinking").append(thought);
    $("said").append(d.content ?? "");
    usage = e.usage ?? usage;
    tally(first, performance.now() - started, pieces, usage);
  }
}

function tally(first, total, pieces, usage) {
  const set = (id, text) => ($(id).textContent = text);
  set("t-first", first ? `${Math.round(first)} ms` : "–");
  set("t-rate", pieces > 1 ? `${Math.round((pieces - 1) / ((total - first) / 1000))} tokens/s` : "–");
  set("t-out", usage ? usage.completion_tokens.toLocaleString("en") : `about ${pieces}`);
  set("t-in", usage ? `${usage.prompt_tokens.toLocaleString("en")} (${usage.prompt_tokens_details?.cached_tokens ?? 0} cached)` : "–");
  set("t-cost", usage ? dollars(cost(usage, $("model").selectedOptions[0].dataset)) : "–");
}

function busy(on) {
  $("stop").hidden = !on;
  $("send").disabled = on;
}

form?.addEventListener("submit", async (e) => {
  e.preventDefault();
  $("failed").hidden = true;
  busy(true);
  abort = new AbortController();
  try {
    await run(abort.signal);
  } catch (err) {
    $("failed").querySelector("div").textContent = err.name === "AbortError" ? "Stopped. What was written until now is billed." : err.message;
    $("failed").hidden = false;
  }
  busy(false);
});
if (form) $("stop").addEventListener("click", () => abort?.abort());
