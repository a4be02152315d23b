#!/usr/bin/env python3
"""One run of toolloop's own agent, as a process: one failure, its tools over HTTP, its record as one line of JSON.

  python3 toolloop_agent.py --case NAME --model-url URL --tools-url URL --checkpoint FILE [--stream] [--limit N …]

How it is configured stands in CONFIGURATION, which the table prints. What is not here: what is made of the record.
"""
import argparse
import asyncio
import json
import pathlib

import httpx2
from toolloop import Agent, AgentState, ControlMode, Decision, OnMax, tool
from toolloop.providers import OpenAICompatProvider

CONFIGURATION = """\
its OpenAICompatProvider (OpenAI's SDK, which repeats twice by itself); where the failure is one of a stream, with a
`stream()` over the same client, as its README describes it; `max_retries=2`, `provider_timeout=15`, `max_parse_failures=3`;
`max_iterations=6` with `on_max=PARTIAL`; `control=APPROVE` with an `on_tool_call` hook that holds the same rules as
Toolgate's policy; calls one after the other; `checkpoint` to a file with `checkpoint_every=1`. A killed process is started
again from its checkpoint with "Go on.", and where there is none with the first message. Tools are `@tool` functions with
type hints as in its README, each with a time-out of its own in its HTTP client, since toolloop has none for tools."""

PROMPT = "Do what is to be done."


class StreamingProvider(OpenAICompatProvider):
    """With the optional `stream()`: the pieces of the same endpoint."""

    async def stream(self, messages):
        answer = await self.client.chat.completions.create(
            model=self.model, stream=True, messages=[{"role": m.role.value, "content": m.content} for m in messages])
        async for chunk in answer:
            if chunk.choices and chunk.choices[0].delta.content:
                yield chunk.choices[0].delta.content


def tools(url, about):
    async def ask(name, timeout=15, **args):
        async with httpx2.AsyncClient(timeout=timeout) as client:
            answer = await client.post(f"{url}/{name}", json=args, headers={"x-about": about})
        answer.raise_for_status()
        return answer.text

    @tool
    async def look_up(key: str) -> str:
        """Looks something up."""
        return await ask("look_up", key=key)

    @tool(dangerous=True)
    async def pay(account: str, amount: int) -> str:
        """Pays money to an account."""
        return await ask("pay", account=account, amount=amount)

    @tool(dangerous=True)
    async def slow_pay(account: str, amount: int) -> str:
        """Pays money to an account, slowly."""
        return await ask("slow_pay", timeout=1, account=account, amount=amount)

    @tool(dangerous=True)
    async def charge(account: str, amount: int) -> str:
        """Charges an account."""
        return await ask("charge", account=account, amount=amount)

    @tool
    async def set_limit(account: str, limit: int) -> str:
        """Sets the limit of an account."""
        return await ask("set_limit", account=account, limit=limit)

    @tool
    async def store(number: int) -> str:
        """Stores a number."""
        return await ask("store", number=number)

    @tool
    async def export() -> str:
        """Exports everything."""
        return await ask("export")

    @tool(dangerous=True)
    async def erase(table: str) -> str:
        """Erases a table."""
        return await ask("erase", table=table)

    return [look_up, pay, slow_pay, charge, set_limit, store, export, erase]


async def judge(call):
    """The same rules as in Toolgate's bundle."""
    if call.name == "erase":
        return Decision.deny("not by machine")
    if call.name == "pay" and isinstance(call.args.get("amount"), int) and call.args["amount"] > 100:
        return Decision.deny("at most 100")
    return Decision.allow()


async def run(arguments):
    provider = (StreamingProvider if arguments.stream else OpenAICompatProvider)("scripted", arguments.model_url, "none")
    options = {
        "control": ControlMode.APPROVE, "on_tool_call": judge, "max_retries": 2, "provider_timeout": 15,
        "max_parse_failures": 3, "checkpoint": arguments.checkpoint, "checkpoint_every": 1,
        "on_delta": (lambda piece: None) if arguments.stream else None,
    }
    having = tools(arguments.tools_url, f"toolloop:{arguments.case}")
    saved = pathlib.Path(arguments.checkpoint)
    if saved.exists():
        agent, prompt = Agent.from_state(AgentState.from_json(saved.read_text()), provider, having, **options), "Go on."
    else:
        agent, prompt = Agent(provider, having, **options), PROMPT
    try:
        result = await agent.run(prompt, max_iterations=6, on_max=OnMax.PARTIAL)
        ended, output = result.status.value, str(result.output)[:200]
    except Exception as fault:  # Whatever it raises is how the run ended for its caller.
        ended, output = f"raised {type(fault).__name__}", str(fault)[:200]
    history = [{"kind": step.kind, "calls": [{"name": c.name, "args": c.args, "status": c.status, "result": c.result[:20_000],
                                              "length": len(c.result)} for c in step.calls]}
               for step in agent.to_state().history]
    print(json.dumps({"ended": ended, "output": output, "history": history}), flush=True)


if __name__ == "__main__":
    arguments = argparse.ArgumentParser()
    for name in ("--case", "--model-url", "--tools-url", "--checkpoint"):
        arguments.add_argument(name, required=True)
    arguments.add_argument("--stream", action="store_true")
    asyncio.run(run(arguments.parse_args()))
