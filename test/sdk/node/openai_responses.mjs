// Responses with the official openai client.
import { zodTextFormat } from "openai/helpers/zod";
import { NotFoundError } from "openai";
import { both, broken, failures, Forecast, plain, Tries, watched } from "./common.mjs";
import { client, explain } from "./openai_chat.mjs";

const tools = (ask) =>
  Object.entries(ask.tools).map(([name, parameters]) => ({ type: "function", name, parameters, strict: false }));

function seen(answer, request) {
  const { usage: u } = answer;
  const ofType = (type) => answer.output.filter((item) => item.type === type);
  return {
    request,
    text: answer.output_text,
    reasoning: ofType("reasoning").flatMap((i) => i.summary).map((p) => p.text).join(""),
    finish: answer.status + (answer.incomplete_details ? ": " + answer.incomplete_details.reason : ""),
    calls: ofType("function_call").map((i) => ({ id: i.call_id, name: i.name, arguments: i.arguments })),
    usage: {
      prompt: u.input_tokens,
      completion: u.output_tokens,
      cached: u.input_tokens_details.cached_tokens,
      reasoning: u.output_tokens_details.reasoning_tokens,
    },
    answer,
  };
}

async function create(ask, params) {
  const answer = await client(ask).responses.create({ model: ask.model, ...params });
  return seen(answer, answer._request_id);
}

const deltas = ["response.output_text.delta", "response.function_call_arguments.delta", "response.reasoning_summary_text.delta"];

// accumulate streams, and lets the client put the answer together.
async function accumulate(ask, params) {
  const watch = watched("x-request-id");
  let pieces = 0;
  const stream = client(ask, { fetch: watch.fetch }).responses.stream({ model: ask.model, ...params });
  for await (const event of stream) pieces += deltas.includes(event.type) ? 1 : 0;
  return { ...seen(await stream.finalResponse(), watch.request), pieces };
}

// loop is two turns: the model calls both functions, and gets their results.
async function loop(ask, turn, results) {
  const text = "Please call get_weather and get_time.";
  const first = await turn(ask, { input: text, tools: tools(ask) });
  const outputs = first.calls.map((c) => ({ type: "function_call_output", call_id: c.id, output: "sunny" }));
  const second = await turn(ask, { tools: tools(ask), ...results(text, first.answer, outputs) });
  return { turns: [plain(first), plain(second)] };
}

// The client keeps the conversation.
const withHistory = (text, answer, outputs) => ({
  input: [{ role: "user", content: text }, ...answer.output.map(({ parsed_arguments, ...item }) => item), ...outputs],
});

// Millrace keeps the conversation.
const byReference = (text, answer, outputs) => ({ input: outputs, previous_response_id: answer.id });

const shaped = (ask) => ({ input: ask.story, text: { format: zodTextFormat(Forecast, "forecast") } });

async function structured(ask) {
  const answer = await client(ask).responses.parse({ model: ask.model, ...shaped(ask) });
  return { ...plain(seen(answer, answer._request_id)), parsed: answer.output_parsed };
}

async function structuredStream(ask) {
  const saw = await accumulate(ask, shaped(ask));
  return { ...plain(saw), parsed: saw.answer.output_parsed };
}

// sealed is reasoning that the client keeps, sealed, and gives back.
async function sealed(ask) {
  const first = await create(ask, {
    input: ask.story, reasoning: { effort: "low" }, store: false, include: ["reasoning.encrypted_content"],
  });
  const said = (content) => ({ role: "user", content });
  const second = await create(ask, { input: [said(ask.story), ...first.answer.output, said("Go on.")], store: false });
  return { turns: [plain(first), plain(second)], sealed: Boolean(first.answer.output[0].encrypted_content) };
}

// kept is a response that is kept, listed, and removed.
async function kept(ask) {
  const c = client(ask);
  const made = await c.responses.create({ model: ask.model, input: ask.story });
  const got = await c.responses.retrieve(made.id);
  const items = [];
  for await (const item of c.responses.inputItems.list(made.id)) items.push(item.content[0].text);
  await c.responses.delete(made.id);
  try {
    await c.responses.retrieve(made.id);
  } catch (e) {
    return { same: got.output_text === made.output_text, items, gone: e instanceof NotFoundError };
  }
  return { gone: false };
}

// background is a response that is made while nobody waits.
async function background(ask) {
  const c = client(ask);
  let made = await c.responses.create({ model: ask.model, input: ask.story, background: true });
  const first = made.status;
  while (made.status === "queued" || made.status === "in_progress") {
    await new Promise((done) => setTimeout(done, 100));
    made = await c.responses.retrieve(made.id);
  }
  return { first, ...plain(seen(made, "")) };
}

// cancelled is a response that is made in the background and called off.
async function cancelled(ask) {
  const c = client(ask);
  const made = await c.responses.create({ model: ask.model, input: ask.story, background: true, reasoning: { effort: "max" } });
  return { finish: (await c.responses.cancel(made.id)).status };
}

// leave goes in the middle of an answer.
async function leave(ask) {
  const { data, response } = await client(ask, { baseURL: ask.leave + "/v1" })
    .responses.create({ model: ask.model, input: ask.story, stream: true, reasoning: { effort: "max", summary: "auto" } })
    .withResponse();
  let pieces = 0;
  for await (const event of data) {
    if (deltas.includes(event.type) && ++pieces === 25) break;
  }
  return { request: response.headers.get("x-request-id"), pieces };
}

async function errors(ask) {
  const tries = new Tries();
  const call = (params, whom = {}) => () =>
    client(ask, { fetch: tries.fetch, ...whom }).responses.create({ model: ask.model, input: ask.story, ...params });
  const long = { model: ask.small, input: ask.too_long };
  return failures(tries, explain, {
    bad_key: call({}, { apiKey: "mr_live_nobody" }),
    no_model: call({ model: "acme/none" }),
    no_credit: call({}, { apiKey: ask.poor_key }),
    overflow: call(long),
    overflow_stream: call({ ...long, stream: true }),
    bad_value: call({ temperature: 9 }),
    no_previous: call({ previous_response_id: "resp_none" }),
  });
}

function picture(ask) {
  const parts = [{ type: "input_text", text: ask.story }, { type: "input_image", image_url: ask.image, detail: "auto" }];
  return [{ role: "user", content: parts }];
}

const pair = (name, params) => both(create, accumulate, name, params);

export const scenarios = {
  ...pair("whole", (ask) => ({ input: ask.story })),
  ...pair("length", (ask) => ({ input: ask.story, max_output_tokens: 20 })),
  ...pair("think", (ask) => ({ input: ask.story, reasoning: { effort: "low", summary: "auto" } })),
  ...pair("forced", (ask) => ({ input: ask.story, tools: tools(ask), tool_choice: "required" })),
  ...pair("image", (ask) => ({ input: picture(ask), max_output_tokens: 20 })),
  tools: (ask) => loop(ask, create, withHistory),
  "tools stream": (ask) => loop(ask, accumulate, withHistory),
  previous: (ask) => loop(ask, create, byReference),
  "previous stream": (ask) => loop(ask, accumulate, byReference),
  structured,
  "structured stream": structuredStream,
  sealed,
  kept,
  background,
  cancelled,
  errors,
  broken: (ask) => broken(() => accumulate(ask, { model: ask.broken, input: ask.story })),
  leave,
};
