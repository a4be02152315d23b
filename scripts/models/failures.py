"""The failures that both systems are put through: what the model says, and what Toolgate must make of it.

What is not here: how a system is run (side_by_side.py, toolloop_agent.py). Nothing is expected of toolloop: what it did is
what the table shows.
"""
import dataclasses
import json

from scripted_provider import Answer, Problem


def call(name, /, **args):
    return {"name": name, "args": args}


def calls(*items, ids=None):
    """An envelope that asks for calls, each with an id of its own unless `ids` says otherwise."""
    ids = ids or [str(at + 1) for at in range(len(items))]
    return json.dumps({"type": "tool_call", "calls": [{"id": one, **item} for one, item in zip(ids, items)]})


def asks(*items, ids=None):
    return Answer(calls(*items, ids=ids), wants=len(items))


def says(text, wants=0, **more):
    return Answer(text, wants, **more)


def final(text="over"):
    return json.dumps({"type": "final_answer", "output": text})


def fenced(text):
    return f"```json\n{text}\n```"


OVER = Answer(final())
PAY_ADA, PAY_BOB = call("pay", account="ada", amount=10), call("pay", account="bob", amount=20)
ADA, BOB = "pay ada 10", "pay bob 20"
LOOK, LATE = call("look_up", key="rate"), call("slow_pay", account="ada", amount=10)


@dataclasses.dataclass
class Case:
    """A failure: the answers of the model, and Toolgate's columns."""

    name: str
    what: str
    script: list
    # Effects on the world, in any order; statuses of outcomes, refusals by code and notes of the log, in their order.
    done: list = dataclasses.field(default_factory=list)
    told: list = dataclasses.field(default_factory=list)
    refused: list = dataclasses.field(default_factory=list)
    ended: str = "done"
    notes: list = dataclasses.field(default_factory=list)
    form: str = "envelope"
    stream: bool = False
    # Where the process is killed: while the named tool stands `before` or `after` its effect.
    crash: str | None = None
    # Successes by tag before the model may say that it is done.
    evidence: dict = dataclasses.field(default_factory=dict)
    # Rules that end the run.
    end_when: dict = dataclasses.field(default_factory=dict)


