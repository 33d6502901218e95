// Asks Millrace what customers ask, with Vercel's AI SDK, and prints what it saw: one JSON object per scenario.
//
// usage: node ai.mjs chat|"compatible chat"|responses|messages ASK, where ASK is a JSON object (see sdk_test.go)
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { APICallError, generateText, jsonSchema, Output, streamText, tool } from "ai";
import { both, broken, failures, Forecast, plain, play, Tries, watched } from "./common.mjs";

globalThis.AI_SDK_LOG_WARNINGS = false; // it does not know the models' names

const api = process.argv[2];

const openai = (settings) => createOpenAI({ ...settings, baseURL: settings.url + "/v1" });
const models = {
  chat: (s, id) => openai(s).chat(id),
  responses: (s, id) => openai(s).responses(id),
  "compatible chat": (s, id) =>
    createOpenAICompatible({ ...s, name: "millrace", baseURL: s.url + "/v1", includeUsage: true, supportsStructuredOutputs: true })(id),
  messages: (s, id) => createAnthropic({ ...s, baseURL: s.url + "/v1" })(id),
};

const thinking = {
  "compatible chat": { millrace: { reasoningEffort: "low" } },
  responses: { openai: { reasoningEffort: "low", reasoningSummary: "auto", forceReasoning: true } },
  messages: { anthropic: { thinking: { type: "enabled", budgetTokens: 1024 } } },
}[api];

const thinkingLong = {
  ...thinking,
  responses: { openai: { reasoningEffort: "xhigh", reasoningSummary: "auto", forceReasoning: true } },
  messages: { anthropic: { thinking: { type: "enabled", budgetTokens: 16000 } } },
}[api];

const header = api === "messages" ? "request-id" : "x-request-id";

function model(ask, more = {}) {
  const { id = ask.model, ...settings } = more;
  return models[api]({ url: ask.url, apiKey: ask.key, ...settings }, id);
}

const tools = (ask, execute) =>
  Object.fromEntries(
    Object.entries(ask.tools).map(([name, schema]) => [name, tool({ inputSchema: jsonSchema(schema), ...(execute && { execute }) })]),
  );

function seen(step) {
  const { usage: u } = step;
  return {
    request: step.response.headers[header],
    text: step.text,
    reasoning: step.reasoningText ?? "",
    finish: step.finishReason,
    calls: step.toolCalls.map((c) => ({ id: c.toolCallId, name: c.toolName, input: c.input })),
    usage: {
      prompt: u.inputTokens,
      completion: u.outputTokens,
      cached: u.inputTokenDetails?.cacheReadTokens ?? 0,
      reasoning: u.outputTokenDetails?.reasoningTokens ?? 0,
    },
  };
}

async function create(ask, params) {
  const result = await generateText({ model: model(ask), ...params });
  return { ...seen(result.steps[0]), answer: result };
}

const deltas = ["text-delta", "reasoning-delta", "tool-input-delta"];

// accumulate streams, and lets the client put the answer together.
async function accumulate(ask, params) {
  const result = streamText({ model: model(ask), onError: () => {}, ...params });
  const pieces = []; // of each step
  for await (const part of result.fullStream) {
    if (part.type === "error") throw part.error;
    if (part.type === "start-step") pieces.push(0);
    if (deltas.includes(part.type)) pieces[pieces.length - 1]++;
  }
  const steps = await result.steps;
  return { ...seen(steps[0]), pieces: pieces[0], answer: { steps, pieces, output: await result.output } };
}

// loop lets the client run the functions itself: two steps.
async function loop(ask, turn) {
  const { answer } = await turn(ask, {
    prompt: "Please call get_weather and get_time.",
    tools: tools(ask, async () => "sunny"),
    stopWhen: ({ steps }) => steps.length === 2,
  });
  return { turns: answer.steps.map((step, i) => ({ ...seen(step), pieces: answer.pieces?.[i] })) };
}

const structured = (turn) => async (ask) => {
  const saw = await turn(ask, { prompt: ask.story, output: Output.object({ schema: Forecast }) });
  return { ...plain(saw), parsed: saw.answer.output };
};

// leave goes in the middle of an answer.
async function leave(ask) {
  const gone = new AbortController();
  const watch = watched(header);
  let pieces = 0;
  const result = streamText({
    model: model(ask, { url: ask.leave, fetch: watch.fetch }), prompt: ask.story, providerOptions: thinkingLong, abortSignal: gone.signal, onError: () => {},
  });
  for await (const part of result.fullStream) {
    if (deltas.includes(part.type) && ++pieces === 25) gone.abort();
  }
  return { request: watch.request, pieces };
}

function explain(e) {
  if (!APICallError.isInstance(e)) throw e;
  const { error } = JSON.parse(e.responseBody);
  return { status: e.statusCode, ...error, message: e.message, request: e.responseHeaders[header] };
}

async function errors(ask) {
  const tries = new Tries();
  const call = (more, params = {}) => () =>
    generateText({ model: model(ask, { fetch: tries.fetch, ...more }), prompt: ask.story, maxOutputTokens: 60, ...params });
  const streamed = (more, params) => async () => {
    const result = streamText({ model: model(ask, { fetch: tries.fetch, ...more }), ...params, onError: () => {} });
    for await (const part of result.fullStream) if (part.type === "error") throw part.error;
  };
  const long = [{ id: ask.small }, { prompt: ask.too_long, maxOutputTokens: 60 }];
  return failures(tries, explain, {
    bad_key: call({ apiKey: "mr_live_nobody" }),
    no_model: call({ id: "acme/none" }),
    no_credit: call({ apiKey: ask.poor_key }),
    overflow: call(...long),
    overflow_stream: streamed(...long),
    ...(api === "messages" ? {} : { bad_value: call({}, { temperature: 9 }) }), // this client cuts it down to 1
    ...(api === "responses" && { no_previous: call({}, { providerOptions: { openai: { previousResponseId: "resp_none" } } }) }),
  });
}

function picture(ask) {
  return [{ role: "user", content: [{ type: "text", text: ask.story }, { type: "image", image: ask.image }] }];
}

const pair = (name, params) => both(create, accumulate, name, params);

const scenarios = {
  ...pair("whole", (ask) => ({ prompt: ask.story })),
  ...pair("length", (ask) => ({ prompt: ask.story, maxOutputTokens: 20 })),
  ...(api !== "responses" && pair("stop", (ask) => ({ prompt: ask.story, stopSequences: ["question"] }))),
  ...(api !== "chat" && pair("think", (ask) => ({ prompt: ask.story, providerOptions: thinking }))), // not shown there
  ...pair("forced", (ask) => ({ prompt: ask.story, tools: tools(ask), toolChoice: "required" })),
  ...pair("image", (ask) => ({ messages: picture(ask), maxOutputTokens: 20 })),
  tools: (ask) => loop(ask, create),
  "tools stream": (ask) => loop(ask, accumulate),
  structured: structured(create),
  "structured stream": structured(accumulate),
  errors,
  broken: (ask) => broken(() => accumulate(ask, { model: model(ask, { id: ask.broken }), prompt: ask.story, maxOutputTokens: 500 })),
  leave,
};

await play(scenarios, JSON.parse(process.argv[3]));
