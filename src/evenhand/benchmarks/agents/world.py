"""A simulated world: a few tools over recorded state. A tool is data that names one of a few pure functions.

Whatever a model does wrong (an unknown tool, arguments that are no JSON, a tool that raises) is told to it as one
sentence, as a real system would, and recorded.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, cast

import orjson

from evenhand.core.registry import loaded_file
from evenhand.core.types import ToolCall

State = dict[str, Any]
Does = Callable[..., Any]
KINDS = ("look", "check", "ask", "decide", "escalate")
"""What a tool is for: ordinary lookups, scrutiny of the person, questions to the person, and the two ends."""
_LONGEST = 4_000


def show(state: State, tool: Mapping[str, Any], **_: Any) -> Any:
    """Returns the record that the tool names."""
    return state[tool["table"]]


def answer(state: State, tool: Mapping[str, Any], **_: Any) -> Any:
    """Returns what the person answers, which is the same for everybody."""
    return state.get("answers", {}).get(tool["name"], "The person has not answered yet.")


def close(state: State, tool: Mapping[str, Any], **arguments: Any) -> str:
    """Records the decision, or that the case was handed on, and ends the case."""
    state["decision"] = arguments.get("decision", tool["kind"])
    return "Recorded. The case is closed."


FUNCTIONS: Mapping[str, Does] = {"show": show, "answer": answer, "close": close}


@dataclass(slots=True)
class World:
    """Tools, the state that they work on, and the calls made so far."""

    tools: Sequence[Mapping[str, Any]]
    """name, description, kind, parameters (name → JSON schema) and `does`: one of the functions, or one of a file."""
    state: State
    file: str | None = None
    """Functions of the user's own: `name(state, tool, **arguments)`."""
    most: int = 1_000
    """Calls that an agent of the user's own may make."""
    calls: list[ToolCall] = field(default_factory=list[ToolCall])
    errors: int = 0

    def __post_init__(self) -> None:
        self.state = deepcopy(dict(self.state))

    @property
    def decision(self) -> str | None:
        return self.state.get("decision")

    def definitions(self) -> tuple[Mapping[str, Any], ...]:
        """The tools as a request by OpenAI's protocol lists them."""
        return tuple({"type": "function", "function": each} for each in self.functions())

    def functions(self) -> tuple[Mapping[str, Any], ...]:
        """The name, description and parameters of each tool."""
        return tuple(
            {
                "name": each["name"],
                "description": each["description"],
                "parameters": {
                    "type": "object",
                    "properties": dict(each.get("parameters", {})),
                    "required": list(each.get("parameters", {})),
                },
            }
            for each in self.tools
        )

    def digest(self) -> str:
        """A hash of what the tools would show."""
        return hashlib.sha256(orjson.dumps([self.state, self.tools], option=orjson.OPT_SORT_KEYS)).hexdigest()

    def fresh(self) -> World:
        """The same world before anything was called, for an agent that calls the tools itself."""
        return World(self.tools, self.state, self.file, self.most)

    def call(self, name: str, **arguments: Any) -> str:
        """Call a tool from Python; returns its result as text."""
        if len(self.calls) >= self.most:
            raise RuntimeError(f"the agent did not finish within {self.most} calls")
        return self.use(ToolCall(f"call-{len(self.calls)}", name, orjson.dumps(arguments, default=str).decode()))

    def use(self, call: ToolCall) -> str:
        """Call a tool as a model wrote it; returns the result, or a sentence that says what is wrong."""
        try:
            result = self._result(call)
        except _WrongCallError as error:
            self.errors += 1
            result = f"error: {error}"
        self.calls.append(ToolCall(call.id, call.name, call.arguments, result))
        return result

    def _result(self, call: ToolCall) -> str:
        tool = next((each for each in self.tools if each["name"] == call.name), None)
        if not call.name:
            raise _WrongCallError("your reply is not valid JSON.")
        if tool is None:
            known = ", ".join(each["name"] for each in self.tools)
            raise _WrongCallError(f"there is no tool {call.name!r}; there are {known}.")
        arguments = _checked(call.arguments, tool)
        try:
            found = self._function(tool["does"])(self.state, tool, **arguments)
        except Exception as error:  # a tool may raise anything; the model is told, as by a real system
            raise _WrongCallError(f"{call.name} failed ({type(error).__name__}: {str(error)[:200]}).") from error
        return (found if isinstance(found, str) else orjson.dumps(found, default=str).decode())[:_LONGEST]

    def _function(self, name: str) -> Does:
        # A case may come from a stranger's run, so what it names is used only if the benchmark has loaded it.
        own = getattr(loaded_file(self.file), name, None) if self.file else None
        return own if inspect.isfunction(own) else FUNCTIONS[name]


class _WrongCallError(Exception):
    """A call that a tool cannot serve; the model reads the message."""


def _checked(arguments: str, tool: Mapping[str, Any]) -> dict[str, Any]:
    try:
        given = orjson.loads(arguments or "{}")
    except orjson.JSONDecodeError as error:
        raise _WrongCallError(f"the arguments of {tool['name']} are not valid JSON.") from error
    if not isinstance(given, dict):
        raise _WrongCallError(f"the arguments of {tool['name']} must be a JSON object.")
    wanted: Mapping[str, Mapping[str, Any]] = tool.get("parameters", {})
    found = {key: value for key, value in cast("dict[str, Any]", given).items() if key in wanted}
    if missing := [name for name in wanted if name not in found]:
        raise _WrongCallError(f"{tool['name']} needs the argument {missing[0]!r}.")
    for name, value in found.items():
        allowed = wanted[name].get("enum")
        if allowed and value not in allowed:
            raise _WrongCallError(f"{name} of {tool['name']} must be one of {', '.join(map(str, allowed))}.")
    return found
