#!/usr/bin/env python3
"""The same scripted failures through Toolgate and through toolloop: what each executed, refused and lost, and how it ended.

  python3 side_by_side.py --program toolgate --work DIR [--only CASE …]

Both get the same answers of the same scripted provider, and the same tools, whose journal says what was really done. Exits 0
only if Toolgate's columns are those of failures.py, its logs verify and nothing panicked. toolloop's are shown as seen.
"""
import argparse
import collections
import json
import pathlib
import subprocess
import sys

import failures
import toolloop_agent
from scripted_provider import ScriptedProvider
from served import Served
from stub_tools import Reply, StubTools

PATIENCE_S = 120
HUGE = 3_000_000


class Seen:
    """What a system made of a failure."""

    def __init__(self):
        self.done, self.told, self.refused, self.notes, self.lost, self.ended = [], [], [], [], [], None


def server_tools():
    def paid(name):
        return lambda args: Reply({"paid": args["amount"]}, effect=f"{name} {args['account']} {args['amount']}",
                                  after_s=2.5 if name == "slow_pay" else 0)

    return {
        "look_up": lambda args: Reply({"value": 7}, effect=f"look_up {args['key']}"),
        "pay": paid("pay"),
        "slow_pay": paid("slow_pay"),
        "charge": lambda args: Reply({"error": "the bank is closed"}, status=500),
        "set_limit": lambda args: Reply({"set": True}, effect=f"set_limit {args['account']} {args['limit']}", honours_keys=True),
        "store": lambda args: Reply({"stored": True}, effect=f"store {args['number']}"),
        "export": lambda args: Reply(b"x" * HUGE, media="text/plain"),
        "erase": lambda args: Reply({"erased": True}, effect=f"erase {args['table']}"),
    }


def bundle(provider, tools_url):
    text, whole = {"type": "string", "minLength": 1}, {"type": "integer"}

    def tool(name, description, kind, properties, **more):
        return {"description": description, "venue": "server", "class": kind,
                "executor": {"http": {"url": f"{tools_url}/{name}"}},
                "parameters": {"type": "object", "properties": properties, "required": list(properties)}, **more}

    money = {"account": text, "amount": {"type": "integer", "minimum": 1}}
    tools = {
        "look_up": tool("look_up", "Looks something up.", "read", {"key": text}),
        "pay": tool("pay", "Pays money to an account.", "once", money, tags=["payment"]),
        "slow_pay": tool("slow_pay", "Pays money to an account, slowly.", "once", money, timeout_ms=1000),
        "charge": tool("charge", "Charges an account.", "once", money),
        "set_limit": tool("set_limit", "Sets the limit of an account.", "idempotent", {"account": text, "limit": whole}),
        "store": tool("store", "Stores a number.", "once", {"number": whole}),
        "export": tool("export", "Exports everything.", "read", {}),
        "erase": tool("erase", "Erases a table.", "once", {"table": text}),
    }
    models, profiles = {}, {}
    for case in failures.CASES:
        models[case.name] = {"provider": "openai", "base_url": provider.base_url("toolgate", case.name), "model": "scripted",
                             "calls": case.form, "stream": case.stream, "timeout_ms": 15000, "retries": 2}
        profiles[case.name] = {"tools": list(tools), "model": case.name, "trace_requirements": case.evidence,
                               "end_when": case.end_when}
    return {
        "version": 1, "tools": tools, "models": models, "profiles": profiles,
        "default_harness": {"max_steps": 6, "max_tool_calls": 10, "deadline_ms": PATIENCE_S * 1000, "repeat_limit": 3},
        "policies": {
            "lists": {"never": {"on": {"tools": ["erase"]}, "note": "not by machine"}},
            "arguments": {"little": {"on": {"tools": ["pay"]}, "argument": "/amount", "max": 100}},
        },
    }


def killed(case, tools, process_gone):
    """Kills what runs the case while its tool stands still; the tool goes no further."""
    where, name = case.crash.split()

    def wait_and_kill():
        if not tools.wait_held(PATIENCE_S):
            raise RuntimeError(f"{case.name}: `{name}` was never asked for")
        process_gone()
        tools.abandon()

    tools.hold(where, name)
    return wait_and_kill


