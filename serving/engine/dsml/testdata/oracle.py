"""Asks deepseek-recipe 0.2.0 (PyPI, MIT) what it makes of our cases: a JSON list on stdin, a list of answers on stdout.

A case with "request" is rendered for both versions of the prompt; one with "texts" is read as a model's text.
"""
import json
import sys

import deepseek_recipe as r

MODELS = {"v41": ("DeepSeek-V4.1-Flash", r.DeepseekV41Encoding), "v4": ("DeepSeek-V4-Pro", r.DeepseekV4Encoding)}
STARTS = {"reasoning": "ReasoningStart", "reasoning_continued": "ReasoningContinuation", "content_continued": "ContentContinuation"}


def render(request, model, encoding):
    try:
        converted = r.ChatCompletionRequest({**request, "model": model}).convert(r.ConversionOptions())
    except (r.ConversionError, ValueError) as e:
        return {"error": str(getattr(e, "body", e))}
    rendered = encoding().render_conversation(converted.conversation)
    segments, at = [], 0
    for start, end in rendered.special_ranges:
        if start > at:
            segments.append({"text": rendered.prompt[at:start]})
        segments.append({"special": rendered.prompt[start:end]})
        at = end
    if at < len(rendered.prompt):
        segments.append({"text": rendered.prompt[at:]})
    p = converted.parsing_options
    stage = str(p.thinking_initial_stage).split(".")[-1]
    start = "calls" if p.starts_in_tool_calls else {v: k for k, v in STARTS.items()}.get(stage, "content")
    return {"segments": segments, "images": len(rendered.image_sources),
            "parse": {"start": start, "tools": p.parse_tool_calls, "json": p.parse_json_output, "stops": p.stop_sequences}}


def parse(case):
    o = case.get("options", {})
    start = o.get("start", "content")
    thinking = start in STARTS
    request = {"model": MODELS["v41"][0], "messages": [{"role": "user", "content": "x"}],
               "thinking": {"type": "enabled" if thinking else "disabled"}}
    converted = r.ChatCompletionRequest(request).convert(r.ConversionOptions())
    options = r.ParsingOptions(
        parse_tool_calls=o.get("tools", True), starts_in_tool_calls=start == "calls", parse_json_output=o.get("json", False),
        thinking_initial_stage=getattr(r.ThinkingInitialStage, STARTS[start]) if thinking else None,
        stop_sequences=o.get("stops", []))
    processor = r.StreamProcessor(r.ChatCompletionRequest.chunk_generator(converted, "id", "m"), options)
    chunks = processor.push(r.InferenceChunk.ready(prompt_usage=r.PromptUsage(prompt_tokens=1)))
    for text in case["texts"]:
        if not processor.finished:
            chunks += processor.push(r.InferenceChunk.text(text, 1))
    if not processor.finished:
        finish = {"stop": "Stop", "length": "Length", "content_filter": "ContentFilter"}[case.get("finish", "stop")]
        chunks += processor.push(r.InferenceChunk.finish(getattr(r.InferenceFinishReason, finish)))
    chunks += processor.finish()
    response = r.ChatCompletionResponse("id", "m", 1, 0, 0)
    for chunk in chunks:
        response.accumulate(chunk)
    choice = json.loads(response.to_json())["choices"][0]
    message = choice["message"]
    return {"reasoning": message.get("reasoning_content") or "", "content": message.get("content") or "",
            "calls": [{"name": c["function"]["name"], "arguments": c["function"]["arguments"]} for c in message.get("tool_calls") or []],
            "finish": choice["finish_reason"]}


def answer(case):
    if "request" in case:
        return {version: render(case["request"], *how) for version, how in MODELS.items()}
    return parse(case)


print("[\n" + ",\n".join(json.dumps(answer(c), ensure_ascii=False) for c in json.load(sys.stdin)) + "\n]")
