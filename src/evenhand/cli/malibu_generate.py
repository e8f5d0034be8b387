"""`evenhand malibu generate`: further scenarios, written by any model, checked and frozen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import orjson

from evenhand import aio
from evenhand.cli.options import plan_options_without, read_settings
from evenhand.cli.progress import shown_count
from evenhand.cli.run import STOPPED
from evenhand.data.malibu import Base, load_bases, load_identities
from evenhand.data.malibu.write import ScenarioFolder
from evenhand.errors import BudgetExhausted
from evenhand.models.base import PROVIDERS, Model, split_spec
from evenhand.models.budget import FREE, Budget
from evenhand.models.cache import ResponseCache
from evenhand.models.fake import FunctionModel, estimate_tokens
from evenhand.runs.parts import Settings, loaded_model
from evenhand.runs.plan import ModelPlan, make_plan
from evenhand.specs import key_values
from evenhand.types import Message, Params, Usage
from evenhand.version import versions
from evenhand.workflows.scenario_writer import PROMPTS, TEMPERATURE, ScenarioWriter

_OTHERS = (
    *("config", "benchmark", "settings", "data", "methods", "scorers", "limit", "orders", "reading"),
    *("temperature", "max_tokens", "resume", "retry_failed"),
)
"""Options of a plan that mean nothing here."""
_OWN = ("models", "seeds", "out")
"""Options of a plan that mean something narrower here."""
_SHOWN_REASONS = 5


@dataclass(frozen=True, slots=True)
class _Task:
    """What is to be written."""

    spec: str
    bases: int
    derived: int
    seed: int
    tags: Sequence[str]
    known: Sequence[str]
    """The professions that are there already."""


@click.command("generate")
@click.option("--model", "-M", "spec", required=True, metavar="SPEC", help="The model that writes.")
@click.option("--bases", type=click.IntRange(1), default=5, show_default=True, help="Base scenarios: professions.")
@click.option("--derived", type=click.IntRange(1, 50), default=10, show_default=True, help="Scenarios of each.")
@click.option("--out", type=click.Path(path_type=Path), required=True, metavar="FOLDER", help="A new folder.")
@click.option("--identities", metavar="FILE", help="Identities of your own, whose tags no scenario may have.")
@click.option("--seed", type=int, default=0, show_default=True, help="Another one gives other scenarios.")
@plan_options_without(*_OTHERS, *_OWN)
def generate(out: Path, identities: str | None, dry_run: bool, **given: Any) -> int:
    """Write further scenarios with a model, as data for evenhand malibu.

    Each has two responses of equal content. What the model writes is checked: two responses of similar length, and no
    word that tells an identity. A scenario with a fault is asked for once more and then left out. The folder says how
    it was made, and is refused once a file in it was changed.

    \b
    Examples:
      evenhand malibu generate --model openai/NAME --bases 5 --out scenarios --dry-run
      evenhand malibu generate --model openai/NAME --bases 5 --out scenarios
      evenhand malibu --model openai/NAME --data scenarios
    """
    folder = ScenarioFolder(out)
    tags = [identity.tag for identity in load_identities(identities)]
    known = [base.profession for base in load_bases()]
    task = _Task(given["spec"], given["bases"], given["derived"], given["seed"], tags, known)
    settings = read_settings(given)
    model = _model_plan(given)
    if dry_run:
        _print_forecast(task, settings)
        return 0
    made = _Made(task, folder)
    try:
        with shown_count(task.bases) as tell:
            aio.run(_generate(made, model, settings, tell))
    except BudgetExhausted as error:
        made.tell()
        click.echo(
            f"Stopped: {error}. The same command with a new --out and a larger --budget begins with what is cached."
        )
        return STOPPED
    except BaseException:
        if made.bases:
            click.echo(f"evenhand: {len(made.bases):,} base scenarios were finished and are in {out}.", err=True)
        raise
    made.tell()
    if not made.bases:
        return 1
    click.echo(f"Next: evenhand malibu --model MODEL --data {out}")
    return 0


class _Made:
    """What was written so far, and how."""

    def __init__(self, task: _Task, folder: ScenarioFolder) -> None:
        self.task = task
        self.folder = folder
        self.bases: list[Base] = []
        self.dropped: Counter[str] = Counter()
        self._time = datetime.now(UTC).isoformat(timespec="seconds")
        self._fingerprint: Mapping[str, Any] = {}

    async def write(self, model: Model, tell: Callable[[int], None]) -> None:
        """All base scenarios in turn: each must know those before it."""
        self._fingerprint = model.fingerprint()
        writer = ScenarioWriter(model, seed=self.task.seed, tags=self.task.tags)
        self.dropped = writer.dropped
        for number in range(1, self.task.bases + 1):
            known = [*self.task.known, *(base.profession for base in self.bases)]
            base = await writer.write(number, self.task.derived, known)
            if base is not None:
                self.bases.append(base)
                self.folder.add(base, self.facts())
            tell(number)
        self.folder.note(self.facts())

    def facts(self) -> dict[str, Any]:
        """How the scenarios were made."""
        return {
            "model": dict(self._fingerprint),
            "prompts": {prompt.id: prompt.hash for prompt in PROMPTS.values()},
            "seed": self.task.seed,
            "temperature": TEMPERATURE,
            "time": self._time,
            "versions": versions(),
            "asked": {"bases": self.task.bases, "derived": self.task.derived},
            "written": {"bases": len(self.bases), "scenarios": self._scenarios()},
            "dropped": dict(self.dropped.most_common()),
        }

    def tell(self) -> None:
        bases = f"{len(self.bases):,} of {self.task.bases:,} base scenarios with {self._scenarios():,} scenarios"
        click.echo(f"{self.folder.path}: {bases}; {self.dropped.total():,} pieces were left out.")
        for reason, count in self.dropped.most_common(_SHOWN_REASONS):
            click.echo(f"  {count:,} × {reason}")

    def _scenarios(self) -> int:
        return sum(len(base.derived) for base in self.bases)


async def _generate(made: _Made, plan: ModelPlan, settings: Settings, tell: Callable[[int], None]) -> None:
    cache = ResponseCache(settings.cache) if settings.cache else None
    try:
        async with loaded_model(plan, settings, cache, Budget(settings.budget)) as model:
            await made.write(model, tell)
    finally:
        if cache is not None:
            cache.close()


def _model_plan(given: Mapping[str, Any]) -> ModelPlan:
    """The model and how to reach it, checked like one of a plan."""
    reach = {key: given[key] for key in ("base_url", "timeout", "retries") if given[key] is not None}
    extra = key_values(given["extra"], "--model-option")
    plan = make_plan({"models": [{"base": {"spec": given["spec"], **reach, "extra": extra}}]})
    return plan.models[0]["base"]


def _print_forecast(task: _Task, settings: Settings) -> None:
    """What writing takes when every piece is fit at the first try."""
    model = FunctionModel(_flawless(), spec=task.spec, features=("schema", "seed"))
    writer = ScenarioWriter(model, seed=task.seed)
    known = list(task.known)
    for number in range(1, task.bases + 1):
        base = aio.run(writer.write(number, task.derived, known))
        known += [base.profession] if base else []
    price = settings.prices.get(task.spec) or (FREE if PROVIDERS.get(split_spec(task.spec)[0]).free else None)
    used = Usage(
        calls=len(model.requests),
        prompt_tokens=sum(estimate_tokens(each.content) for messages, _ in model.requests for each in messages),
        completion_tokens=sum(params.max_tokens or 0 for _, params in model.requests),
    )
    money = "price unknown (pass --price SPEC=INPUT/OUTPUT)" if price is None else f"${price.of(used):,.2f}"
    click.echo(
        f"{used.calls:,} calls, about {used.prompt_tokens:,} tokens sent, at most {used.completion_tokens:,} in "
        f"replies, money at most: {money}."
    )
    click.echo("Nothing was called. What has a fault is asked for once more: that comes on top.")


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
            return _json(cases=[case] * 50)
        return _json(first=scenario.responses[0], second=scenario.responses[1])

    return reply


def _json(**fields: Any) -> str:
    return orjson.dumps(fields).decode()
