"""Serves one GGUF model with llama.cpp's OpenAI-compatible server, on loopback only, until it is told to stop."""

import argparse
import os
import signal
import threading

import xllamacpp

# A base model has no chat template of its own, and ChatML marks would leak into its text.
PLAIN_TEMPLATE = "{% for m in messages %}{{ m.content }}\n{% endfor %}"


def arguments():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--weights", required=True, help="path of the .gguf file")
    p.add_argument("--model", required=True, help="name that clients use")
    p.add_argument("--port", type=int, required=True)
    p.add_argument("--context", type=int, required=True, help="tokens of one request, prompt and answer")
    p.add_argument("--slots", type=int, required=True, help="requests served at once")
    p.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    p.add_argument("--chat-template", default=PLAIN_TEMPLATE)
    return p.parse_args()


def parameters(a):
    p = xllamacpp.CommonParams()
    p.model.path = a.weights
    p.model_alias = {a.model} if isinstance(p.model_alias, set) else a.model
    p.hostnames = ["127.0.0.1"]
    p.port = a.port
    p.n_parallel = a.slots
    p.n_ctx = a.context * a.slots  # llama.cpp divides it among the slots
    p.endpoint_metrics = True
    p.endpoint_slots = True
    p.cpuparams.n_threads = a.threads
    p.cpuparams_batch.n_threads = a.threads
    p.use_jinja = True
    p.chat_template = a.chat_template
    return p


def main():
    a = arguments()
    stop = threading.Event()
    for s in (signal.SIGTERM, signal.SIGINT):
        signal.signal(s, lambda *_: stop.set())
    server = xllamacpp.Server(parameters(a))
    print("listening on", server.listening_address, flush=True)
    stop.wait()
    os._exit(0)  # the server's own threads need no farewell


if __name__ == "__main__":
    main()
