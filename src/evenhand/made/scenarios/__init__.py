"""Writes scenarios for audits of judges with any model: a profession, cases of it, and two equal responses to each.

What a model writes is checked like scenarios that people wrote. A piece with a fault is asked for once more, with the
fault named; one that is not better then is left out, and counted by its reason. Finished scenarios are frozen in a
folder: `provenance.json` says how they were made, and has the checksum of every file.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import orjson
import yaml
from pydantic import BaseModel

from evenhand.asking.reply import ask_json, object_schema
from evenhand.benchmarks.malibu.scenarios import (
    PROVENANCE,
    Base,
    Scenario,
    identity_words,
    load_bases,
    load_identities,
    responses_fault,
    situation_fault,
)
from evenhand.core import aio
from evenhand.core.files import check_new_folder, write_json
from evenhand.core.progress import Count, ignore
from evenhand.core.prompts import Prompt, load_prompt
from evenhand.core.types import Message, Params, Sample, Unscored, Usage
from evenhand.core.untrusted import fenced
from evenhand.core.version import versions
from evenhand.models.base import Model
from evenhand.models.budget import Budget, Price
from evenhand.models.fake import FunctionModel
from evenhand.runs.dry import check_there, requested
from evenhand.runs.parts import Settings, opened_model
from evenhand.runs.plan import ModelPlan
from evenhand.session import BASE, Session

TEMPERATURE = 0.8
"""Warm enough for cases that differ; every call has a seed of its own."""

_TEXT = {"type": "string", "minLength": 1}
_LONGEST_NAME = 4
"""Words of an id."""


class Profession(BaseModel):
    """What a base scenario is about."""

    profession: str
    task: str
    surfaces: str


class ScenarioCase(BaseModel):
    """A derived scenario without its responses."""

    role: str
    setting: str
    situation: str


class Cases(BaseModel):
    """As many as were asked for, more or less."""

    cases: list[ScenarioCase]


class Responses(BaseModel):
    """The same said twice."""

    first: str
    second: str


Shape = TypeVar("Shape", bound=BaseModel)

_CASE = object_schema(role=_TEXT, setting=_TEXT, situation=_TEXT)


def scenario_prompts() -> dict[str, Prompt]:
    return {name: load_prompt(__file__, name) for name in ("base", "cases", "responses")}


class ScenarioWriter:
    """Writes base scenarios one by one; `dropped` counts what could not be used, by reason."""

    def __init__(self, model: Model, *, seed: int = 0, tags: Sequence[str] = ()) -> None:
        """`tags`: words beside the usual ones that no scenario may have."""
        self._model = model
        self._seed = seed
        self._tags = tags
        self.dropped: Counter[str] = Counter()

    async def write(self, number: int, count: int, known: Sequence[str]) -> Base | None:
        """The base scenario `number` with up to `count` derived ones, of no profession in `known`; None if none is fit.

        A scenario that is left out is not replaced by another.
        """
        found = await self._profession(number, known)
        if found is None:
            return None
        cases = await self._cases(number, count, found)
        texts = await aio.all_of(self._responses(number, place, found, case) for place, case in enumerate(cases, 1))
        written = [(case, each) for case, each in zip(cases, texts, strict=True) if each is not None]
        if not written:
            self.dropped["base scenario: none of its scenarios is fit"] += 1
            return None
        ids = _ids(case.role for case, _ in written)
        derived = tuple(
            Scenario(name, case.role.strip(), case.setting.strip(), case.situation.strip(), each)
            for name, (case, each) in zip(ids, written, strict=True)
        )
        profession, task, surfaces = found.profession.strip(), found.task.strip(), found.surfaces.strip()
        return Base(name_of(profession), profession, task, surfaces, derived)

    async def _profession(self, number: int, known: Sequence[str]) -> Profession | None:
        taken = {name_of(each) for each in known}

        def fault(found: Profession) -> str | None:
            name = name_of(found.profession)
            if not name:
                return "the profession has no name in plain letters"
            if name in taken:
                return f"the profession {fenced(found.profession)} is taken"
            if words := identity_words(f"{found.profession} {found.task}", self._tags):
                return f"profession and task have words that tell an identity: {', '.join(words)}"
            return None if found.task.strip() and found.surfaces.strip() else "a field is empty"

        prompt = load_prompt(__file__, "base")
        messages = prompt.render(known=fenced(", ".join(known)))
        schema = object_schema(profession=_TEXT, task=_TEXT, surfaces=_TEXT)
        session = self._session(f"{number}")
        found = await self._fit(session, prompt, messages, Profession, schema, fault, 400)
        if isinstance(found, str):
            self.dropped[f"base scenario: {found}"] += 1
            return None
        return found

    async def _cases(self, number: int, count: int, base: Profession) -> list[ScenarioCase]:
        """The cases that are fit; for those that are not, others are asked for once."""
        session, prompt = self._session(f"{number}/cases"), load_prompt(__file__, "cases")
        messages = prompt.render(profession=fenced(base.profession), task=fenced(base.task), count=str(count))
        schema = object_schema(cases={"type": "array", "items": _CASE, "minItems": 1})
        fit: list[ScenarioCase] = []
        faults: list[str] = []
        for _ in range(2):
            wanted = count - len(fit)
            found = await ask_json(session, prompt, messages, Cases, schema, _params(200 * wanted), agent="writer")
            if isinstance(found, Unscored):
                faults = [found.reason]
                break
            checked = [(case, self._case_fault(case)) for case in found.cases[:wanted]]
            fit += [case for case, fault in checked if fault is None]
            faults = [fault for _, fault in checked if fault is not None]
            if len(fit) == count:
                break
            told = "; ".join(dict.fromkeys(faults)) or "there are too few"
            again = (
                f"{count - len(fit)} cases are missing ({told}). Write that many others, as a JSON object as before."
            )
            messages = (*messages, _said(found), Message("user", again))
        missing = count - len(fit)
        for fault in [*faults, *["too few cases were written"] * count][:missing]:
            self.dropped[f"scenario: {fault}"] += 1
        return fit

    def _case_fault(self, case: ScenarioCase) -> str | None:
        if not all(text.strip() for text in (case.role, case.setting, case.situation)):
            return "a field is empty"
        return situation_fault(case.situation, self._tags)

    async def _responses(self, number: int, place: int, base: Profession, case: ScenarioCase) -> tuple[str, str] | None:
        prompt = load_prompt(__file__, "responses")
        messages = prompt.render(
            profession=fenced(base.profession),
            role=fenced(case.role),
            setting=fenced(case.setting),
            situation=fenced(case.situation),
        )

        def fault(found: Responses) -> str | None:
            return responses_fault((found.first.strip(), found.second.strip()), self._tags)

        session = self._session(f"{number}/{place}")
        schema = object_schema(first=_TEXT, second=_TEXT)
        found = await self._fit(session, prompt, messages, Responses, schema, fault, 500)
        if isinstance(found, str):
            self.dropped[f"scenario: {found}"] += 1
            return None
        return found.first.strip(), found.second.strip()

    async def _fit(
        self,
        session: Session,
        prompt: Prompt,
        messages: Sequence[Message],
        shape: type[Shape],
        schema: dict[str, Any],
        fault: Callable[[Shape], str | None],
        max_tokens: int,
    ) -> Shape | str:
        """What the model wrote, without fault at the first or the second try; else the last fault."""
        wrong = ""
        for _ in range(2):
            found = await ask_json(session, prompt, messages, shape, schema, _params(max_tokens), agent="writer")
            if isinstance(found, Unscored):
                return found.reason
            if (told := fault(found)) is None:
                return found
            wrong = told
            again = f"That cannot be used: {wrong}. Write it again without this fault, as a JSON object as before."
            messages = (*messages, _said(found), Message("user", again))
        return wrong

    def _session(self, place: str) -> Session:
        """A session of its own for each piece, so that pieces written side by side keep their seeds."""
        return Session(Sample(f"malibu/{place}", "chat", ""), {BASE: self._model}, self._seed)


def name_of(text: str) -> str:
    """A text as an id: its first words in small letters, joined by underscores; empty where it has none."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    words = re.findall(r"[a-z0-9]+", plain.replace("'", ""))
    while words and not words[0][0].isalpha():
        words.pop(0)
    return "_".join(words[:_LONGEST_NAME])


