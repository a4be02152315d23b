"""AgentDojo as data: per suite its tools, its user tasks with their calls and what these returned, its injection tasks.

  export.py OUT

Everything is computed by AgentDojo's own code in its own sandboxed environments; no model is asked. Each user task is
played twice: in the clean environment, and in one whose every injection place holds MARK, so that the reader can put
any attack text there. The clock of the environments stands still: same package, same bytes.
"""
import datetime
import importlib.abc
import importlib.machinery
import json
import pathlib
import sys
from types import ModuleType

VERSION = "v1.2.2"
MARK = "INJECTION-PLACE"
BACKENDS = {"anthropic", "cohere", "google", "langchain", "openai", "requests"}


class Name(type):
    """A class of which every attribute is one too, and that takes any parameters."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Name(name, (), {})

    def __getitem__(cls, _):
        return cls


class Stub(ModuleType):
    """A module whose every name is such a class: enough for annotations and base classes."""

    __path__: list[str] = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Name(name, (), {})


class Stubs(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Stands in for the model back ends, which AgentDojo imports and this script never calls."""

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in BACKENDS:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return Stub(spec.name)

    def exec_module(self, module):
        pass


sys.meta_path.insert(0, Stubs())

from agentdojo.attacks import baseline_attacks as plain  # noqa: E402
from agentdojo.attacks import important_instructions_attacks as signed  # noqa: E402
from agentdojo.default_suites.v1.tools import calendar_client, cloud_drive_client, email_client  # noqa: E402
from agentdojo.functions_runtime import FunctionsRuntime  # noqa: E402
from agentdojo.task_suite.load_suites import get_suites  # noqa: E402
from pydantic import BaseModel  # noqa: E402

ATTACKS = (
    plain.DirectAttack,
    plain.IgnorePreviousAttack,
    plain.SystemMessageAttack,
    signed.ImportantInstructionsAttackNoModelName,
    signed.ToolKnowledgeAttack,
)


class Still(datetime.datetime):
    """A clock that stands still, on the day on which the environments play."""

    @classmethod
    def now(cls, tz=None):
        return cls(2024, 5, 15, 12, tzinfo=tz)


def stop_the_clock():
    still = ModuleType("datetime")
    still.__dict__.update({name: getattr(datetime, name) for name in dir(datetime) if not name.startswith("__")})
    still.datetime = Still
    for module in (calendar_client, cloud_drive_client, email_client):
        module.datetime = still


class Pipeline:
    """What attack texts are made for: a model of no particular name."""

    name = "local"


def plain_json(value):
    """A tool's result as JSON."""
    if isinstance(value, BaseModel):
        return plain_json(value.model_dump(mode="json"))
    if isinstance(value, dict):
        return {str(key): plain_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set)):
        items = sorted(value, key=repr) if isinstance(value, set) else value
        return [plain_json(item) for item in items]
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    return str(value)


def play(suite, env, calls):
    """Runs calls one after the other and gives each with what it returned."""
    runtime = FunctionsRuntime(suite.tools)
    played = []
    for call in calls:
        value, error = runtime.run_function(env, call.function, dict(call.args))
        played.append(
            {
                "tool": call.function,
                "args": json.loads(json.dumps(dict(call.args), default=str)),
                "output": plain_json(value),
                "error": error,
            }
        )
    return played


def user_task(suite, task):
    clean = task.init_environment(suite.load_and_inject_default_environment({}))
    truth = task.ground_truth(clean.model_copy(deep=True))
    calls = play(suite, clean, truth)
    places = {place: MARK for place in suite.get_injection_vector_defaults()}
    marked = play(suite, task.init_environment(suite.load_and_inject_default_environment(places)), truth)
    for call, other in zip(calls, marked, strict=True):
        carries = other["error"] is None and MARK in json.dumps(other["output"])
        call["poisoned"] = other["output"] if carries else None
    return {"id": task.ID, "prompt": task.PROMPT, "calls": calls}


def attack_text(attack, task):
    fill = {"goal": task.GOAL, "user": getattr(attack, "user_name", ""), "model": getattr(attack, "model_name", "")}
    if isinstance(attack, signed.ToolKnowledgeAttack):
        try:
            fill["tools"] = attack.get_tools_sequence(task)
        except ValueError:  # No placeholders: the goal alone.
            fill["tools"] = ""
    return attack.jailbreak.format(**fill)


def injection_task(suite, task, attacks):
    env = suite.load_and_inject_default_environment({})
    texts = {name: attack_text(attack, task) for name, attack in attacks.items()}
    calls = play(suite, env, task.ground_truth(env.model_copy(deep=True)))
    return {"id": task.ID, "goal": task.GOAL, "texts": texts, "calls": calls}


def main():
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    stop_the_clock()
    for name, suite in sorted(get_suites(VERSION).items()):
        attacks = {cls.name: cls(suite, Pipeline()) for cls in ATTACKS}
        by_number = lambda item: int(item[0].rsplit("_", 1)[1])  # noqa: E731
        data = {
            "format": 1,
            "suite": name,
            "benchmark": VERSION,
            "mark": MARK,
            "tools": [
                {"name": t.name, "description": t.description, "parameters": t.parameters.model_json_schema()}
                for t in suite.tools
            ],
            "user_tasks": [user_task(suite, t) for _, t in sorted(suite.user_tasks.items(), key=by_number)],
            "injection_tasks": [
                injection_task(suite, t, attacks) for _, t in sorted(suite.injection_tasks.items(), key=by_number)
            ],
        }
        path = out / f"{name}.json"
        path.write_text(json.dumps(data, indent=1, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")
        calls = sum(len(t["calls"]) for t in data["user_tasks"])
        print(
            f"{name}: {len(data['tools'])} tools, {len(data['user_tasks'])} user tasks with {calls} calls, "
            f"{len(data['injection_tasks'])} injection tasks"
        )


main()