def through_toolgate(case, served, tools):
    """Plays a case; its session, its log, and what is seen in it."""
    crash = killed(case, tools, served.kill) if case.crash else None
    session = served.open(case.name, toolloop_agent.PROMPT)
    if crash:
        crash()
        served.start()
    events, end = served.ended(session, PATIENCE_S // 2)
    seen = Seen()
    seen.ended = end["ending"] if end else "no ending"
    for event in events:
        kind, content = event["type"], event.get("content") or {}
        if kind == "ballot_received":
            seen.notes += content.get("normalised") or []
            if event["verdict"] in ("malformed", "failed"):
                seen.refused.append(f"{event['verdict']}:{event['reason']}")
        elif kind == "call_decided" and event["decision"] == "reject":
            seen.refused.append(event["reason"])
        elif kind == "step_ended" and event["reason"] != "malformed":
            seen.refused.append(event["reason"])
        elif kind == "call_ended":
            seen.told.append(event["status"])
            cut = (content.get("output") or {}).get("truncated_from")
            if cut:
                seen.notes.append(f"output cut: {event['output_bytes']:,} of {cut:,} bytes kept")
    ballots = [event for event in events if event["type"] == "ballot_received" and event["verdict"] != "failed"]
    steps = [(event["verdict"] == "malformed", event["calls"]) for event in ballots]
    return session, seen, steps


def through_toolloop(case, provider, tools, work):
    """Plays a case in processes of its own: one, and after a kill another."""
    command = [sys.executable, str(pathlib.Path(__file__).with_name("toolloop_agent.py")), "--case", case.name,
               "--model-url", provider.base_url("toolloop", case.name), "--tools-url", tools.url,
               "--checkpoint", f"{work}/{case.name}.checkpoint", *(["--stream"] if case.stream else [])]

    def start():
        with open(f"{work}/{case.name}.stderr", "ab") as errors:
            return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)

    if case.crash:
        first = None

        def kill():
            first.kill()
            first.wait()

        crash = killed(case, tools, kill)
        first = start()
        crash()
    process = start()
    try:
        said, _ = process.communicate(timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        said = None
    record = json.loads(said) if said else {"ended": "no record", "history": []}
    seen = Seen()
    seen.ended = record["ended"]
    for step in record["history"]:
        if step["kind"] == "parse_error":
            seen.refused.append("parse_error")
        for call in step["calls"]:
            if call["status"] == "denied":
                seen.refused.append("denied")
            elif call["status"] == "error" and call["result"].startswith("unknown tool"):
                seen.refused.append("unknown_tool")
            elif call["status"] == "error" and call["result"].startswith("invalid arguments"):
                seen.refused.append("invalid_arguments")
            else:
                seen.told.append(call["status"])
            if call["length"] > 9_000:
                seen.notes.append(f"output cut: {call['length']:,} of {HUGE:,} characters kept, mark included")
    return seen, [(step["kind"] == "parse_error", len(step["calls"])) for step in record["history"]]


def account(seen, steps, given, effects):
    """What was really done, and what the model asked for or a tool did that no record tells of."""
    seen.done = sorted(entry["effect"] for entry in effects)
    answers = [answer for answer in given if not answer.is_fault]
    recorded = sum(answer.wants if is_unread else calls for answer, (is_unread, calls) in zip(answers, steps))
    lost = sum(answer.wants for answer in answers) - recorded
    if lost > 0:
        seen.lost.append(f"{lost} {'call' if lost == 1 else 'calls'}")
    # A refused call has no effect, so what was told of are outcomes; a tool without effects has none to lose.
    unknown = len(seen.done) - len(seen.told)
    if unknown > 0:
        seen.lost.append(f"the record of {unknown} {'effect' if unknown == 1 else 'effects'}")
    faults = len(given) - len(answers)
    if faults and not any(note.startswith("attempt_discarded") for note in seen.notes):
        seen.notes.append(f"{len(given)} requests")


def differences(case, seen):
    """Where Toolgate's columns are not those expected."""
    kinds = ("attempt_discarded", "duplicate_call_dropped", "output cut")
    notes = [note.split(": ")[0] for note in seen.notes if note.startswith(kinds)]
    pairs = {"done": (sorted(case.done), seen.done), "told": (case.told, seen.told), "refused": (case.refused, seen.refused),
             "lost": ([], seen.lost), "ended": (case.ended, seen.ended), "notes": (case.notes, notes)}
    return [f"{case.name}: {name} should be {want}, and is {have}" for name, (want, have) in pairs.items() if want != have]


def listed(items):
    return ", ".join(f"{item} ×{count}" if count > 1 else item for item, count in collections.Counter(items).items()) or "-"


def show(rows):
    print("done: effects in the tools' journal; told: outcomes in the record; lost: what no record tells of")
    heads = ("system", "done", "told", "refused", "lost", "ended", "notes")
    lines = [[name, listed(seen.done), listed(seen.told), listed(seen.refused), listed(seen.lost), seen.ended, listed(seen.notes)]
             for _, *both in rows for name, seen in zip(("toolgate", "toolloop"), both)]
    widths = [max(len(line[at]) for line in [heads, *lines]) for at in range(len(heads))]
    print("    " + "  ".join(head.ljust(width) for head, width in zip(heads, widths)).rstrip())
    for number, (case, *_) in enumerate(rows):
        print(f"{number + 1:2}  {case.what}")
        for line in lines[2 * number:2 * number + 2]:
            print("    " + "  ".join(part.ljust(width) for part, width in zip(line, widths)).rstrip())
    for at, name in ((1, "toolgate"), (2, "toolloop")):
        seen = [row[at] for row in rows]
        print(f"{name}: {sum(len(s.done) for s in seen)} effects, {sum(len(s.refused) for s in seen)} refusals, "
              f"something lost in {sum(bool(s.lost) for s in seen)} cases, ended {listed(s.ended for s in seen)}")


def run(arguments):
    cases = [case for case in failures.CASES if not arguments.only or case.name in arguments.only]
    provider = ScriptedProvider({case.name: case.script for case in failures.CASES})
    tools = StubTools(server_tools())
    served = Served(arguments.program, f"{arguments.work}/server").start()
    served.put_bundle(bundle(provider, tools.url))
    rows, faults, sessions = [], [], []
    for case in cases:
        print(case.name, file=sys.stderr, flush=True)
        session, ours, steps = through_toolgate(case, served, tools)
        sessions.append(session)
        theirs, their_steps = through_toolloop(case, provider, tools, arguments.work)
        if case.name.startswith("tool_late"):
            # Nobody waits for it any more, and it takes effect all the same.
            tools.wait_done(session, len(ours.told), PATIENCE_S)
            tools.wait_done(f"toolloop:{case.name}", len(theirs.told), PATIENCE_S)
        both = (("toolgate", session, ours, steps), ("toolloop", f"toolloop:{case.name}", theirs, their_steps))
        for system, about, seen, of in both:
            account(seen, of, provider.given[(system, case.name)], tools.effects(about))
        faults += differences(case, ours)
        rows.append((case, ours, theirs))
    code = served.stop()
    if code != 0:
        faults.append(f"the server ended with {code}")
    faults += [f"the server's log: {line}" for line in served.panics()]
    for session in sessions:
        good, said = served.verify(session)
        if not good:
            faults.append(said)
    print("toolloop 1.1.0 as configured here: " + toolloop_agent.CONFIGURATION.replace("\n", " "))
    show(rows)
    print(f"{len(cases)} failures; toolgate's columns are as expected and its {len(sessions)} logs verify" if not faults
          else f"{len(faults)} faults:")
    for fault in faults:
        print(f"  {fault}")
    return 1 if faults else 0


if __name__ == "__main__":
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--program", required=True)
    arguments.add_argument("--work", required=True, help="an empty folder for the database, logs and checkpoints")
    arguments.add_argument("--only", nargs="*", default=[], help="names of failures.py")
    sys.exit(run(arguments.parse_args()))
