"""Chat Completions with the official openai client."""

import openai
import pydantic

from failures import Tries, failures


class Forecast(pydantic.BaseModel):
    city: str
    days: int


def client(ask, **more):
    return openai.OpenAI(**{"base_url": ask["url"] + "/v1", "api_key": ask["key"], "timeout": 120, **more})


def user(text):
    return [{"role": "user", "content": text}]


def function(ask, name):
    return {"type": "function", "function": {"name": name, "parameters": ask["tools"][name]}}


def tools(ask):
    return [function(ask, name) for name in ask["tools"]]


def usage(u):
    details, generated = u.prompt_tokens_details, u.completion_tokens_details
    return {
        "prompt": u.prompt_tokens,
        "completion": u.completion_tokens,
        "cached": details.cached_tokens if details else 0,
        "reasoning": generated.reasoning_tokens if generated else 0,
    }


def seen(answer, request):
    choice = answer.choices[0]
    calls = choice.message.tool_calls or []
    return {
        "request": request,
        "text": choice.message.content or "",
        "reasoning": getattr(choice.message, "reasoning_content", None) or "",
        "finish": choice.finish_reason,
        "calls": [{"id": c.id, "name": c.function.name, "arguments": c.function.arguments} for c in calls],
        "usage": usage(answer.usage),
    }


def create(ask, **params):
    raw = client(ask).chat.completions.with_raw_response.create(**{"model": ask["model"], **params})
    return seen(raw.parse(), raw.headers["x-request-id"])


def accumulate(ask, **params):
    """Streams, and lets the client put the answer together."""
    pieces = 0
    with client(ask).chat.completions.stream(
        **{"model": ask["model"], "stream_options": {"include_usage": True}, **params}
    ) as stream:
        for event in stream:
            if event.type in ("content.delta", "tool_calls.function.arguments.delta"):
                pieces += 1
        try:
            answer = stream.get_final_completion()
        except openai.LengthFinishReasonError as e:
            answer = e.completion
        return {**seen(answer, stream._response.headers["x-request-id"]), "pieces": pieces, "answer": answer}


def plain(saw):
    saw.pop("answer", None)
    return saw


def both(**params):
    """A scenario whole and streamed."""
    return (
        lambda ask: create(ask, **of(ask, params)),
        lambda ask: plain(accumulate(ask, **of(ask, params))),
    )


def of(ask, params):
    """Parameters, some of which depend on what is asked; those that are None are not sent."""
    said = {k: v(ask) if callable(v) else v for k, v in params.items()}
    return {k: v for k, v in said.items() if v is not None}


def story(ask):
    return user(ask["story"])


def loop(ask, turn):
    """Two turns: the model calls both functions, and gets their results."""
    messages = user("Please call get_weather and get_time.")
    first = turn(ask, messages=messages, tools=tools(ask))
    messages.append(
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": c["id"], "type": "function", "function": {"name": c["name"], "arguments": c["arguments"]}}
                for c in first["calls"]
            ],
        }
    )
    messages += [{"role": "tool", "tool_call_id": c["id"], "content": "sunny"} for c in first["calls"]]
    return {"turns": [plain(first), plain(turn(ask, messages=messages, tools=tools(ask)))]}


def structured(ask):
    raw = client(ask).chat.completions.with_raw_response.parse(
        model=ask["model"], messages=story(ask), response_format=Forecast
    )
    answer = raw.parse()
    return {**seen(answer, raw.headers["x-request-id"]), "parsed": answer.choices[0].message.parsed.model_dump()}


def structured_stream(ask):
    saw = accumulate(ask, messages=story(ask), response_format=Forecast)
    parsed = saw["answer"].choices[0].message.parsed.model_dump()
    return {**plain(saw), "parsed": parsed}


def picture(ask):
    parts = [{"type": "text", "text": ask["story"]}, {"type": "image_url", "image_url": {"url": ask["image"]}}]
    return [{"role": "user", "content": parts}]


def leave(ask):
    """Goes in the middle of an answer."""
    params = {"model": ask["model"], "messages": story(ask), "max_tokens": 1500, "extra_body": {"ignore_eos": True}}
    pieces = 0
    with client(ask, base_url=ask["leave"] + "/v1").chat.completions.create(stream=True, **params) as chunks:
        request = chunks.response.headers["x-request-id"]
        for chunk in chunks:
            pieces += bool(chunk.choices and chunk.choices[0].delta.content)
            if pieces == 25:
                break
    return {"request": request, "pieces": pieces}


def broken(ask):
    """The engine fails in mid-stream."""
    try:
        accumulate(ask, model=ask["broken"], messages=story(ask))
    except openai.APIError as e:
        return {"failures": {"stream": {"class": type(e).__name__, "message": e.message}}}
    return {}


def errors(ask):
    tries = Tries(openai.DefaultHttpxClient)

    def call(model=ask["model"], messages=story(ask), stream=False, more={}, **as_whom):
        def run():
            made = client(ask, http_client=tries.http, **as_whom)
            made.chat.completions.create(model=model, messages=messages, stream=stream, max_tokens=60, **more)

        return run

    return failures(
        openai,
        tries,
        {
            "bad_key": call(api_key="mr_live_nobody"),
            "no_model": call(model="acme/none"),
            "no_credit": call(api_key=ask["poor_key"]),
            "overflow": call(model=ask["small"], messages=user(ask["too_long"])),
            "overflow_stream": call(model=ask["small"], messages=user(ask["too_long"]), stream=True),
            "bad_value": call(more={"temperature": 9}),
        },
    )


def models(ask):
    c = client(ask)
    return {"models": [m.id for m in c.models.list()], "model": c.models.retrieve(ask["model"]).id}


whole, stream = both(messages=story, max_tokens=lambda ask: ask.get("brief"))
length, length_stream = both(messages=story, max_tokens=20)
stop, stop_stream = both(messages=story, stop=["question"])
think, think_stream = both(messages=story, reasoning_effort="low")
forced, forced_stream = both(messages=story, tools=tools, tool_choice="required")
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
    "errors": errors,
    "broken": broken,
    "leave": leave,
    "models": models,
}