CASES = [
    Case("invalid_json", "invalid JSON (unquoted key), then mended",
         [says('{"type":"tool_call","calls":[{"id":"1",name:"pay","args":{"account":"ada","amount":10}}]}', 1), asks(PAY_ADA),
          OVER],
         done=[ADA], told=["ok"], refused=["malformed:syntax"]),
    Case("two_envelopes", "two calls in two fences of one answer",
         [says(fenced(calls(PAY_ADA)) + "\n" + fenced(calls(PAY_BOB)), 2), OVER],
         refused=["malformed:ambiguous_envelope"]),
    Case("call_and_final", "a call and an invented final answer, fenced",
         [says(fenced(calls(PAY_ADA)) + "\n" + fenced(final("Ada has her 10.")), 1), OVER],
         refused=["malformed:ambiguous_envelope"]),
    Case("call_and_final_bare", "a call and an invented final answer, bare",
         [says(calls(PAY_ADA) + "\n" + final("Ada has her 10."), 1), OVER],
         refused=["malformed:ambiguous_envelope"]),
    Case("final_with_calls", "one envelope that is both a final answer and a call",
         [says(json.dumps({"type": "final_answer", "output": "paid", "calls": [{"id": "1", **PAY_ADA}]}), 1), OVER],
         refused=["malformed:ambiguous_envelope"]),
    Case("prose_around", "prose around a fenced call",
         [says("I will pay now.\n" + fenced(calls(PAY_ADA)) + "\nAll right?", 1), OVER],
         refused=["malformed:ambiguous_envelope"]),
    Case("open_fence", "a code fence that is never closed",
         [says("```json\n" + calls(PAY_ADA), 1), OVER], refused=["malformed:syntax"]),
    Case("thought_call", "a call inside a think block, then the answer",
         [says("<think>I could pay:\n" + fenced(calls(PAY_ADA)) + "\nbut nobody asked.</think>\n" + final("nothing to do")),
          OVER]),
    Case("unknown_tool", "a tool that does not exist",
         [asks(call("drop_table", name="customers")), OVER], refused=["unknown_tool"]),
    Case("wrong_type", "an argument of the wrong type (\"ten\")",
         [asks(call("pay", account="ada", amount="ten")), OVER], refused=["schema_invalid"]),
    Case("number_as_text", "a number sent as text (\"10\")",
         [asks(call("pay", account="ada", amount="10")), OVER], refused=["schema_invalid"]),
    Case("true_as_number", "`true` where a number belongs",
         [asks(call("pay", account="ada", amount=True)), OVER], refused=["schema_invalid"]),
    Case("extra_argument", "an argument that the tool does not have",
         [asks(call("pay", account="ada", amount=10, note="now")), OVER], refused=["schema_invalid"]),
    Case("truncated", "an answer cut by the output limit that can still be read",
         [says(calls(PAY_ADA), 1, finish="length"), OVER], refused=["malformed:truncated"]),
    Case("truncated_middle", "an answer cut in the middle of a call",
         [says(calls(PAY_ADA)[:50], 1, finish="length"), OVER], refused=["malformed:truncated"]),
    Case("filtered", "an answer stopped by the provider's content filter",
         [says(calls(PAY_ADA), 1, finish="content_filter"), OVER], refused=["malformed:content_filtered"]),
    Case("duplicate_id", "two different calls under one id",
         [asks(PAY_ADA, PAY_BOB, ids=["1", "1"]), OVER], refused=["malformed:duplicate_call_id"]),
    Case("sent_twice", "the same call sent twice under one id",
         [says(calls(PAY_ADA, PAY_ADA, ids=["1", "1"]), 1), OVER],
         done=[ADA], told=["ok"], notes=["duplicate_call_dropped"]),
    Case("repeated", "the same call in every answer", [asks(PAY_ADA)],
         done=[ADA] * 3, told=["ok"] * 3, refused=["repeated_call"] * 3, ended="max_steps_exceeded"),
    Case("denied_tool", "a tool that the policy forbids",
         [asks(call("erase", table="customers")), OVER], refused=["denylisted"]),
    Case("denied_amount", "an amount beyond the policy's bound",
         [asks(call("pay", account="ada", amount=5000)), OVER], refused=["argument_rule"]),
    Case("beyond_2_53", "a number beyond 2^53",
         [asks(call("store", number=9007199254740993)), OVER], done=["store 9007199254740993"], told=["ok"]),
    Case("beyond_64_bits", "a number beyond 64 bits",
         [asks(call("store", number=123456789012345678901)), OVER], refused=["malformed:number_out_of_range"]),
    Case("duplicate_keys", "one key twice, with different values",
         [says('{"type":"tool_call","calls":[{"id":"1","name":"pay","args":{"account":"ada","amount":1,"amount":90}}]}', 1),
          OVER],
         refused=["malformed:duplicate_key"]),
    Case("no_evidence", "\"done\" although nothing was paid, then the payment",
         [says(final("Ada has her 10.")), asks(PAY_ADA), OVER],
         done=[ADA], told=["ok"], refused=["trace_requirements_not_met"], evidence={"payment": 1}),
    Case("native_call", "a native call from a model asked for an envelope, in every answer",
         [Answer(wants=1, native=[("pay", PAY_ADA["args"])], finish="tool_calls")],
         refused=["malformed:no_envelope"] * 3, ended="max_parse_failures_exceeded"),
    Case("native_and_envelope", "a native call and another one in the text (`calls: auto`)",
         [Answer(calls(PAY_BOB), wants=2, native=[("pay", PAY_ADA["args"])], finish="tool_calls"), OVER],
         refused=["malformed:ambiguous_envelope"], form="auto"),
    Case("native_beside", "the same from a model asked for an envelope only (`calls: envelope`)",
         [Answer(calls(PAY_BOB), wants=2, native=[("pay", PAY_ADA["args"])], finish="tool_calls"), OVER],
         refused=["malformed:ambiguous_envelope"]),
    Case("tool_fails", "a tool that fails",
         [asks(call("charge", account="ada", amount=10)), OVER], told=["failed"]),
    # The model is told that it may have happened. What it asks for then is a new call, unless a rule ends the run.
    Case("tool_late", "a tool that takes effect after its time-out; the model would ask again", [asks(LATE), asks(LATE), OVER],
         done=["slow_pay ada 10"], told=["timed_out"], ended="indeterminate_outcome"),
    Case("tool_late_ruled", "the same, where a rule would end the run, too (`end_when`)", [asks(LATE), asks(LATE), OVER],
         done=["slow_pay ada 10"], told=["timed_out"], ended="indeterminate_outcome",
         end_when={"late": {"description": "nobody knows", "outcomes": {"status": "timed_out", "at_least": 1}}}),
    Case("huge_output", "a tool that answers with 3 MB", [asks(call("export")), OVER], told=["ok"], notes=["output cut"]),
    Case("huge_answer", "a model that answers with 3 MB", [says(final("x" * 3_000_000)), OVER],
         refused=["failed:too_large"], ended="provider_failed"),
    Case("provider_500", "the provider answers 500 twice", [[Problem(500), Problem(500), asks(PAY_ADA)], OVER],
         done=[ADA], told=["ok"], notes=["attempt_discarded:server_error"] * 2),
    Case("provider_429", "the provider answers 429 with `retry-after`",
         [[Problem(429, headers={"retry-after": "1"}), asks(PAY_ADA)], OVER],
         done=[ADA], told=["ok"], notes=["attempt_discarded:rate_limited"]),
    Case("provider_down", "the provider answers 500 for ever, after a payment", [asks(PAY_ADA), Problem(500)],
         done=[ADA], told=["ok"], refused=["failed:server_error"], ended="provider_failed",
         notes=["attempt_discarded:server_error"] * 2),
    Case("stream_lost", "a stream whose connection is lost, then a whole one",
         [[says(calls(PAY_BOB), 0, breaks="half"), asks(PAY_ADA)], OVER],
         done=[ADA], told=["ok"], notes=["attempt_discarded:transport"], stream=True),
    Case("stream_no_end", "a stream that stops without its end, then a whole one",
         [[says(calls(PAY_BOB), 0, breaks="no_end"), asks(PAY_ADA)], OVER],
         done=[ADA], told=["ok"], notes=["attempt_discarded:transport"], stream=True),
    Case("crash_before", "killed between the model's answer and the payment", [asks(LOOK), asks(PAY_ADA), OVER],
         done=["look_up rate"], told=["ok", "indeterminate"], ended="indeterminate_outcome", crash="before pay"),
    Case("crash_after", "killed between the payment and the next step", [asks(LOOK), asks(PAY_ADA), OVER],
         done=["look_up rate", ADA], told=["ok", "indeterminate"], ended="indeterminate_outcome", crash="after pay"),
    Case("crash_before_read", "killed before a look-up is done", [asks(LOOK), OVER],
         done=["look_up rate"], told=["ok"], crash="before look_up"),
    Case("crash_after_keyed", "killed after a call that may be repeated by its key",
         [asks(call("set_limit", account="ada", limit=5)), OVER],
         done=["set_limit ada 5"], told=["ok"], crash="after set_limit"),
]
