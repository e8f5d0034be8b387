"""What a pack says about each run, read from the stored run, and which parts of it bear on laws and standards.

No model is called, and nothing is added by hand. Items that no measurement covers are named as such.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.resources import files
from inspect import getdoc
from pathlib import Path
from typing import Any

import yaml

from evenhand.benchmarks.base import Benchmark
from evenhand.data.sets import SETS, DataSet
from evenhand.evidence.rates import Decided, RateTable, rate_tables
from evenhand.runs.stored import StoredRun, open_sources, prompts_used, walk
from evenhand.studies.results import ArmResult, StudyResult
from evenhand.studies.study import study

LIMITS = (
    "The results are about the samples, prompts, models and settings named here. They say nothing about other uses, "
    "languages, groups or versions of the model.",
    "A benchmark measures what its items ask. A good score is no proof that a system is free of bias, and nothing here "
    "states conformity with any law or standard.",
    "Intervals are 95 % intervals for sampling error over the benchmark's templates, scenarios or writers. They do not "
    "contain errors of the benchmark's own items or labels.",
)


@dataclass(frozen=True, slots=True)
class DataSheet:
    """The data of a run."""

    name: str
    version: str
    about: str
    samples: int
    groups: Mapping[str, int]
    """Group → samples."""
    sha256: Mapping[str, str]
    """File → checksum."""
    title: str
    licence: str
    source: str
    notice: str = ""


@dataclass(frozen=True, slots=True)
class Rates:
    """The tables of one arm."""

    arm: str
    tables: Sequence[RateTable]


@dataclass(frozen=True, slots=True)
class RunFacts:
    """One run, as a pack shows it."""

    name: str
    folder: str
    study: StudyResult
    data: DataSheet
    prompts: Mapping[str, str]
    """Prompt → hash of its text."""
    methods: Mapping[str, str]
    """Method → what it does."""
    rates: Sequence[Rates]
    plan: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def provenance(self) -> Mapping[str, Any]:
        return next(iter(self.study.provenance.values()))

    @property
    def arms(self) -> list[ArmResult]:
        return [arm for arm in self.study.arms if arm.iteration is None]

    @property
    def group_metric(self) -> str | None:
        """The first metric that is defined for several groups of samples."""
        for name in self.main_metrics:
            if sum(any(_has(arm, name, group) for arm in self.arms) for group in self.study.groups) > 1:
                return name
        return None

    @property
    def main_metrics(self) -> list[str]:
        """The headline and what is read beside it; all that is defined, where the headline is not."""
        known = [each.name for each in self.study.metrics]
        wanted = [self.study.headline, *self.study.guardrails]
        if not any(_has(arm, self.study.headline, "all") for arm in self.arms):
            wanted += [name for name in known if any(_has(arm, name, "all") for arm in self.arms)]
        return [name for name in dict.fromkeys((*wanted, "coverage", "refusals")) if name in known]


def _has(arm: ArmResult, metric: str, group: str) -> bool:
    found = arm.estimate(metric, group)
    return found is not None and found.value is not None


def read_run(folder: Path, *, skip_damaged: bool = False) -> RunFacts:
    """Read a run and compute its study and tables."""
    result = study([folder], skip_damaged=skip_damaged)
    run = StoredRun.open(folder, skip_damaged=skip_damaged)
    try:
        plan = repeatable(run)
        prompts = {name: digest for name, digest in prompts_used(run.store).items() if digest}
        benchmark = run.benchmark()
        groups = Counter(str(sample.metadata.get(benchmark.group_key, "all")) for _, sample in run.store.samples())
        methods = run.summaries()
    finally:
        run.store.close()
    stored: Mapping[str, Any] = next(iter(result.provenance.values()))
    sheet = _data_sheet(benchmark, stored["benchmark"], stored["plan"]["benchmark_options"], groups)
    return RunFacts(
        folder.resolve().name,
        str(folder),
        result,
        sheet,
        prompts,
        methods,
        _rates(folder, benchmark, skip_damaged),
        plan,
    )


def repeatable(run: StoredRun) -> dict[str, Any]:
    """The plan of a run as it can be run from the folder of a pack: files of the user's own are those in the pack.

    An endpoint that was named by the environment is named as it was.
    """
    stored: dict[str, Any] = run.store.get("plan")
    kept: dict[str, str] = run.store.get("kept") or {}

    def placed(text: Any) -> Any:
        if not isinstance(text, str):
            return text
        file, colon, rest = text.partition(":")
        return kept[text] if text in kept else f"{kept[file]}{colon}{rest}" if file in kept else text

    endpoints = {each["spec"]: each["endpoint"] for each in run.store.get("models") or () if each.get("endpoint")}

    def reached(model: Mapping[str, Any]) -> dict[str, Any]:
        endpoint = endpoints.get(model["spec"])
        where = model.get("base_url") or (str(endpoint).removesuffix("/chat/completions") if endpoint else None)
        return {name: value for name, value in {**model, "base_url": where}.items() if value not in (None, {})}

    templates = stored.get("templates")
    return {
        **{name: value for name, value in stored.items() if value is not None and name != "judges"},
        "benchmark": placed(stored["benchmark"]),
        "benchmark_options": {name: placed(value) for name, value in stored["benchmark_options"].items()},
        "methods": [{**each, "name": placed(each["name"])} for each in stored["methods"]],
        "models": [{role: reached(model) for role, model in each.items()} for each in stored["models"]],
        **({"scorers": [placed(each) for each in stored["scorers"]]} if stored.get("scorers") else {}),
        **({"templates": placed(templates["folder"])} if templates else {}),
    }


def _rates(folder: Path, benchmark: Benchmark, skip_damaged: bool) -> list[Rates]:
    """The tables of every arm whose records decide about people."""
    decided: dict[str, list[Decided]] = {}
    if type(benchmark).people is Benchmark.people:
        return []
    with open_sources([folder], skip_damaged=skip_damaged) as (_, sources):
        labels = {each.id: each.label for each in sources}
        for _, records in walk(sources):
            for arm, record in records.items():
                found = benchmark.people(record)
                decided.setdefault(arm, []).extend(Decided(person, record.cluster) for person in found)
    return [Rates(labels[arm], rate_tables(people)) for arm, people in decided.items() if people]


def _data_sheet(
    benchmark: Benchmark, stored: Mapping[str, Any], options: Mapping[str, Any], groups: Mapping[str, int]
) -> DataSheet:
    sums: Any = stored.get("sha256") or {}
    checksums: dict[str, str] = dict(sums) if isinstance(sums, dict) else {"data": str(sums)}  # pyright: ignore[reportUnknownArgumentType]
    public = _public_set(checksums) or SETS.get(benchmark.name)
    if public is not None:
        source = {
            "title": public.title,
            "licence": public.licence,
            "source": public.homepage,
            "notice": public.notice,
        }
    elif not type(benchmark).__module__.startswith("evenhand.") or _OWN & {*options}:
        source = dict.fromkeys(("title", "licence", "source"), "not stated: data of the user's own")
    else:
        source = {"title": "written for Evenhand, part of the package", "licence": "Apache-2.0", "source": "evenhand"}
    return DataSheet(
        name=benchmark.name,
        version=str(stored.get("version", benchmark.version)),
        about=(getdoc(type(benchmark)) or "").partition("\n")[0],
        samples=sum(groups.values()),
        groups=dict(sorted(groups.items())),
        sha256=checksums,
        **source,
    )


_OWN = frozenset({"data", "file", "prompts", "resumes", "jobs", "topics", "scenarios", "profiles"})
"""Options that name files of the user's own."""


