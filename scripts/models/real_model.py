#!/usr/bin/env python3
"""A real model drives sessions: natively and through the envelope, with and without votes. Four cells, one table.

  python3 real_model.py --program toolgate --model-url http://127.0.0.1:8089/v1 --work DIR [--sessions 20] [--model NAME]

Half of the sessions of a cell ask for their answers as streams. Holds, or exits 1: every run ends with a recorded ending,
every log verifies, nothing panicked, and what the tools and the client did is what the logs allowed. What is not here:
the model's server (llm_server.py), Toolgate's (served.py).
"""
import argparse
import collections
import itertools
import json
import sys
import time

from channel_client import ChannelClient
from served import Served
from stub_tools import Reply, StubTools

CELLS = [("native", "off"), ("native", "on"), ("envelope", "off"), ("envelope", "on")]
# One run: three steps of at most three ballots, each a minute at worst where the machine is busy.
PATIENCE_S = 1200

# A model of this size calls a tool when the call is spelt out, and hardly ever else: so some of the calls are. Among them are
# a tool that does not exist, arguments of the wrong type, and a file that is not there.
TASKS = [
    ("What is the weather in Paris?", "get_weather", {"city": "Paris"}),
    ("How much is 2 + 3?", "add", {"a": 2, "b": 3}),
    ("Read the file notes.txt.", "read_file", {"path": "notes.txt"}),
    ("Append a line to the file todo.txt.", "append_line", {"path": "todo.txt", "line": "buy milk"}),
    ("Send a note to bob.", "send_note", {"to": "bob", "text": "lunch is at noon"}),
    ("Delete the table customers.", "drop_table", {"table": "customers"}),
    ("How much is ten and 5?", "add", {"a": "ten", "b": 5}),
    ("Read the file secret.txt.", "read_file", {"path": "secret.txt"}),
    ("What is the weather in Rome right now? Use get_weather.", None, None),
    ("Say hello in French. You need no tool for that.", None, None),
]
FILES = {"notes.txt": "The meeting is on Friday at ten.", "todo.txt": "water the plants"}


def prompt(task, form):
    """What the user says: the question, and where the call is spelt out, the call in the form of the cell."""
    question, name, args = task
    if name is None:
        return question
    native = "<tool_call>\n" + json.dumps({"name": name, "arguments": args}) + "\n</tool_call>"
    envelope = json.dumps({"type": "tool_call", "calls": [{"id": "1", "name": name, "args": args}]}, separators=(",", ":"))
    return f"{question} Repeat this line exactly:\n{native if form == 'native' else envelope}"


def text(length=200):
    return {"type": "string", "minLength": 1, "maxLength": length}


def tool(description, venue, kind, properties, **more):
    return {"description": description, "venue": venue, "class": kind, **more,
            "parameters": {"type": "object", "properties": properties, "required": list(properties)}}


def bundle(model, model_url, tools_url):
    """One profile for each cell and way of answering."""
    def http(name):
        return {"executor": {"http": {"url": f"{tools_url}/{name}"}}}

    number = {"type": "number"}
    tools = {
        "get_weather": tool("Current weather of a city.", "server", "read", {"city": text()}, **http("get_weather")),
        "add": tool("Adds two numbers.", "server", "read", {"a": number, "b": number}, **http("add")),
        "send_note": tool("Sends a short note to a person.", "server", "once", {"to": text(), "text": text()},
                          **http("send_note")),
        "read_file": tool("Reads a text file of the user.", "client", "read", {"path": text()}, capability="files"),
        "append_line": tool("Appends a line to a text file of the user.", "client", "once", {"path": text(), "line": text()},
                            capability="files"),
    }
    # One place in the model's server, so one question at a time; a question waits there for those before it.
    common = {"provider": "openai", "base_url": model_url, "model": model, "max_output_tokens": 64, "temperature_milli": 200,
              "max_concurrency": 1, "timeout_ms": 600000}
    models, profiles = {}, {}
    for (form, vote), answer in itertools.product(CELLS, ("whole", "streamed")):
        models[f"{form}.{answer}"] = {**common, "calls": form, "stream": answer == "streamed"}
        profile = {
            "tools": list(tools), "model": f"{form}.{answer}",
            "harness": {"max_steps": 3, "max_tool_calls": 6, "deadline_ms": PATIENCE_S * 1000},
            "prompt": {"before": "You are a helpful assistant. Use a tool where it helps; then answer in one short sentence."},
        }
        if vote == "on":
            profile["consensus"] = {"n": 3, "k": 2}
        profiles[f"{form}.{vote}.{answer}"] = profile
    return {"version": 1, "tools": tools, "models": models, "profiles": profiles,
            "default_harness": {"max_steps": 3, "max_tool_calls": 6, "deadline_ms": 600000}}


