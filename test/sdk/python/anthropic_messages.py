"""Messages with the official anthropic client."""

import anthropic

from failures import Tries, failures
from openai_chat import Forecast, of, plain


def client(ask, **more):
    return anthropic.Anthropic(**{"base_url": ask["url"], "api_key": ask["key"], "timeout": 120, **more})


def tools(ask):
    return [{"name": name, "input_schema": schema} for name, schema in ask["tools"].items()]


def user(text):
    return [{"role": "user", "content": text}]


def story(ask):
    return user(ask["story"])


def usage(u):
    """As the other API counts: what was read from the cache is part of the prompt."""
    cached = u.cache_read_input_tokens or 0
    details = u.output_tokens_details
    return {
        "prompt": u.input_tokens + cached,
        "completion": u.output_tokens,
        "cached": cached,
        "reasoning": details.thinking_tokens if details else 0,
    }


def seen(answer, request):
    finish = answer.stop_reason
    if answer.stop_sequence:
        finish += ": " + answer.stop_sequence
    return {
        "request": request,
        "text": "".join(b.text for b in answer.content if b.type == "text"),
        "reasoning": "".join(b.thinking for b in answer.content if b.type == "thinking"),
        "finish": finish,
        "calls": [{"id": b.id, "name": b.name, "input": b.input} for b in answer.content if b.type == "tool_use"],
        "usage": usage(answer.usage),
        "answer": answer,
    }


def create(ask, **params):
    raw = client(ask).messages.with_raw_response.create(**{"model": ask["model"], "max_tokens": 2000, **params})
    return seen(raw.parse(), raw.headers["request-id"])


def accumulate(ask, **params):
    """Streams, and lets the client put the answer together."""
    pieces = 0
    with client(ask).messages.stream(**{"model": ask["model"], "max_tokens": 2000, **params}) as stream:
        for event in stream:
            pieces += event.type == "content_block_delta"
        return {**seen(stream.get_final_message(), stream.response.headers["request-id"]), "pieces": pieces}


def both(**params):
    """A scenario whole and streamed."""
    return (
        lambda ask: plain(create(ask, **of(ask, params))),
        lambda ask: plain(accumulate(ask, **of(ask, params))),
    )


def loop(ask, turn):
    """Two turns: the model thinks and calls both functions, and gets their results."""
    messages = user("Please call get_weather and get_time.")
    settings = {"tools": tools(ask), "thinking": {"type": "enabled", "budget_tokens": 1024}}
    first = turn(ask, messages=messages, **settings)
    results = [{"type": "tool_result", "tool_use_id": c["id"], "content": "sunny"} for c in first["calls"]]
    messages = [*messages, {"role": "assistant", "content": first["answer"].content}, {"role": "user", "content": results}]
    signed = all(b.signature for b in first["answer"].content if b.type == "thinking")
    return {"turns": [plain(first), plain(turn(ask, messages=messages, **settings))], "sealed": signed}


def structured(ask):
    answer = client(ask).messages.parse(model=ask["model"], max_tokens=500, messages=story(ask), output_format=Forecast)
    return {**plain(seen(answer, answer._request_id)), "parsed": answer.parsed_output.model_dump()}


def structured_stream(ask):
    saw = accumulate(ask, messages=story(ask), output_format=Forecast)
    parsed = saw["answer"].parsed_output.model_dump()
    return {**plain(saw), "parsed": parsed}


def picture(ask):
    media, data = ask["image"].removeprefix("data:").split(";base64,")
    source = {"type": "base64", "media_type": media, "data": data}
    return [{"role": "user", "content": [{"type": "text", "text": ask["story"]}, {"type": "image", "source": source}]}]


def leave(ask):
    """Goes in the middle of an answer."""
    settings = {"thinking": {"type": "adaptive"}, "output_config": {"effort": "max"}}
    params = {"model": ask["model"], "messages": story(ask), "max_tokens": 1500, **settings}
    pieces = 0
    with client(ask, base_url=ask["leave"]).messages.create(stream=True, **params) as events:
        request = events.response.headers["request-id"]
        for event in events:
            pieces += event.type == "content_block_delta"
            if pieces == 25:
                break
    return {"request": request, "pieces": pieces}


def broken(ask):
    """The engine fails in mid-stream."""
    try:
        accumulate(ask, model=ask["broken"], messages=story(ask))
    except anthropic.APIError as e:
        return {"failures": {"stream": {"class": type(e).__name__, "message": e.message}}}
    return {}


def errors(ask):
    tries = Tries(anthropic.DefaultHttpxClient)

    def call(model=ask["model"], messages=story(ask), stream=False, more={}, **as_whom):
        def run():
            made = client(ask, http_client=tries.http, **as_whom)
            made.messages.create(**{"model": model, "messages": messages, "stream": stream, "max_tokens": 60, **more})

        return run

    return failures(
        anthropic,
        tries,
        {
            "bad_key": call(api_key="mr_live_nobody"),
            "no_model": call(model="acme/none"),
            "no_credit": call(api_key=ask["poor_key"]),
            "overflow": call(model=ask["small"], messages=user(ask["too_long"])),
            "overflow_stream": call(model=ask["small"], messages=user(ask["too_long"]), stream=True),
            "bad_value": call(more={"extra_body": {"temperature": 9}}),
        },
    )


def models(ask):
    c = client(ask)
    return {"models": [m.id for m in c.models.list()], "model": c.models.retrieve(ask["model"]).id}


def count(ask):
    """What a prompt will be billed as, and what it is."""
    params = {"messages": user("Please call get_weather."), "tools": tools(ask), "system": "You are a miller."}
    counted = client(ask).messages.count_tokens(model=ask["model"], **params)
    return {"counted": counted.input_tokens, **plain(create(ask, **params))}


def bearer(ask):
    """The key as a token."""
    made = anthropic.Anthropic(base_url=ask["url"], auth_token=ask["key"], api_key=None)
    answer = made.messages.create(model=ask["model"], max_tokens=10, messages=story(ask))
    return plain(seen(answer, answer._request_id))


whole, stream = both(messages=story, max_tokens=lambda ask: ask.get("brief"))
length, length_stream = both(messages=story, max_tokens=20)
stop, stop_stream = both(messages=story, stop_sequences=["question"])
think, think_stream = both(messages=story, thinking={"type": "enabled", "budget_tokens": 1024})
forced, forced_stream = both(messages=story, tools=tools, tool_choice={"type": "any"})
image, image_stream = both(messages=picture, max_tokens=20)

SCENARIOS = {
    "whole": whole,
    "stream": stream,
    "length": length,
    "length stream": length_stream,
    "stop": stop,
    "stop stream": stop_stream,
    "think": think,
    "think stream": think_stream,
    "tools": lambda ask: loop(ask, create),
    "tools stream": lambda ask: loop(ask, accumulate),
    "forced": forced,
    "forced stream": forced_stream,
    "structured": structured,
    "structured stream": structured_stream,
    "image": image,
    "image stream": image_stream,
    "bearer": bearer,
    "errors": errors,
    "broken": broken,
    "leave": leave,
    "models": models,
    "count": count,
}