def _public_set(sums: Mapping[str, str]) -> DataSet | None:
    """The public set whose files these are, by their names."""
    for each in SETS.values():
        if {file.name for file in each.files if file.name != "LICENSE"} & sums.keys():
            return each
    return None


def as_values(run: RunFacts) -> dict[str, Any]:
    """What a pack says of a run, as plain values."""
    labels = {arm.id: arm.label for arm in run.arms}
    return {
        "name": run.name,
        "benchmark": run.study.benchmark,
        "headline": run.study.headline,
        "data": asdict(run.data),
        "prompts": dict(run.prompts),
        "methods": dict(run.methods),
        "provenance": dict(run.provenance),
        "arms": [
            {
                "label": arm.label,
                "method": arm.method,
                "models": dict(arm.models),
                "seed": arm.seed,
                "statuses": dict(arm.statuses),
                "not_run": arm.pending,
                "usage": {role: asdict(used) for role, used in arm.usage.items()},
                "estimates": [asdict(each) for each in arm.estimates],
            }
            for arm in run.arms
        ],
        "effects": [
            {**asdict(each), "before": labels.get(each.before), "after": labels.get(each.after)}
            for each in run.study.effects
        ],
        "verdicts": list(run.study.verdicts),
        "selection_rates": [
            {"arm": each.arm, "tables": [{**asdict(table), "below_four_fifths": table.below} for table in each.tables]}
            for each in run.rates
        ],
    }


# --- laws and standards ---

NOT_COVERED = "not covered"


@dataclass(frozen=True, slots=True)
class MappedItem:
    """One item: what it asks for, and which part of the pack bears on it."""

    item: str
    asks: str
    part: str
    """The section of the pack; empty if the item is not covered."""
    note: str
    text: str
    """The address of the public text in which its number and subject were looked up."""
    read: str
    """The day on which it was looked up."""
    unverified: bool = False
    """Whether no text that could be read has its number or wording."""

    @property
    def shown(self) -> str:
        return f"{self.item} (unverified, {self.read})" if self.unverified else self.item

    @property
    def evidence(self) -> str:
        return f"partly: {self.note}" if self.part else f"{NOT_COVERED}: {self.note}"


@dataclass(frozen=True, slots=True)
class Standard:
    """One law or standard."""

    name: str
    source: str
    items: tuple[MappedItem, ...]


def mappings(parts: Collection[str]) -> list[Standard]:
    """Return all mappings; an item whose part is not in this pack is not covered."""
    text = (files(__package__ or "") / "mappings.yaml").read_text(encoding="utf-8")
    return [
        Standard(each["name"], each["source"], tuple(_item(item, parts, each["texts"]) for item in each["items"]))
        for each in yaml.safe_load(text)
    ]


def _item(item: dict[str, Any], parts: Collection[str], texts: Mapping[str, Any]) -> MappedItem:
    part, text = item.get("part", ""), texts[item["in"]]
    note = item["how"] if part else item["why"]
    if part and part not in parts:
        part, note = "", "no run in this pack measures it"
    unverified = item.get("unverified", False)
    return MappedItem(item["item"], item["asks"], part, note, text["url"], text["read"].isoformat(), unverified)
