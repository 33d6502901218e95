"""Asks Millrace what customers ask, with the official clients, and prints what they saw: one JSON object per scenario.

usage: scenarios.py chat|responses|messages|platform ASK, where ASK is a JSON object (see sdk_test.go)
"""

import json
import sys
import traceback

import anthropic_messages
import openai_chat
import openai_platform
import openai_responses

APIS = {"chat": openai_chat, "responses": openai_responses, "messages": anthropic_messages, "platform": openai_platform}

if __name__ == "__main__":
    ask = json.loads(sys.argv[2])
    for name, scenario in APIS[sys.argv[1]].SCENARIOS.items():
        if ask.get("only") and name not in ask["only"]:
            continue
        try:
            saw = scenario(ask)
        except Exception:
            saw = {"unexpected": traceback.format_exc()}
        print(json.dumps({"scenario": name, **saw}), flush=True)