def server_tools():
    return {
        "get_weather": lambda args: Reply({"city": args["city"], "celsius": 18, "sky": "clear"}, effect="looked"),
        "add": lambda args: Reply(args["a"] + args["b"], effect="added"),
        "send_note": lambda args: Reply({"sent": True}, effect="sent"),
    }


def client_tools():
    # A file that is not there makes the call fail, as on a real disk.
    return {
        "read_file": lambda args: {"content": FILES[args["path"]]},
        "append_line": lambda args: {"appended": len(args["line"])},
    }


class Cell:
    """What came of the sessions of one cell."""

    def __init__(self):
        self.sessions, self.streamed = 0, 0
        self.endings, self.verdicts, self.malformed, self.failed = (collections.Counter() for _ in range(4))
        self.refused, self.ended, self.votes = (collections.Counter() for _ in range(3))
        self.tokens_in, self.tokens_out, self.seconds = 0, 0, 0.0

    def take(self, events, end):
        self.sessions += 1
        self.endings[end["ending"] if end else "none"] += 1
        for event in events:
            kind = event["type"]
            if kind == "ballot_received":
                self.verdicts[event["verdict"]] += 1
                if event["verdict"] == "malformed":
                    self.malformed[event.get("reason")] += 1
                if event["verdict"] == "failed":
                    self.failed[event.get("reason")] += 1
                usage = event.get("usage") or {}
                self.tokens_in += usage.get("input_tokens") or 0
                self.tokens_out += usage.get("output_tokens") or 0
            elif kind == "call_decided" and event["decision"] == "reject":
                self.refused[event["reason"]] += 1
            elif kind == "step_ended" and event.get("reason") not in (None, "malformed"):
                self.refused[event["reason"]] += 1
            elif kind == "call_ended" and event["dispatched"]:
                self.ended[event["status"]] += 1
            elif kind == "consensus_decided" and event["n"] > 1:
                self.votes[event["result"]] += 1


def counts(counter):
    return ", ".join(f"{key} {count}" for key, count in counter.most_common()) or "-"


def table(cells):
    rows = [("answers", "votes", "sessions", "endings", "ballots", "malformed", "failed", "calls refused", "calls executed",
             "tokens in/out", "seconds")]
    for (form, vote), cell in cells.items():
        ballots = sum(cell.verdicts.values())
        share = f"{cell.verdicts['malformed']} ({100 * cell.verdicts['malformed'] / max(ballots, 1):.0f} %)"
        rows.append((form, vote, f"{cell.sessions} ({cell.streamed} streamed)", counts(cell.endings), str(ballots), share,
                     str(cell.verdicts["failed"]), counts(cell.refused), counts(cell.ended),
                     f"{cell.tokens_in}/{cell.tokens_out}", f"{cell.seconds:.0f}"))
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    for row in rows:
        print("  ".join(part.ljust(width) for part, width in zip(row, widths)).rstrip())
    for (form, vote), cell in cells.items():
        name = f"{form}, votes {vote}"
        print(f"{name}: ballots {counts(cell.verdicts)}; malformed {counts(cell.malformed)}; failed {counts(cell.failed)}"
              + (f"; votes {counts(cell.votes)}" if vote == "on" else ""))


