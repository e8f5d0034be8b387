"""A folder of further scenarios for audits of judges, written by a model, checked and frozen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from evenhand.core.progress import Count, ignore
from evenhand.core.types import Message, Params, Usage
from evenhand.core.version import versions
from evenhand.data.malibu import Base, load_bases, load_identities
from evenhand.data.malibu.write import ScenarioFolder
from evenhand.models.base import Model
from evenhand.models.budget import Budget, Price
from evenhand.models.fake import FunctionModel
from evenhand.runs.dry import requested
from evenhand.runs.parts import Settings, opened_model
from evenhand.runs.plan import ModelPlan
from evenhand.workflows.scenario_writer import TEMPERATURE, ScenarioWriter, scenario_prompts

_MOST_CASES = 50


@dataclass(frozen=True, slots=True)
class ScenarioTask:
    """What is to be written: base scenarios, each a profession, with derived ones."""

    bases: int = 5
    derived: int = 10
    seed: int = 0
    identities: str | None = None
    """A file of identities of your own, whose tags no scenario may have."""

    async def forecast(self, plan: ModelPlan, prices: Mapping[str, Price]) -> Usage:
        """What writing takes when every piece is fit at the first try."""
        model = FunctionModel(_flawless(), spec=plan.spec, features=("schema", "seed"))
        writer = ScenarioWriter(model, seed=self.seed)
        known = _known()
        for number in range(1, self.bases + 1):
            base = await writer.write(number, self.derived, known)
            known += [base.profession] if base else []
        return requested(model, plan, prices)


class ScenarioSet:
    """What was written so far, and how; each base scenario is in the folder as soon as it is finished."""

    def __init__(self, task: ScenarioTask, out: Path) -> None:
        self.task = task
        self.bases: list[Base] = []
        self.dropped: Counter[str] = Counter()
        """Pieces that could not be used, by reason."""
        self._folder = ScenarioFolder(out)
        self._tags = [identity.tag for identity in load_identities(task.identities)]
        self._time = datetime.now(UTC).isoformat(timespec="seconds")

    @property
    def scenarios(self) -> int:
        return sum(len(base.derived) for base in self.bases)

    async def write(self, plan: ModelPlan, settings: Settings, count: Count = ignore) -> None:
        """Write all base scenarios in turn: each must know those before it."""
        async with opened_model(plan, settings, Budget(settings.budget)) as model:
            await self._write(model, count)

    async def _write(self, model: Model, count: Count) -> None:
        writer = ScenarioWriter(model, seed=self.task.seed, tags=self._tags)
        self.dropped = writer.dropped
        for number in range(1, self.task.bases + 1):
            known = [*_known(), *(base.profession for base in self.bases)]
            base = await writer.write(number, self.task.derived, known)
            if base is not None:
                self.bases.append(base)
                self._folder.add(base, self._facts(model))
            count(number, self.task.bases)
        self._folder.note(self._facts(model))

    def _facts(self, model: Model) -> dict[str, Any]:
        """How the scenarios were made."""
        return {
            "model": dict(model.fingerprint()),
            "prompts": {prompt.id: prompt.hash for prompt in scenario_prompts().values()},
            "seed": self.task.seed,
            "temperature": TEMPERATURE,
            "time": self._time,
            "versions": versions(),
            "asked": {"bases": self.task.bases, "derived": self.task.derived},
            "written": {"bases": len(self.bases), "scenarios": self.scenarios},
            "dropped": dict(self.dropped.most_common()),
        }


def _known() -> list[str]:
    """The professions that are there already."""
    return [base.profession for base in load_bases()]


def _flawless() -> Callable[[Sequence[Message], Params], str]:
    """A stand-in that writes the built-in scenarios over again, under other names."""
    scenario = load_bases()[0].derived[0]
    case = {"role": scenario.role, "setting": scenario.setting, "situation": scenario.situation}
    professions = 0

    def reply(_messages: Sequence[Message], params: Params) -> str:
        nonlocal professions
        fields: Mapping[str, Any] = (params.schema or {}).get("properties", {})
        if "profession" in fields:
            professions += 1
            return _json(profession=f"profession {professions}", task="a task", surfaces="a prejudice")
        if "cases" in fields:
            return _json(cases=[case] * _MOST_CASES)
        return _json(first=scenario.responses[0], second=scenario.responses[1])

    return reply


def _json(**fields: Any) -> str:
    return orjson.dumps(fields).decode()
