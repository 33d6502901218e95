// Chat Completions with the official openai client.
import OpenAI from "openai";
import { zodResponseFormat } from "openai/helpers/zod";
import { both, broken, failures, Forecast, plain, Tries, watched } from "./common.mjs";

export function client(ask, more = {}) {
  return new OpenAI({ baseURL: ask.url + "/v1", apiKey: ask.key, timeout: 120_000, ...more });
}

export function explain(e) {
  return { status: e.status, code: e.code, type: e.type, param: e.param, message: e.message, request: e.requestID };
}

const user = (content) => [{ role: "user", content }];

const tools = (ask) =>
  Object.entries(ask.tools).map(([name, parameters]) => ({ type: "function", function: { name, parameters } }));

function seen(answer, request) {
  const { message, finish_reason: finish } = answer.choices[0];
  const { usage: u } = answer;
  return {
    request,
    text: message.content ?? "",
    reasoning: message.reasoning_content ?? "",
    finish,
    calls: (message.tool_calls ?? []).map((c) => ({ id: c.id, name: c.function.name, arguments: c.function.arguments })),
    usage: {
      prompt: u.prompt_tokens,
      completion: u.completion_tokens,
      cached: u.prompt_tokens_details?.cached_tokens ?? 0,
      reasoning: u.completion_tokens_details?.reasoning_tokens ?? 0,
    },
    answer,
  };
}

async function create(ask, params) {
  const answer = await client(ask).chat.completions.create({ model: ask.model, ...params });
  return seen(answer, answer._request_id);
}

// accumulate streams, and lets the client put the answer together. It knows no reasoning, which is read beside it.
async function accumulate(ask, params) {
  const watch = watched("x-request-id");
  let pieces = 0, reasoning = "";
  const stream = client(ask, { fetch: watch.fetch }).chat.completions.stream({
    model: ask.model, stream_options: { include_usage: true }, ...params,
  });
  for await (const chunk of stream) {
    const delta = chunk.choices[0]?.delta;
    reasoning += delta?.reasoning_content ?? "";
    pieces += delta?.content || delta?.reasoning_content || delta?.tool_calls ? 1 : 0;
  }
  return { ...seen(await stream.finalChatCompletion(), watch.request), reasoning, pieces };
}

// loop is two turns: the model calls both functions, and gets their results.
async function loop(ask, turn) {
  const messages = user("Please call get_weather and get_time.");
  const first = await turn(ask, { messages, tools: tools(ask) });
  messages.push(first.answer.choices[0].message);
  messages.push(...first.calls.map((c) => ({ role: "tool", tool_call_id: c.id, content: "sunny" })));
  return { turns: [plain(first), plain(await turn(ask, { messages, tools: tools(ask) }))] };
}

const shaped = (ask) => ({ messages: user(ask.story), response_format: zodResponseFormat(Forecast, "forecast") });

async function structured(ask) {
  const answer = await client(ask).chat.completions.parse({ model: ask.model, ...shaped(ask) });
  return { ...plain(seen(answer, answer._request_id)), parsed: answer.choices[0].message.parsed };
}

async function structuredStream(ask) {
  const saw = await accumulate(ask, shaped(ask));
  return { ...plain(saw), parsed: saw.answer.choices[0].message.parsed };
}

// leave goes in the middle of an answer.
async function leave(ask) {
  const { data, response } = await client(ask, { baseURL: ask.leave + "/v1" })
    .chat.completions.create({ model: ask.model, messages: user(ask.story), max_tokens: 1500, stream: true, ignore_eos: true })
    .withResponse();
  let pieces = 0;
  for await (const chunk of data) {
    if (chunk.choices[0]?.delta.content && ++pieces === 25) break;
  }
  return { request: response.headers.get("x-request-id"), pieces };
}

async function errors(ask) {
  const tries = new Tries();
  const call = (params, whom = {}) => () =>
    client(ask, { fetch: tries.fetch, ...whom }).chat.completions.create({
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

function picture(ask) {
  return user([{ type: "text", text: ask.story }, { type: "image_url", image_url: { url: ask.image } }]);
}

const pair = (name, params) => both(create, accumulate, name, params);

export const scenarios = {
  ...pair("whole", (ask) => ({ messages: user(ask.story) })),
  ...pair("length", (ask) => ({ messages: user(ask.story), max_tokens: 20 })),
  ...pair("stop", (ask) => ({ messages: user(ask.story), stop: ["question"] })),
  ...pair("think", (ask) => ({ messages: user(ask.story), reasoning_effort: "low" })),
  ...pair("forced", (ask) => ({ messages: user(ask.story), tools: tools(ask), tool_choice: "required" })),
  ...pair("image", (ask) => ({ messages: picture(ask), max_tokens: 20 })),
  tools: (ask) => loop(ask, create),
  "tools stream": (ask) => loop(ask, accumulate),
  structured,
  "structured stream": structuredStream,
  errors,
  broken: (ask) => broken(() => accumulate(ask, { model: ask.broken, messages: user(ask.story) })),
  leave,
  models,
};
