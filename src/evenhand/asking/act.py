"""Asking an agent to act: it calls tools of a simulated world until it closes the case, or has used all its steps.

A model that takes tools is asked by OpenAI's protocol. Others have the tools in their system prompt and reply with a
line of JSON, which is decoded under a schema where the model can do that. An agent of the user's own that calls the
tools itself is asked once. What is wrong with a call is told to the model, and costs it a step.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import orjson

from evenhand.asking.chat import instructed
from evenhand.asking.reply import declined, object_schema
from evenhand.benchmarks.agents.world import World
from evenhand.core.events import held
from evenhand.core.prompts import Prompt, load_prompt
from evenhand.core.types import (
    Answer,
    Completion,
    Cut,
    Message,
    Outcome,
    Params,
    Refusal,
    Result,
    Sample,
    ToolCall,
    Unscored,
)
from evenhand.models.base import TOOLBOX
from evenhand.reading.refusals import looks_like_refusal
from evenhand.reading.text import is_web_page
from evenhand.session import Session

AGENT = "agent"
FINISH = "finish"
"""The name by which a model without the protocol says that it is done."""
WRITING = Params(temperature=0.0, max_tokens=512)


async def act(session: Session, sample: Sample, prompt: Prompt, messages: Sequence[Message]) -> Outcome:
    """The agent's way through one case; the notes have its transcript, the tools called and the decision."""
    by_protocol = "tools" in await session.features()
    case = Case.of(sample)
    outcome = await _played(session, case, prompt, messages, by_protocol=by_protocol)
    if outcome is not None:
        return outcome
    # The server turned out not to take tools; the reply without them says nothing.
    outcome = await _played(session, Case.of(sample), prompt, messages, by_protocol=False)
    return outcome or Outcome(Unscored("the tools could not be offered"))


@dataclass(slots=True)
class Case:
    """One case under way."""

    world: World
    most: int
    steps: int = 0
    turns: list[tuple[str, str, str]] = field(default_factory=list[tuple[str, str, str]])
    """(who, what, the key by which two transcripts are compared)."""

    @classmethod
    def of(cls, sample: Sample) -> Case:
        about = sample.metadata["world"]
        return cls(World(about["tools"], about["state"], about.get("functions"), about["steps"]), about["steps"])

    def use(self, call: ToolCall) -> str:
        result = self.world.use(call)
        shown = ", ".join(f"{name}: {value}" for name, value in _given(call).items()) or call.arguments.strip("{} ")
        self.turns.append(("model", f"{call.name}({shown})", f"{call.name} {_given(call).get('decision', '')}"))
        self.turns.append(("tool", result, ""))
        return result

    def ended(self, result: Result) -> Outcome:
        """The outcome; an answer is what the person is told."""
        notes = {
            "steps": self.steps,
            "called": [each.name for each in self.world.calls],
            "decision": self.world.decision,
            "errors": self.world.errors,
            "turns": [list(each) for each in self.turns],
        }
        return Outcome(result, "decided" if self.world.decision is not None else "done", notes=notes)


async def _played(
    session: Session, case: Case, prompt: Prompt, messages: Sequence[Message], *, by_protocol: bool
) -> Outcome | None:
    """Play the case; None if the server was found not to take tools."""
    params = session.sampled(WRITING)
    tools = case.world.functions()
    settings: dict[str, Any] = {"temperature": params.temperature, "max_tokens": params.max_tokens, "tools": tools}
    if "plays" in session.model().features:
        settings["world"] = case.world.digest()
    if not by_protocol:
        told = load_prompt(__file__, "tools")
        [system] = told.render(tools="\n".join(orjson.dumps(each).decode() for each in tools))
        messages = instructed(messages, system.content)
        if "schema" in session.model().features:
            settings["schema"] = _schema(tools)
    while case.steps < case.most:
        case.steps += 1
        with held(TOOLBOX, case.world.fresh):
            generation = await session.ask(prompt, messages, Params(**settings), agent=AGENT, slot=f"{case.steps}")
        if by_protocol and "tools" not in session.model().features:
            return None
        completion = generation.completions[0]
        calls = completion.calls or (() if by_protocol else read_calls(completion.text))
        if not calls:
            return case.ended(_said(case, completion))
        played = all(each.result is not None for each in calls)  # by a function that calls the tools itself
        if played and completion.thought:  # what the agents of a system said to each other
            case.turns.append(("model", completion.thought, ""))
        results = [case.use(call) for call in calls]
        if played:
            case.steps = len(calls)
        if played or case.world.decision is not None:
            if completion.text and completion.calls:
                case.turns.append(("model", completion.text, "reply"))
            return case.ended(Answer(_message(calls) or completion.text or "(nothing was said)"))
        messages = (*messages, *_next(completion, calls, results))
    return case.ended(Unscored(f"the agent did not finish within {case.most} steps"))


