"""Talks to Millrace with the official openai client, as a customer does, and prints what it saw: one JSON object.

usage: client.py whole|stream|stop|errors URL KEY MODEL
"""

import json
import sys

import openai

PROMPT = [{"role": "user", "content": "Tell me a story of a mill, a river and a ledger, please."}]


def client(url, key, **more):
    return openai.OpenAI(base_url=url + "/v1", api_key=key, timeout=120, **more)


def seen(usage):
    return {
        "prompt": usage.prompt_tokens,
        "completion": usage.completion_tokens,
        "cached": usage.prompt_tokens_details.cached_tokens if usage.prompt_tokens_details else 0,
    }


def whole(url, key, model):
    raw = client(url, key).chat.completions.with_raw_response.create(model=model, messages=PROMPT, max_tokens=60)
    answer = raw.parse()
    choice = answer.choices[0]
    return {
        "request": raw.headers["x-request-id"],
        "usage": seen(answer.usage),
        "text": choice.message.content,
        "finish": choice.finish_reason,
    }


def stream(url, key, model):
    with client(url, key).chat.completions.create(
        model=model, messages=PROMPT, max_tokens=60, stream=True, stream_options={"include_usage": True}
    ) as chunks:
        request, pieces, finish, usage = chunks.response.headers["x-request-id"], [], [], None
        for chunk in chunks:
            usage = chunk.usage or usage
            for choice in chunk.choices:
                if choice.delta.content:
                    pieces.append(choice.delta.content)
                if choice.finish_reason:
                    finish.append(choice.finish_reason)
    return {"request": request, "usage": seen(usage), "pieces": len(pieces), "text": "".join(pieces), "finish": ",".join(finish)}


def stop(url, key, model):
    """Leaves in the middle of an answer."""
    with client(url, key).chat.completions.create(
        model=model, messages=PROMPT, max_tokens=1500, stream=True, extra_body={"ignore_eos": True}
    ) as chunks:
        request, pieces = chunks.response.headers["x-request-id"], 0
        for chunk in chunks:
            if chunk.choices and chunk.choices[0].delta.content:
                pieces += 1
            if pieces == 25:
                break
    return {"request": request, "pieces": pieces}


def errors(url, key, model):
    """What the client makes of refusals, and how often it tries."""
    tries = []
    http = openai.DefaultHttpxClient(event_hooks={"request": [lambda request: tries.append(request.url.path)]})

    def failing(key, model):
        tries.clear()
        try:
            client(url, key, http_client=http).chat.completions.create(model=model, messages=PROMPT, max_tokens=60)
        except openai.APIStatusError as e:
            return {"class": type(e).__name__, "status": e.status_code, "code": e.code, "type": e.type, "tries": len(tries), "message": e.message}
        return {"class": "", "tries": len(tries)}

    return {"bad_key": failing("mr_live_nobody", model), "no_model": failing(key, "acme/none"), "call": failing(key, model)}


if __name__ == "__main__":
    print(json.dumps({"whole": whole, "stream": stream, "stop": stop, "errors": errors}[sys.argv[1]](*sys.argv[2:])))
