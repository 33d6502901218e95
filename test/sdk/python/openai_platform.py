"""What else the official openai client does: text completions, embeddings, batches, conversations, sockets."""

import io
import json
import time

from openai_chat import client, tools, user


def completions(ask):
    """Several prompts, whole and streamed."""
    params = {"model": ask["model"], "prompt": ["the mill", "the river"], "max_tokens": 5}
    whole = client(ask).completions.create(**params)
    texts = {0: "", 1: ""}
    for chunk in client(ask).completions.create(stream=True, **params):
        for choice in chunk.choices:
            texts[choice.index] += choice.text
    return {
        "finish": [c.finish_reason for c in whole.choices],
        "generated": whole.usage.completion_tokens,
        "same": [c.text for c in whole.choices] == list(texts.values()),
    }


def several(ask):
    """Two answers to one question, put together by the client."""
    with client(ask).chat.completions.stream(model=ask["model"], messages=user(ask["story"]), n=2) as stream:
        for _ in stream:
            pass
        answer = stream.get_final_completion()
    texts = {c.message.content for c in answer.choices}
    return {"finish": [c.finish_reason for c in answer.choices], "different": len(texts)}


def legacy(ask):
    """Functions as they were before tools."""
    functions = [tool["function"] for tool in tools(ask)]
    answer = client(ask).chat.completions.create(model=ask["model"], messages=user("get_time, please"), functions=functions)
    choice = answer.choices[0]
    return {"finish": choice.finish_reason, "name": choice.message.function_call.name}


def custom(ask):
    """A tool whose input is a text, on both APIs."""
    c = client(ask)
    chat = c.chat.completions.create(
        model=ask["model"], messages=user("use code_exec"), tools=[{"type": "custom", "custom": {"name": "code_exec"}}]
    )
    with c.responses.stream(model=ask["model"], input="use code_exec", tools=[{"type": "custom", "name": "code_exec"}]) as stream:
        deltas = "".join(e.delta for e in stream if e.type == "response.custom_tool_call_input.delta")
        item = stream.get_final_response().output[0]
    call = chat.choices[0].message.tool_calls[0]
    return {"chat": [call.type, call.custom.name, call.custom.input], "responses": [item.type, item.name, item.input, deltas]}


def embeddings(ask):
    """The client asks for base64, and decodes it."""
    answer = client(ask).embeddings.create(model=ask["model"], input=["the mill", "the river"])
    again = client(ask).embeddings.create(model=ask["model"], input="the river", encoding_format="float")
    first, second = (e.embedding for e in answer.data)
    near = max(abs(a - b) for a, b in zip(second, again.data[0].embedding, strict=True)) < 1e-6
    return {"indices": [e.index for e in answer.data], "differ": first != second, "same": near, "used": answer.usage.prompt_tokens > 0}


def batch(ask):
    """A file of requests is worked off."""
    c = client(ask)
    body = {"model": ask["model"], "messages": user(ask["story"]), "max_tokens": 5}
    lines = [{"custom_id": name, "method": "POST", "url": "/v1/chat/completions", "body": body} for name in ("one", "two")]
    text = "\n".join(map(json.dumps, lines))
    file = c.files.create(file=("in.jsonl", io.BytesIO(text.encode())), purpose="batch")
    made = c.batches.create(input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h")
    while made.status not in ("completed", "failed", "expired", "cancelled"):
        time.sleep(0.1)
        made = c.batches.retrieve(made.id)
    out = [json.loads(line) for line in c.files.content(made.output_file_id).text.splitlines()]
    return {
        "status": made.status,
        "counts": made.request_counts.model_dump(include={"completed", "failed", "total"}),
        "done": sorted([o["custom_id"], o["response"]["status_code"], o["response"]["body"]["usage"]["completion_tokens"]] for o in out),
        "input": c.files.content(file.id).text == text,
        "deleted": c.files.delete(file.id).deleted,
    }


def conversation(ask):
    """Millrace keeps a conversation."""
    c = client(ask)
    kept = c.conversations.create(metadata={"of": "a test"})
    first = c.responses.create(model=ask["model"], input=ask["story"], conversation=kept.id)
    second = c.responses.create(model=ask["model"], input="Go on.", conversation=kept.id)
    roles = sorted(item.role for item in c.conversations.items.list(kept.id))
    c.conversations.delete(kept.id)
    return {"grows": second.usage.input_tokens > first.usage.total_tokens, "roles": roles}


def resume(ask):
    """A stream that broke off goes on where it was."""
    c = client(ask)
    seen = 0
    with c.responses.create(model=ask["model"], input=ask["story"], background=True, stream=True) as stream:
        for event in stream:
            if event.type == "response.created":
                made = event.response.id
            seen = event.sequence_number
            if seen == 5:
                break
    rest = list(c.responses.retrieve(made, stream=True, starting_after=seen))
    numbers = [e.sequence_number for e in rest]
    return {"contiguous": numbers == list(range(6, 6 + len(rest))), "last": rest[-1].type}


def compact(ask):
    """A conversation is made smaller, and goes on."""
    c = client(ask)
    counted = c.responses.input_tokens.count(model=ask["model"], input=ask["story"])
    small = c.responses.compact(model=ask["model"], input=user(ask["story"]))
    items = [item.model_dump(exclude_none=True) for item in small.output]
    after = c.responses.create(model=ask["model"], input=[*items, *user("Go on.")])
    return {"counted": counted.input_tokens > 0, "has": items[-1]["type"], "status": after.status}


def socket(ask):
    """Two turns on one connection."""
    seen = []
    with client(ask).responses.connect() as connection:
        for params in ({"input": ask["story"]}, {"input": "Go on."}):
            connection.response.create(model=ask["model"], **params)
            for event in connection:
                if event.type in ("response.created", "response.completed", "response.failed", "error"):
                    seen.append(event.type)
                if event.type in ("response.completed", "response.failed", "error"):
                    break
    return {"events": seen}


def facts(scenario):
    return lambda ask: {"facts": scenario(ask)}


SCENARIOS = {
    f.__name__: facts(f)
    for f in (completions, several, legacy, custom, embeddings, batch, conversation, resume, compact, socket)
}
