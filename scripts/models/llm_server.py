#!/usr/bin/env python3
"""A real OpenAI-compatible server of a language model: llama.cpp's own, inside the package xllamacpp.

  python3 llm_server.py --model FILE.gguf --port 8089 [--ctx 8192] [--threads 1] [--template FILE.jinja]

Prints one line when it answers, then serves on 127.0.0.1 until it gets SIGTERM or SIGINT.
"""
import argparse
import pathlib
import signal
import threading

import xllamacpp

arguments = argparse.ArgumentParser()
arguments.add_argument("--model", required=True)
arguments.add_argument("--port", type=int, required=True)
arguments.add_argument("--alias", default="smollm2-135m")
arguments.add_argument("--ctx", type=int, default=8192)
arguments.add_argument("--threads", type=int, default=1)
arguments.add_argument("--template", help="a chat template that replaces the model's own")
arguments = arguments.parse_args()

settings = xllamacpp.CommonParams()
settings.model.path = arguments.model
settings.model_alias = {arguments.alias}
settings.hostnames = ["127.0.0.1"]
settings.port = arguments.port
settings.n_ctx = arguments.ctx
settings.n_parallel = 1
settings.cpuparams.n_threads = arguments.threads
settings.cpuparams_batch.n_threads = arguments.threads
settings.use_jinja = True
settings.warmup = False
if arguments.template:
    settings.chat_template = pathlib.Path(arguments.template).read_text()
server = xllamacpp.Server(settings)
print("listening", server.listening_address, flush=True)
stop = threading.Event()
for sign in (signal.SIGTERM, signal.SIGINT):
    signal.signal(sign, lambda *_: stop.set())
stop.wait()
