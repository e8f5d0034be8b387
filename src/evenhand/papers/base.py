"""The Paper interface: the runs of a paper, and its tables and figures next to the published numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Literal, Protocol

import yaml

from evenhand.core.options import DEFAULT_PRESET, PRESET
from evenhand.core.registry import Registry
from evenhand.judging.judge import JUDGE, is_judge
from evenhand.methods.base import METHODS
from evenhand.models.base import split_spec
from evenhand.papers.claims import Claim
from evenhand.runs.execute import SeriesRun
from evenhand.runs.plan import ArmKey, Assignment, MethodPlan, ModelPlan, Plan, make_plan, model_plan
from evenhand.studies.results import Estimate, StudyResult

_UNSET = ModelPlan.model_fields
PAPER_PRESET = "paper"
PRESETS = (PAPER_PRESET, DEFAULT_PRESET)
"""The settings of the paper, and ours."""
REPRODUCIBLE = "Can it be reproduced?"
"""Heading of the column that says why published numbers cannot be reproduced."""


@dataclass(frozen=True, slots=True)
class PaperOptions:
    """The user's choices for a paper's runs; None means as in the paper."""

    models: Sequence[Assignment]
    """For each base model, the models by role, as in a plan."""
    limit: int | None = None
    """Items of each kind (category, band, …)."""
    builtin: bool = False
    """Whether to use our own data sets instead of the public ones."""
    data: str | None = None
    """The folder of the public data sets."""
    seed: int = 0
    fields: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """More fields of every plan, e.g. temperature."""
    scorers: tuple[str, ...] = ()
    """Scorers of the texts, instead of the benchmark's own."""
    completions: int | None = None
    search: str | None = None
    """The spec of the search provider."""
    accept: float | None = None
    """Reasoning with a bias below this, from 1 to 10, is accepted."""
    look: bool = False
    """Whether the judge first says if the passage has the answer."""
    domain: bool = False
    """Whether the judge is told what to look for in the question's category."""
    judge: str | None = None
    """The spec of the model that rates answers."""
    trained: Mapping[str, str] = field(default_factory=dict[str, str])
    """Arm → spec of a trained model."""
    pairs: str | None = None
    """The file or folder with the topics held out from training."""
    bias: tuple[str, ...] = ()
    """Types of bias; empty for all."""
    compared: int | None = None
    """Pairs of identities that each scenario compares side by side, drawn by the seed; None for all."""
    presets: tuple[str, ...] = PRESETS
    """The presets that the paper's methods are run with."""
    methods: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    """Method → the user's options of it, which win over presets and over the paper's choices."""
    quality: str | None = None
    """The spec of the model that measures the quality of texts."""
    steer: str | None = None
    """The spec of the scorer that steers revisions."""
    base_models: tuple[str, ...] = ()
    """Specs of models without instruction tuning, which continue a bare prompt."""

    @property
    def model(self) -> ModelPlan:
        """The first base model; its features decide which methods are run."""
        return self.models[0]["base"]

    def by_preset(self, name: str, options: Mapping[str, Any] | None = None) -> list[MethodPlan]:
        """Returns the method with these options, once for each preset."""
        given = dict(options or {})
        named = [{} if each == DEFAULT_PRESET else {PRESET: each} for each in self.presets]
        return [MethodPlan(name=name, options={**preset, **given}) for preset in named]

    def reached_alike(self, spec: str) -> ModelPlan:
        """Returns another model with the base model's connection settings, where it has none of its own."""
        return model_plan(spec, self._reach())

    def _reach(self) -> dict[str, Any]:
        """Returns the base model's connection settings; a provider with a name of its own keeps its endpoint."""
        base = self.model
        named = split_spec(base.spec)[0] != base.provider
        fields = ("timeout", "retries", "extra") if named else ("base_url", "key", "timeout", "retries", "extra")
        return {name: value for name in fields if (value := getattr(base, name)) != _UNSET[name].default}

    def plan(
        self,
        benchmark: str,
        methods: Sequence[str | MethodPlan],
        *,
        limit: int | None = None,
        options: Mapping[str, Any] | None = None,
        models: Assignment | Sequence[Assignment] | None = None,
        scorers: Sequence[str] = (),
        is_public: bool = True,
    ) -> Plan:
        """Returns the plan of one run.

        Args:
            limit: Total number of items; None for all that the benchmark's options select.
            models: Models to use instead of the user's (of those, only the roles that the methods need are used).
            is_public: Whether the benchmark's data is a public set, for which the user may name a folder.
        """
        named = [MethodPlan(name=each) if isinstance(each, str) else each for each in methods]
        chosen = [
            MethodPlan(name=each.name, options={**each.options, **self.methods.get(each.name, {})}) for each in named
        ]
        roles = {"base", *(role for each in chosen for role in METHODS.get(each.name).roles)}
        own = [
            {role: model for role, model in each.items() if (JUDGE if is_judge(role) else role) in roles}
            for each in self.models
        ]
        data = {"data": self.data} if self.data and is_public else {}
        return make_plan(
            {
                **self.fields,
                "benchmark": benchmark,
                "benchmark_options": {**(options or {}), **data},
                "methods": chosen,
                "models": own if models is None else [models] if isinstance(models, dict) else list(models),
                "seeds": [self.seed],
                "limit": limit,
                "scorers": list(scorers) or None,
            },
            self._reach() if self.models else None,
        )


