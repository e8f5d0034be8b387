"""The simulated tools of the benchmark `agents` for Inspect's own agents and solvers.

An agent gets them by `react(tools=[world_tools()])`, a solver by `use_tools(world_tools())`. Each sample has a world of
its own; the grade is of what was called there, whatever called it. Sandboxes, limits and logs are Inspect's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import orjson
from inspect_ai.solver import TaskState
from inspect_ai.solver._task_state import sample_state
from inspect_ai.tool import Tool, ToolDef, ToolParams, ToolSource

from evenhand.asking.act import Case
from evenhand.core.errors import UsageError
from evenhand.core.types import Answer, Outcome, Sample, ToolCall, Unscored
from evenhand.integrations.inspect.samples import own_sample

_CASES: dict[str, Case] = {}
"""By the id that Inspect gives to each sample of each epoch; the grade takes a case out."""


def world_tools() -> ToolSource:
    """Returns the tools of the sample that is being solved."""
    return _WorldTools()


class _WorldTools(ToolSource):
    async def tools(self) -> list[Tool]:
        state = sample_state()
        sample = None if state is None else own_sample(str(state.sample_id), state.metadata)
        if state is None or sample is None or sample.kind != "task":
            raise UsageError("world_tools() is for samples of the task evenhand/agents.")
        case = _CASES.setdefault(state.uuid, Case.of(sample))
        return [_tool(each, case) for each in case.world.functions()]


def _tool(about: Mapping[str, Any], case: Case) -> Tool:
    parameters = ToolParams.model_validate(
        {
            **about["parameters"],
            "properties": {
                name: {"description": name, **schema} for name, schema in about["parameters"]["properties"].items()
            },
        }
    )
    definition = ToolDef(_used(about["name"], case), about["name"], about["description"], parameters, parallel=False)
    return definition.as_tool()


def _used(name: str, case: Case) -> Callable[..., Awaitable[str]]:
    async def use(**arguments: Any) -> str:
        return case.use(ToolCall(f"{name}-{len(case.world.calls)}", name, orjson.dumps(arguments).decode()))

    return use


def played_outcome(state: TaskState, sample: Sample) -> Outcome:
    """Returns what an agent of Inspect has done in the world of a sample."""
    case = _CASES.pop(state.uuid, None) or Case.of(sample)
    case.steps = sum(each.role == "assistant" for each in state.messages)
    if case.world.decision is None and not state.completed and not state.output.completion:
        return case.ended(Unscored("the agent did not finish"))
    text = state.output.completion
    if text:
        case.turns.append(("model", text, "reply"))
    return case.ended(Answer(text or "(nothing was said)"))