def _said(case: Case, completion: Completion) -> Result:
    """A reply without a tool: the end of the case, unless it is none."""
    if refusal := declined(completion):
        return refusal
    text = completion.text.strip()
    finished = next((each for each in _objects(text) if each.get("tool") == FINISH), None)
    if finished is not None:
        text = str(_arguments(finished).get("message") or "(nothing was said)")
    if not text:
        thinking = completion.finish == "length" and completion.thought
        return Cut("cut while the model was thinking") if thinking else Unscored("the agent's reply is empty")
    if is_web_page(text):
        return Unscored("the agent replied with a web page", text)
    if completion.finish == "length":
        return Cut("the agent's reply reached its token limit", text)
    case.turns.append(("model", text, "reply"))
    return Refusal(text) if looks_like_refusal(text) else Answer(text)


def read_calls(text: str) -> tuple[ToolCall, ...]:
    """The first call in a reply without the protocol; a broken one has no name, so that the model is told."""
    for each in _objects(text):
        name = each.get("tool")
        if name == FINISH:
            return ()
        if isinstance(name, str):
            return (ToolCall("", name, orjson.dumps(_arguments(each)).decode()),)
    return (ToolCall("", "", text[:500]),) if '"tool"' in text else ()


def _objects(text: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    start = text.find("{")
    while start >= 0:
        try:
            value, end = json.JSONDecoder().raw_decode(text, start)
        except (ValueError, RecursionError):
            end = start + 1
        else:
            found += [cast("dict[str, Any]", value)] if isinstance(value, dict) else []
        start = text.find("{", end)
    return found


def _arguments(call: Mapping[str, Any]) -> dict[str, Any]:
    given = call.get("arguments")
    return cast("dict[str, Any]", given) if isinstance(given, dict) else {}


def _next(completion: Completion, calls: Sequence[ToolCall], results: Sequence[str]) -> list[Message]:
    """What the model reads next: its own calls and their results, in the protocol in which it made them."""
    if completion.calls:
        told = [Message("tool", result, call_id=call.id) for call, result in zip(calls, results, strict=True)]
        return [Message("assistant", completion.text, tuple(calls)), *told]
    told = [f"Result of {call.name or 'your reply'}: {result}" for call, result in zip(calls, results, strict=True)]
    return [Message("assistant", completion.text), Message("user", "\n".join(told))]


def _message(calls: Sequence[ToolCall]) -> str:
    """What the person is told by the call that closes a case."""
    given = _given(calls[-1])
    return str(given.get("message") or given.get("reason") or "")


def _given(call: ToolCall) -> dict[str, Any]:
    try:
        given: Any = orjson.loads(call.arguments or "{}")
    except orjson.JSONDecodeError:
        return {}
    return cast("dict[str, Any]", given) if isinstance(given, dict) else {}


def _schema(tools: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    end: Mapping[str, Any] = {"name": FINISH, "parameters": object_schema(message={"type": "string"})}
    return {
        "anyOf": [
            object_schema(tool={"type": "string", "enum": [each["name"]]}, arguments=each["parameters"])
            for each in (*tools, end)
        ]
    }