def preset_of(key: ArmKey) -> str:
    """Returns the preset that an arm was run with."""
    return key.options.get(PRESET, DEFAULT_PRESET)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table."""

    name: str
    """Name of the metric, as in CSV files."""
    title: str
    hint: str = ""
    """Which way is better."""
    over: str = ""
    """A heading shared with neighbouring columns."""


@dataclass(frozen=True, slots=True)
class Cell:
    """Our number, the paper's, or both."""

    estimate: Estimate | None = None
    published: float | None = None
    spread: float | None = None
    """The standard deviation over trainings, where our number is their mean."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table; `published_as` is its name in the paper, if it is there."""

    method: str
    setting: str
    cells: Sequence[Cell]
    ours: bool = True
    """Whether the row has our numbers; a missing one is shown as a dash."""
    note: str = ""
    """Why our numbers are missing."""
    published_as: str = ""
    reproducible: str = ""
    """Whether the published numbers can be reproduced, and why not."""


@dataclass(frozen=True, slots=True)
class Grid:
    """Rows and columns; `name` distinguishes the grids of one table."""

    name: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    rows_are: str = "Method"
    digits: int = 1
    """Decimals of our numbers."""
    full: float | None = None
    """For a matrix of differences: the difference with full colour."""
    lanes: tuple[str, ...] = ()
    """Columns that are also drawn, with a lane for each row and the published number in its own colour."""
    drawn: int = 0
    """Number of leading rows that are also drawn as a chart, with a point for each column."""
    undrawn: int = 0
    """Number of last columns that are not drawn, because they are on another scale."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table of the paper."""

    id: str
    title: str
    lead: str
    grids: Sequence[Grid]
    sentences: Sequence[str] = ()
    """The results of the paired comparisons."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar of a figure: one estimate per part, in the figure's order of parts."""

    name: str
    setting: str
    parts: Sequence[Estimate]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Figure:
    """Bars with several parts; each part is a separate percentage.

    Stacked parts are drawn one after another, so that a bar may be longer than 100. The parts of a histogram are its
    bins, side by side.
    """

    id: str
    title: str
    lead: str
    parts: Sequence[str]
    bars: Sequence[Bar]
    kind: Literal["stacked", "histogram"] = "stacked"


@dataclass(frozen=True, slots=True)
class Case:
    """One question with the answers of several arms, to read."""

    question: str
    about: str
    answers: Sequence[tuple[str, str]]
    """(arm and its scores, answer)."""


@dataclass(frozen=True, slots=True)
class PaperPage:
    """The content of the page, the CSV files and the terminal output."""

    title: str
    source: str
    lead: str
    tables: Sequence[Table]
    figures: Sequence[Figure]
    notes: Sequence[tuple[str, str]]
    """(topic, what cannot be compared and why)."""
    warnings: Sequence[str] = ()
    claims: Sequence[Claim] = ()
    """What the paper says, with the verdict on each of our models."""
    found: Sequence[tuple[str, str]] = ()
    """(arm, what was found in it, in a sentence), where claims alone do not say it."""
    process: StudyResult | None = None
    """The arms of all runs, for cost, failures and provenance."""
    cases: Sequence[Case] = ()
    """Answers to read, before and after."""
    cases_title: str = "Cases"


Choice = Literal[
    "models",
    "scorers",
    "completions",
    "search",
    "accept",
    "look",
    "domain",
    "judge",
    "trained",
    "pairs",
    "bias",
    "compared",
    "training",
    "presets",
    "methods",
    "steer",
    "quality",
    "base_models",
]
"""Fields of `PaperOptions`. `models`: several base models, side by side. `training`: models can be trained for it."""


class Paper(Protocol):
    """A paper whose results can be reproduced."""

    name: str
    title: str
    folders: tuple[str, ...]
    """The folders of its runs, in display order; `*` matches any name."""
    takes: frozenset[Choice]
    """The options that this paper supports, besides those of all papers."""

    def runs(self, options: PaperOptions) -> Sequence[SeriesRun]:
        """Returns the runs that the paper needs."""
        ...

    def page(self, folders: Mapping[str, Path], scorers: Sequence[str] = ()) -> PaperPage:
        """Returns the tables and figures from the existing run folders; missing runs leave cells empty.

        `scorers` selects stored scores to use instead of the planned scorers' scores.
        """
        ...


PAPERS: Registry[Paper] = Registry("paper", package="evenhand.papers")


@dataclass(frozen=True, slots=True)
class Published:
    """The numbers of a paper by table and row, on our scale."""

    title: str
    source: str
    tables: Mapping[str, Mapping[str, Mapping[str, float]]]
    """Table → row → column → number."""
    notes: Sequence[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    reproducible: Mapping[str, Mapping[str, str]] = field(default_factory=dict[str, Mapping[str, str]])
    """Table → row or setting → whether it can be reproduced, and why not."""

    def row(self, table: str, name: str) -> Mapping[str, float]:
        """Returns the numbers of a row; empty for rows that are not in the paper."""
        return self.tables[table][name] if name else {}


@cache
def published(paper: str) -> Published:
    """Reads the published numbers of a paper from its YAML file."""
    text = resources.files(f"evenhand.papers.{paper}").joinpath("published.yaml").read_text(encoding="utf-8")
    raw: dict[str, Any] = yaml.safe_load(text)
    return Published(
        raw["title"],
        raw["source"],
        {name: _rows(table) for name, table in raw["tables"].items()},
        [(each["about"], each["text"]) for each in raw["notes"]],
        {name: table.get("reproducible", {}) for name, table in raw["tables"].items()},
    )


def _rows(table: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Returns the rows of a table, multiplied by its scale."""
    scale: float = table.get("scale", 1)
    # Rounded, since 0.29 × 100 is not 29 in floating point.
    return {
        row: {column: round(scale * value, 6) for column, value in zip(table["columns"], values, strict=True)}
        for row, values in table["rows"].items()
    }