def beyond_the_logs(logs, tools, client):
    """What was done without a log that allowed it, or more often than a log says."""
    faults = []
    sent = collections.Counter()
    for session, events in logs.items():
        for event in events:
            first = event["type"] == "call_decided" and event.get("dispatch") is not None
            if first or event["type"] == "call_dispatched":
                sent[(session, event["call_id"])] += 1
    asked = collections.Counter((entry["about"], entry["call"]) for entry in tools.asked)
    ran = collections.Counter((entry["session"], entry["call"]) for entry in client.ran)
    for place, count in (asked + ran).items():
        if count > sent[place]:
            faults.append(f"call {place[1]} of {place[0]} was run {count} times and sent {sent[place]} times")
    for session, events in logs.items():
        for event in events:
            if event["type"] == "call_ended" and event.get("cause") == "reported":
                place = (session, event["call_id"])
                if place not in asked and place not in ran:
                    faults.append(f"call {place[1]} of {place[0]} has an outcome, and nothing ran it")
    return faults


def run(arguments):
    tools = StubTools(server_tools())
    served = Served(arguments.program, f"{arguments.work}/server").start()
    served.put_bundle(bundle(arguments.model, arguments.model_url, tools.url))
    client = ChannelClient(served.address, served.key, "real-model", ["files"], client_tools())
    cells, logs, faults = {cell: Cell() for cell in CELLS}, {}, []
    for (form, vote), cell in cells.items():
        began = time.monotonic()
        for at in range(arguments.sessions):
            # Each task comes whole one time and streamed the next.
            streamed = (at + at // len(TASKS)) % 2
            answer = ("whole", "streamed")[streamed]
            cell.streamed += streamed
            session = served.open(f"{form}.{vote}.{answer}", prompt(TASKS[at % len(TASKS)], form), capabilities=["files"])
            client.follow(session)
            until = time.monotonic() + PATIENCE_S
            events, end = served.ended(session)
            while end is None and time.monotonic() < until:
                events, end = served.ended(session)
            if end is None:
                faults.append(f"{session} ({form}, votes {vote}) has no ending after {PATIENCE_S} s")
            logs[session] = events
            cell.take(events, end)
            print(f"{form:8} votes {vote:3} {at + 1:3}/{arguments.sessions} {session} {end['ending'] if end else 'no ending'}",
                  file=sys.stderr, flush=True)
        cell.seconds = time.monotonic() - began
    client.close()
    faults += [f"the client: {error}" for error in client.errors]
    faults += beyond_the_logs(logs, tools, client)
    code = served.stop()
    if code != 0:
        faults.append(f"the server ended with {code}")
    faults += [f"the server's log: {line}" for line in served.panics()]
    verified = 0
    for session in logs:
        good, said = served.verify(session)
        verified += good
        if not good:
            faults.append(said)
    if arguments.keep:
        with open(arguments.keep, "w", encoding="utf-8") as out:
            for events in logs.values():
                out.writelines(json.dumps(event) + "\n" for event in events)
    print(f"model {arguments.model}, {arguments.sessions} sessions a cell, 3 steps, 64 tokens an answer; votes: 2 of 3")
    table(cells)
    events = sum(len(events) for events in logs.values())
    print(f"{len(logs)} logs with {events} events: {verified} verify; "
          f"{sum(cell.endings['none'] for cell in cells.values())} runs without an ending; {len(served.panics())} panics; "
          f"requests to tools {len(tools.asked)}, calls at the client {len(client.ran)}, each allowed by a log"
          if not faults else f"{len(faults)} faults:")
    for fault in faults:
        print(f"  {fault}")
    return 1 if faults else 0


if __name__ == "__main__":
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--program", required=True)
    arguments.add_argument("--model-url", required=True)
    arguments.add_argument("--model", default="smollm2-135m")
    arguments.add_argument("--work", required=True, help="an empty folder for the database and the server's log")
    arguments.add_argument("--sessions", type=int, default=20, help="sessions of each of the four cells")
    arguments.add_argument("--keep", help="a file for all events, a line each")
    sys.exit(run(arguments.parse_args()))
