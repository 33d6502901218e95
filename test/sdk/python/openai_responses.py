"""Responses with the official openai client."""

import time

import openai

from failures import Tries, failures
from openai_chat import Forecast, client, of, plain


def function(name, parameters):
    return {"type": "function", "name": name, "parameters": parameters, "strict": False}


def tools(ask):
    return [function(*tool) for tool in ask["tools"].items()]


def story(ask):
    return ask["story"]


def usage(u):
    return {
        "prompt": u.input_tokens,
        "completion": u.output_tokens,
        "cached": u.input_tokens_details.cached_tokens,
        "reasoning": u.output_tokens_details.reasoning_tokens,
    }


def thoughts(answer):
    for item in answer.output:
        if item.type == "reasoning":
            yield from (part.text for part in item.summary)


def seen(answer, request):
    finish = answer.status
    if answer.incomplete_details:
        finish += ": " + answer.incomplete_details.reason
    return {
        "request": request,
        "text": answer.output_text,
        "reasoning": "".join(thoughts(answer)),
        "finish": finish,
        "calls": [
            {"id": i.call_id, "name": i.name, "arguments": i.arguments}
            for i in answer.output
            if i.type == "function_call"
        ],
        "usage": usage(answer.usage),
        "answer": answer,
    }


def create(ask, **params):
    raw = client(ask).responses.with_raw_response.create(**{"model": ask["model"], **params})
    return seen(raw.parse(), raw.headers["x-request-id"])


DELTAS = ("response.output_text.delta", "response.function_call_arguments.delta", "response.reasoning_summary_text.delta")
ENDS = ("response.completed", "response.incomplete", "response.failed")


def accumulate(ask, **params):
    """Streams, and lets the client put the answer together."""
    pieces, texts, last = 0, [], None
    with client(ask).responses.stream(**{"model": ask["model"], **params}) as stream:
        for event in stream:
            pieces += event.type in DELTAS
            if event.type == "response.output_text.delta":
                texts.append(event.delta)
            if event.type in ENDS:
                last = event
        request = stream._response.headers["x-request-id"]
        # The client gives no final response of one that is incomplete.
        answer = stream.get_final_response() if last.type == "response.completed" else last.response
        if "".join(texts) != last.response.output_text:
            raise AssertionError("the deltas are not the text")
        return {**seen(answer, request), "pieces": pieces}


def both(**params):
    """A scenario whole and streamed."""
    return (
        lambda ask: plain(create(ask, **of(ask, params))),
        lambda ask: plain(accumulate(ask, **of(ask, params))),
    )


def loop(ask, turn, results):
    """Two turns: the model calls both functions, and gets their results."""
    text = "Please call get_weather and get_time."
    first = turn(ask, input=text, tools=tools(ask))
    outputs = [{"type": "function_call_output", "call_id": c["id"], "output": "sunny"} for c in first["calls"]]
    second = turn(ask, tools=tools(ask), **results(text, first["answer"], outputs))
    return {"turns": [plain(first), plain(second)]}


def with_history(text, answer, outputs):
    """The client keeps the conversation."""
    history = [item.model_dump(exclude_none=True) for item in answer.output]
    for item in history:
        item.pop("parsed_arguments", None)  # what .stream() adds for its own users
    return {"input": [{"role": "user", "content": text}, *history, *outputs]}


def by_reference(text, answer, outputs):
    """Millrace keeps the conversation."""
    return {"input": outputs, "previous_response_id": answer.id}


def structured(ask):
    raw = client(ask).responses.with_raw_response.parse(model=ask["model"], input=story(ask), text_format=Forecast)
    answer = raw.parse()
    return {**plain(seen(answer, raw.headers["x-request-id"])), "parsed": answer.output_parsed.model_dump()}


def structured_stream(ask):
    saw = accumulate(ask, input=story(ask), text_format=Forecast)
    parsed = saw["answer"].output_parsed.model_dump()
    return {**plain(saw), "parsed": parsed}


def picture(ask):
    parts = [{"type": "input_text", "text": ask["story"]}, {"type": "input_image", "image_url": ask["image"], "detail": "auto"}]
    return [{"role": "user", "content": parts}]