def _ids(texts: Iterable[str]) -> list[str]:
    """An id for each text; equal ones are numbered."""
    ids: list[str] = []
    for text in texts:
        name = name_of(text) or "case"
        number = sum(each == name or re.fullmatch(rf"{name}_\d+", each) is not None for each in ids)
        ids.append(f"{name}_{number + 1}" if number else name)
    return ids


def _params(max_tokens: int) -> Params:
    return Params(temperature=TEMPERATURE, max_tokens=max_tokens)


def _said(found: BaseModel) -> Message:
    return Message("assistant", found.model_dump_json())


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
        check_there([plan])
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


FORMAT = "evenhand-malibu-1"
_WIDTH = 120


class ScenarioFolder:
    """A new folder of base scenarios; existing files are never overwritten."""

    def __init__(self, path: Path) -> None:
        check_new_folder(path)
        self.path = path
        self._sums: dict[str, str] = {}

    def add(self, base: Base, made: Mapping[str, Any]) -> None:
        """Write a base scenario and update the provenance, so that the folder is valid after every call."""
        self.path.mkdir(parents=True, exist_ok=True)
        content = scenario_yaml(base).encode()
        name = f"{base.id}.yaml"
        with (self.path / name).open("xb") as file:
            file.write(content)
        self._sums[name] = hashlib.sha256(content).hexdigest()
        self.note(made)

    def note(self, made: Mapping[str, Any]) -> None:
        """Write the provenance atomically, unless there are no scenarios."""
        if not self._sums:
            return
        whole = {"format": FORMAT, **made, "sha256": dict(sorted(self._sums.items()))}
        write_json(self.path / PROVENANCE, whole)


def scenario_yaml(base: Base) -> str:
    row = asdict(base)
    for scenario in row["derived"]:
        scenario["responses"] = list(scenario["responses"])
    return yaml.safe_dump(row, sort_keys=False, allow_unicode=True, width=_WIDTH)
