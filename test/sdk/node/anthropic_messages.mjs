// Messages with the official client.
import Anthropic from "@anthropic-ai/sdk";
import { zodOutputFormat } from "@anthropic-ai/sdk/helpers/zod";
import { both, broken, failures, Forecast, plain, Tries, watched } from "./common.mjs";

function client(ask, more = {}) {
  return new Anthropic({ baseURL: ask.url, apiKey: ask.key, timeout: 120_000, ...more });
}

function explain(e) {
  const { type, message } = e.error?.error ?? {};
  return { status: e.status, type, message, request: e.requestID };
}

const user = (content) => [{ role: "user", content }];

const tools = (ask) => Object.entries(ask.tools).map(([name, input_schema]) => ({ name, input_schema }));

// seen counts as the other API does: what was read from the cache is part of the prompt.
function seen(answer, request) {
  const { usage: u, content } = answer;
  const ofType = (type) => content.filter((block) => block.type === type);
  const cached = u.cache_read_input_tokens ?? 0;
  return {
    request,
    text: ofType("text").map((b) => b.text).join(""),
    reasoning: ofType("thinking").map((b) => b.thinking).join(""),
    finish: answer.stop_reason + (answer.stop_sequence ? ": " + answer.stop_sequence : ""),
    calls: ofType("tool_use").map((b) => ({ id: b.id, name: b.name, input: b.input })),
    usage: {
      prompt: u.input_tokens + cached,
      completion: u.output_tokens,
      cached,
      reasoning: u.output_tokens_details?.thinking_tokens ?? 0,
    },
    answer,
  };
}

async function create(ask, params) {
  const answer = await client(ask).messages.create({ model: ask.model, max_tokens: 2000, ...params });
  return seen(answer, answer._request_id);
}

// accumulate streams, and lets the client put the answer together.
async function accumulate(ask, params) {
  const stream = client(ask).messages.stream({ model: ask.model, max_tokens: 2000, ...params });
  let pieces = 0;
  for await (const event of stream) pieces += event.type === "content_block_delta" ? 1 : 0;
  return { ...seen(await stream.finalMessage(), stream.request_id), pieces };
}

// loop is two turns: the model thinks and calls both functions, and gets their results.
async function loop(ask, turn) {
  const messages = user("Please call get_weather and get_time.");
  const settings = { tools: tools(ask), thinking: { type: "enabled", budget_tokens: 1024 } };
  const first = await turn(ask, { messages, ...settings });
  const { content } = first.answer;
  messages.push({ role: "assistant", content });
  messages.push(...user(first.calls.map((c) => ({ type: "tool_result", tool_use_id: c.id, content: "sunny" }))));
  const sealed = content.every((b) => b.type !== "thinking" || b.signature);
  return { turns: [plain(first), plain(await turn(ask, { messages, ...settings }))], sealed };
}

const shaped = (ask) => ({ messages: user(ask.story), output_config: { format: zodOutputFormat(Forecast) } });

async function structured(ask) {
  const watch = watched("request-id");
  const answer = await client(ask, { fetch: watch.fetch }).messages.parse({ model: ask.model, max_tokens: 500, ...shaped(ask) });
  return { ...plain(seen(answer, watch.request)), parsed: answer.parsed_output };
}

async function structuredStream(ask) {
  const saw = await accumulate(ask, shaped(ask));
  return { ...plain(saw), parsed: saw.answer.parsed_output };
}

// leave goes in the middle of an answer.
async function leave(ask) {
  const { data, response } = await client(ask, { baseURL: ask.leave })
    .messages.create({
      model: ask.model, messages: user(ask.story), max_tokens: 1500, stream: true,
      thinking: { type: "adaptive" }, output_config: { effort: "max" },
    })
    .withResponse();
  let pieces = 0;
  for await (const event of data) {
    if (event.type === "content_block_delta" && ++pieces === 25) break;
  }
  return { request: response.headers.get("request-id"), pieces };
}

async function errors(ask) {
  const tries = new Tries();
  const call = (params, whom = {}) => () =>
    client(ask, { fetch: tries.fetch, ...whom }).messages.create({
      model: ask.model, messages: user(ask.story), max_tokens: 60, ...params,
    });
  const long = { model: ask.small, messages: user(ask.too_long) };
  return failures(tries, explain, {
    bad_key: call({}, { apiKey: "mr_live_nobody" }),
    no_model: call({ model: "acme/none" }),
    no_credit: call({}, { apiKey: ask.poor_key }),
    overflow: call(long),
    overflow_stream: call({ ...long, stream: true }),
    bad_value: call({ temperature: 9 }),
  });
}

async function models(ask) {
  const all = [];
  for await (const m of client(ask).models.list()) all.push(m.id);
  return { models: all, model: (await client(ask).models.retrieve(ask.model)).id };
}

// count asks what a prompt will be billed as, and then what it is.
async function count(ask) {
  const params = { messages: user("Please call get_weather."), tools: tools(ask), system: "You are a miller." };
  const { input_tokens: counted } = await client(ask).messages.countTokens({ model: ask.model, ...params });
  return { counted, ...plain(await create(ask, params)) };
}

// bearer gives the key as a token.
async function bearer(ask) {
  const made = client(ask, { apiKey: null, authToken: ask.key });
  const answer = await made.messages.create({ model: ask.model, max_tokens: 10, messages: user(ask.story) });
  return plain(seen(answer, answer._request_id));
}

function picture(ask) {
  const [media_type, data] = ask.image.slice("data:".length).split(";base64,");
  return user([{ type: "text", text: ask.story }, { type: "image", source: { type: "base64", media_type, data } }]);
}

const pair = (name, params) => both(create, accumulate, name, params);

export const scenarios = {
  ...pair("whole", (ask) => ({ messages: user(ask.story) })),
  ...pair("length", (ask) => ({ messages: user(ask.story), max_tokens: 20 })),
  ...pair("stop", (ask) => ({ messages: user(ask.story), stop_sequences: ["question"] })),
  ...pair("think", (ask) => ({ messages: user(ask.story), thinking: { type: "enabled", budget_tokens: 1024 } })),
  ...pair("forced", (ask) => ({ messages: user(ask.story), tools: tools(ask), tool_choice: { type: "any" } })),
  ...pair("image", (ask) => ({ messages: picture(ask), max_tokens: 20 })),
  tools: (ask) => loop(ask, create),
  "tools stream": (ask) => loop(ask, accumulate),
  structured,
  "structured stream": structuredStream,
  bearer,
  errors,
  broken: (ask) => broken(() => accumulate(ask, { model: ask.broken, messages: user(ask.story) })),
  leave,
  models,
  count,
};