def sealed(ask):
    """Reasoning that the client keeps, sealed, and gives back."""
    first = create(ask, input=story(ask), reasoning={"effort": "low"}, store=False, include=["reasoning.encrypted_content"])
    thought, *_ = first["answer"].output
    history = [item.model_dump(exclude_none=True) for item in first["answer"].output]
    again = [{"role": "user", "content": ask["story"]}, *history, {"role": "user", "content": "Go on."}]
    second = create(ask, input=again, store=False)
    return {"turns": [plain(first), plain(second)], "sealed": bool(thought.encrypted_content)}


def kept(ask):
    """A response is kept, listed, and removed."""
    c = client(ask)
    made = c.responses.create(model=ask["model"], input=story(ask))
    got = c.responses.retrieve(made.id)
    items = [item.content[0].text for item in c.responses.input_items.list(made.id)]
    c.responses.delete(made.id)
    try:
        c.responses.retrieve(made.id)
    except openai.NotFoundError:
        return {"same": got.output_text == made.output_text, "items": items, "gone": True}
    return {"gone": False}


def background(ask):
    """A response is made while nobody waits."""
    c = client(ask)
    made = c.responses.create(model=ask["model"], input=story(ask), background=True)
    first = made.status
    while made.status in ("queued", "in_progress"):
        time.sleep(0.1)
        made = c.responses.retrieve(made.id)
    return {"first": first, **plain(seen(made, ""))}


def cancelled(ask):
    """A response that is made in the background is called off."""
    c = client(ask)
    made = c.responses.create(
        model=ask["model"], input=story(ask), background=True, reasoning={"effort": "max"}
    )
    return {"finish": c.responses.cancel(made.id).status}


def leave(ask):
    """Goes in the middle of an answer."""
    params = {"model": ask["model"], "input": story(ask), "reasoning": {"effort": "max", "summary": "auto"}}
    pieces = 0
    with client(ask, base_url=ask["leave"] + "/v1").responses.create(stream=True, **params) as events:
        request = events.response.headers["x-request-id"]
        for event in events:
            pieces += event.type in DELTAS
            if pieces == 25:
                break
    return {"request": request, "pieces": pieces}


def broken(ask):
    """The engine fails in mid-stream."""
    try:
        accumulate(ask, model=ask["broken"], input=story(ask))
    except openai.APIError as e:
        return {"failures": {"stream": {"class": type(e).__name__, "message": e.message}}}
    return {}


def errors(ask):
    tries = Tries(openai.DefaultHttpxClient)

    def call(model=ask["model"], text=story(ask), stream=False, more={}, **as_whom):
        def run():
            client(ask, http_client=tries.http, **as_whom).responses.create(model=model, input=text, stream=stream, **more)

        return run

    return failures(
        openai,
        tries,
        {
            "bad_key": call(api_key="mr_live_nobody"),
            "no_model": call(model="acme/none"),
            "no_credit": call(api_key=ask["poor_key"]),
            "overflow": call(model=ask["small"], text=ask["too_long"]),
            "overflow_stream": call(model=ask["small"], text=ask["too_long"], stream=True),
            "bad_value": call(more={"temperature": 9}),
            "no_previous": call(more={"previous_response_id": "resp_none"}),
        },
    )


whole, stream = both(input=story, max_output_tokens=lambda ask: ask.get("brief"))
length, length_stream = both(input=story, max_output_tokens=20)
think, think_stream = both(input=story, reasoning={"effort": "low", "summary": "auto"})
forced, forced_stream = both(input=story, tools=tools, tool_choice="required")
image, image_stream = both(input=picture, max_output_tokens=20)

SCENARIOS = {
    "whole": whole,
    "stream": stream,
    "length": length,
    "length stream": length_stream,
    "think": think,
    "think stream": think_stream,
    "sealed": sealed,
    "tools": lambda ask: loop(ask, create, with_history),
    "tools stream": lambda ask: loop(ask, accumulate, with_history),
    "previous": lambda ask: loop(ask, create, by_reference),
    "previous stream": lambda ask: loop(ask, accumulate, by_reference),
    "forced": forced,
    "forced stream": forced_stream,
    "structured": structured,
    "structured stream": structured_stream,
    "image": image,
    "image stream": image_stream,
    "kept": kept,
    "background": background,
    "cancelled": cancelled,
    "errors": errors,
    "broken": broken,
    "leave": leave,
}
