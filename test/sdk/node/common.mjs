// What the scenarios of all clients share.
import * as z from "zod";

export const Forecast = z.object({ city: z.string(), days: z.number().int().min(1) });

// Tries counts the requests that a client sends.
export class Tries {
  n = 0;
  fetch = (...args) => (this.n++, fetch(...args));
}

// watched is a fetch that notes the request's id.
export function watched(header) {
  const watch = { request: "" };
  watch.fetch = async (...args) => {
    const response = await fetch(...args);
    watch.request = response.headers.get(header);
    return response;
  };
  return watch;
}

// failures runs every call, which must fail with a status; explain reads the error.
export async function failures(tries, explain, calls) {
  const saw = {};
  for (const [name, call] of Object.entries(calls)) {
    tries.n = 0;
    try {
      await call();
      saw[name] = { class: "", tries: tries.n };
    } catch (e) {
      saw[name] = { class: e.constructor.name, ...explain(e), tries: tries.n };
    }
  }
  return { failures: saw };
}

// broken wants an error in mid-stream.
export async function broken(play) {
  try {
    await play();
  } catch (e) {
    return { failures: { stream: { class: e.constructor.name, message: e.message } } };
  }
  return {};
}

// plain drops what is only for the next turn.
export function plain({ answer, ...saw }) {
  return saw;
}

// both is a scenario whole and streamed.
export function both(create, accumulate, name, params) {
  return {
    [name]: async (ask) => plain(await create(ask, params(ask))),
    [name === "whole" ? "stream" : name + " stream"]: async (ask) => plain(await accumulate(ask, params(ask))),
  };
}

// play runs scenarios and prints what they saw: one JSON object each.
export async function play(scenarios, ask) {
  for (const [scenario, run] of Object.entries(scenarios)) {
    if (ask.only && !ask.only.includes(scenario)) continue;
    let saw;
    try {
      saw = await run(ask);
    } catch (e) {
      saw = { unexpected: e.stack + "\n" + JSON.stringify(e) };
    }
    console.log(JSON.stringify({ scenario, ...saw }));
  }
}
