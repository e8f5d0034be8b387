"""The Paper interface: the runs of a paper, and its tables and figures next to the published numbers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Generic, Literal, Protocol, Self, cast

from pydantic import BeforeValidator, model_validator
from typing_extensions import TypeVar

from evenhand.core.errors import UsageError
from evenhand.core.fields import PlanFields
from evenhand.core.files import read_yaml
from evenhand.core.options import PRESET, Request, Text, option
from evenhand.core.presets import DEFAULT_PRESET, Element, Presets
from evenhand.core.registry import Registry
from evenhand.core.specs import read_spec, roles_and_specs
from evenhand.judging.judge import JUDGE, is_judge
from evenhand.methods.base import METHODS
from evenhand.models.base import split_spec
from evenhand.papers.reading import PairedDifference
from evenhand.runs.execute import SeriesRun
from evenhand.runs.plan import ArmKey, Assignment, MethodPlan, ModelPlan, Plan, make_plan, model_plan
from evenhand.runs.request import JudgeFields, ModelsRequest, RunFields, TemplatesField
from evenhand.stats import holm, side_of
from evenhand.studies.results import Effect, Estimate, StudyResult

if TYPE_CHECKING:
    from evenhand.core.progress import Listener
    from evenhand.core.types import Usage
    from evenhand.models.budget import Price
    from evenhand.papers.making import PaperResult
    from evenhand.runs.parts import Settings

# --- A paper's claims with their verdicts on our models, and the rules that decide them ---
# A claim holds if every comparison behind it is significant after Holm's correction, and fails if one is significant
# the other way. Otherwise, if the intervals lie short of the published sizes, that is the result; else it cannot be
# determined. A method that says far less or more than the one it is compared with, or refuses far more often, is not
# better for that: such a claim cannot be determined.

Verdict = Literal["holds", "fails", "published size excluded", "cannot be determined"]
VERDICTS: tuple[Verdict, ...] = ("holds", "fails", "published size excluded", "cannot be determined")
NOT_RUN = "not run"
ALPHA = 0.05
MARGIN = 2.0
"""A loss of less than this counts as none, in points of 100."""


@dataclass(frozen=True, slots=True)
class PaperClaim:
    """What a paper says, in our words, and whether it is so for one of our models."""

    text: str
    place: str
    """Where the paper says it."""
    model: str
    verdict: Verdict
    why: str
    preset: str = ""
    """The preset of the method that was checked; empty where there is no choice."""


Finding = tuple[Verdict, str]
"""A verdict and its reason."""


def untold(why: str) -> Finding:
    return "cannot be determined", why


def counted(claims: Iterable[PaperClaim]) -> dict[Verdict, int]:
    """Returns how many claims have each verdict."""
    found = [claim.verdict for claim in claims]
    return {verdict: found.count(verdict) for verdict in VERDICTS}


def moves(differences: Sequence[PairedDifference | None], wanted: Literal["lower", "higher"]) -> Finding:
    """Decides that all differences go the `wanted` way; so may distances from zero."""
    known = [each for each in differences if each is not None]
    if not known or len(known) < len(differences):
        return untold(NOT_RUN)
    sign = -1 if wanted == "lower" else 1
    found = by_signs([sign * each for each in _signs(known)], "; ".join(map(str, known)))
    short = [_falls_short(each, sign) for each in known]
    return found if found[0] in ("holds", "fails") else undecided(found[1], short)


def by_signs(signs: Iterable[int], why: str) -> Finding:
    """Decides by what each comparison shows: 1 as claimed, −1 the opposite, 0 neither."""
    shown = set(signs)
    return ("fails", why) if -1 in shown else ("holds", why) if shown == {1} else untold(why)


def _falls_short(found: PairedDifference, sign: int) -> bool | None:
    """Whether the whole interval is smaller than the published size, as claimed; None if either is unknown."""
    low, high, published = found.effect.low, found.effect.high, found.effect.published
    if low is None or high is None or published is None:
        return None
    return max(sign * low, sign * high) < sign * published


def undecided(why: str, short: Iterable[bool | None]) -> Finding:
    """Returns that the published sizes are excluded, if all that are known are; else that nothing can be told."""
    known = [each for each in short if each is not None]
    return ("published size excluded", why) if known and all(known) else untold(why)


def kept(differences: Sequence[PairedDifference | None], margin: float = MARGIN) -> Finding:
    """Decides that no score that should be high has lost more than the margin."""
    known = [each for each in differences if each is not None]
    if not known or len(known) < len(differences):
        return untold(NOT_RUN)
    why = f"{'; '.join(map(str, known))}. A loss of up to {margin:g} counts as none"
    lost = [(each.effect.difference or 0.0) < -margin for each in known]
    if any(sign < 0 and loss for sign, loss in zip(_signs(known), lost, strict=True)):
        return "fails", why
    lows = [each.effect.low for each in known]
    return ("holds", why) if all(low is not None and low > -margin for low in lows) else untold(why)


def all_of(*findings: Finding) -> Finding:
    """Decides that all parts of a claim hold."""
    why = ". ".join(dict.fromkeys(reason for _, reason in findings))
    verdicts = {verdict for verdict, _ in findings}
    if "fails" in verdicts:
        return "fails", why
    return ("holds", why) if verdicts == {"holds"} else untold(why)


def unless(fault: str, finding: Finding) -> Finding:
    """Returns the finding, or that it cannot be determined because of the fault; what fails, fails all the same."""
    return untold(f"{fault}. {finding[1]}") if fault and finding[0] != "fails" else finding


def given(missing: str, finding: Finding) -> Finding:
    """Returns the finding, or that it cannot be determined since what it is about did not take place."""
    return untold(f"{missing}. {finding[1]}") if missing else finding


def unshown(what: str, premise: Finding) -> str:
    """Returns that what a claim takes for granted is not shown, and why; nothing if it is."""
    return "" if premise[0] == "holds" else f"{what} is not shown. {premise[1]}"


def _signs(differences: Sequence[PairedDifference]) -> list[int]:
    """Returns 1 or −1 for each difference that is significant after correction, else 0."""
    adjusted = holm([each.effect.p_value for each in differences])
    return [sign_of(each.effect, p) for each, p in zip(differences, adjusted, strict=True)]


def sign_of(found: Effect | Estimate, p_value: float | None) -> int:
    """Returns 1 or −1 if the difference is significant, else 0."""
    return 0 if p_value is None or p_value > ALPHA else side_of(found.low, found.high)


_UNSET = ModelPlan.model_fields
_DECIDED = ("benchmark", "benchmark_options", "seeds", "scorers", "limit")
"""Fields of a plan that the paper decides."""
PAPER_PRESET, RELEASED = "paper", "released"
PRESETS = (PAPER_PRESET, RELEASED, DEFAULT_PRESET)
"""What the paper prints, what its authors' code does, and what we do."""
BOTH, EVERY = "both", "all"
"""Stand for the paper's preset and ours, and for all that a paper has."""
REPRODUCIBLE = "Can it be reproduced?"
"""Heading of the column that says why published numbers cannot be reproduced."""


def _listed(value: Any) -> tuple[Any, ...]:
    return tuple(cast("Sequence[Any]", value)) if isinstance(value, list | tuple) else (value,)


class PaperOptions(PlanFields, TemplatesField, ModelsRequest, RunFields):
    """The options of every paper; each paper extends them with its own. What is not given is as in the paper."""

    section: ClassVar[str] = "Options"
    fixed: ClassVar[Sequence[str]] = ("benchmark", "benchmark_options", "seeds", "scorers")
    several_models: ClassVar[bool] = False
    """Whether the page shows several base models side by side."""

    models: Annotated[tuple[Any, ...], BeforeValidator(_listed)] = option(
        (), "The model, or one for a role.", flag="--model", short="-m", metavar="[ROLE=]SPEC", common=True
    )
    limit: int | None = option(
        None, "Items of each kind, e.g. category (default: the paper's).", short="-n", ge=1, common=True
    )
    builtin: bool = option(False, "Our own data sets, with nothing to download.", common=True)
    data: Text | None = option(None, "The folder of the public data sets.", metavar="FOLDER")
    seed: int = option(0, "Draws the items.")
    out: Path | None = option(
        None, "For page, CSV files and runs (default runs/paper-NAME-…).", short="-o", common=True
    )

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if self.builtin and self.data:
            raise UsageError("The built-in data sets need no folder; remove --data, or --builtin.")
        return self

    @property
    def assigned(self) -> list[Assignment]:
        """For each base model, the models by role, as in a plan; empty if none is named."""
        judge = self.judge if isinstance(self, JudgeFields) else None
        texts = [each for each in self.models if isinstance(each, str)]
        named = len(texts) < len(self.models) or any(role == "base" for role, _ in roles_and_specs(texts))
        return self.with_models({}, self.models, judge).models if named else []

    @property
    def model(self) -> ModelPlan:
        """The first base model; its features decide which methods are run."""
        return self.assigned[0]["base"]

    @property
    def scorers_of_page(self) -> Sequence[str]:
        """Scorers whose stored scores the page shows instead of those of the planned ones."""
        return ()

    @property
    def asked_of_methods(self) -> Mapping[str, Mapping[str, Any]]:
        """Method → the user's options of it, where the paper takes some."""
        return self.methods if isinstance(self, MethodOptionsField) else {}

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
        asked = self.asked_of_methods
        chosen = [MethodPlan(name=each.name, options={**each.options, **asked.get(each.name, {})}) for each in named]
        roles = {"base", *(role for each in chosen for role in METHODS.get(each.name).roles)}
        assigned = self.assigned
        own = [
            {role: model for role, model in each.items() if (JUDGE if is_judge(role) else role) in roles}
            for each in assigned
        ]
        data = {"data": self.data} if self.data and is_public else {}
        return make_plan(
            {
                **{
                    name: value
                    for name, value in self.given(PlanFields, TemplatesField).items()
                    if name not in _DECIDED
                },
                "benchmark": benchmark,
                "benchmark_options": {**(options or {}), **data},
                "methods": chosen,
                "models": own if models is None else [models] if isinstance(models, dict) else list(models),
                "seeds": [self.seed],
                "limit": limit,
                "scorers": list(scorers) or None,
            },
            self._reach() if assigned else None,
        )


class PresetField(Request):
    """A paper whose method is run as printed, as released, with our settings, or with several side by side."""

    declared: ClassVar[Sequence[Presets]] = ()
    """What the presets are, element by element."""

    preset: str = option(
        BOTH,
        "As printed (paper), as the authors' code does it (released), ours (evenhand), both without released, or all.",
        metavar="PRESET",
        common=True,
    )

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """The presets that there are."""
        known = {DEFAULT_PRESET, *(name for each in cls.declared for name in each)}
        return tuple(each for each in PRESETS if each in known)

    @model_validator(mode="after")
    def _exists(self) -> Self:
        if self.preset not in (*self.names(), BOTH, EVERY):
            why = "its authors have released no code that could be read; " if self.preset == RELEASED else ""
            raise UsageError(
                f"This paper has no preset {self.preset!r}: {why}choose one of {', '.join((*self.names(), BOTH))} or "
                f"{EVERY}."
            )
        return self

    @property
    def chosen_presets(self) -> tuple[str, ...]:
        """The presets that the paper's methods are run with."""
        if self.preset in (BOTH, EVERY):
            return tuple(each for each in self.names() if self.preset == EVERY or each != RELEASED)
        return (self.preset,)

    def by_preset(self, name: str, options: Mapping[str, Any] | None = None) -> list[MethodPlan]:
        """Returns the method with these options, once for each preset."""
        named = [{} if each == DEFAULT_PRESET else {PRESET: each} for each in self.chosen_presets]
        return [MethodPlan(name=name, options={**preset, **(options or {})}) for preset in named]


class MethodOptionsField(Request):
    """A paper whose methods take options of the user, which win over presets and over the paper's choices."""

    methods: Mapping[str, Mapping[str, Any]] = option(
        {},
        "Options of one of the paper's methods, in place of the preset's.",
        flag="--method",
        metavar="NAME:KEY=VALUE,…",
        read=lambda texts: dict(map(read_spec, texts)),
    )


def preset_of(key: ArmKey) -> str:
    """Returns the preset that an arm was run with."""
    return key.options.get(PRESET, DEFAULT_PRESET)


@dataclass(frozen=True, slots=True)
class PaperColumn:
    """A column of a table."""

    name: str
    """Name of the metric, as in CSV files."""
    title: str
    hint: str = ""
    """Which way is better."""
    over: str = ""
    """A heading shared with neighbouring columns."""


@dataclass(frozen=True, slots=True)
class PaperCell:
    """Our number, the paper's, or both."""

    estimate: Estimate | None = None
    published: float | None = None
    spread: float | None = None
    """The standard deviation over trainings, where our number is their mean."""


@dataclass(frozen=True, slots=True)
class PaperRow:
    """A row of a table; `published_as` is its name in the paper, if it is there."""

    method: str
    setting: str
    cells: Sequence[PaperCell]
    ours: bool = True
    """Whether the row has our numbers; a missing one is shown as a dash."""
    note: str = ""
    """Why our numbers are missing."""
    published_as: str = ""
    reproducible: str = ""
    """Whether the published numbers can be reproduced, and why not."""

    @classmethod
    def of_paper(
        cls, method: str, numbers: Iterable[float | None], setting: str = "", name: str = "", reason: str = ""
    ) -> PaperRow:
        """Returns a row of published numbers alone; `name` is its name in the paper, `reason` why it cannot be made."""
        return cls(method, setting, [PaperCell(None, each) for each in numbers], False, "", name, reason)

    @classmethod
    def if_run(cls, method: str, setting: str, cells: Sequence[PaperCell], *, ran: bool) -> PaperRow:
        """Returns a row of ours, which says so if it was not run."""
        return cls(method, setting, cells, ran, "" if ran else NOT_RUN)


@dataclass(frozen=True, slots=True)
class Grid:
    """Rows and columns; `name` distinguishes the grids of one table."""

    name: str
    columns: Sequence[PaperColumn]
    rows: Sequence[PaperRow]
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
    radar: bool = False
    """Whether it is drawn as a radar for each model, ours and the paper's, instead."""


@dataclass(frozen=True, slots=True)
class PaperTable:
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
    tables: Sequence[PaperTable]
    figures: Sequence[Figure]
    notes: Sequence[tuple[str, str]]
    """(topic, what cannot be compared and why)."""
    warnings: Sequence[str] = ()
    claims: Sequence[PaperClaim] = ()
    """What the paper says, with the verdict on each of our models."""
    found: Sequence[tuple[str, str]] = ()
    """(arm, what was found in it, in a sentence), where claims alone do not say it."""
    process: StudyResult | None = None
    """The arms of all runs, for cost, failures and provenance."""
    cases: Sequence[Case] = ()
    """Answers to read, before and after."""
    cases_title: str = "Cases"
    elements: Sequence[Element] = ()
    """What the presets do, element by element."""
    itself: Sequence[tuple[str, str]] = ()
    """(place, what the published numbers say about themselves, with the arithmetic)."""


class PlannedPaper(Protocol):
    """What is to be done for a paper."""

    @property
    def folder(self) -> Path:
        """For page, CSV files and runs."""
        ...

    def forecast(self, prices: Mapping[str, Price]) -> AbstractContextManager[tuple[Sequence[SeriesRun], Usage]]:
        """The runs, and at least what is used before they can begin; valid inside the context."""
        ...

    @property
    def preparation(self) -> str:
        """A sentence about what is used before the runs can begin, with {usage} in it."""
        ...

    @property
    def warnings(self) -> Sequence[str]: ...

    @property
    def notes(self) -> Sequence[str]:
        """What a forecast says of what cannot be counted in calls."""
        ...

    def make(self, settings: Settings, listener: Listener) -> PaperResult:
        """Do what is missing within one budget and write the page."""
        ...


PaperOptionsT = TypeVar("PaperOptionsT", bound=PaperOptions, default=PaperOptions)


class Paper(ABC, Generic[PaperOptionsT]):
    """A paper whose results can be reproduced."""

    name: ClassVar[str]
    title: ClassVar[str]
    folders: ClassVar[tuple[str, ...]]
    """The folders of its runs, in display order; `*` matches any name."""
    Options: type[PaperOptionsT]
    """Its own options, and those of every paper."""
    examples: ClassVar[tuple[str, ...]] = ()
    """More examples for its help: what follows `evenhand papers NAME`."""

    @property
    def elements(self) -> list[Element]:
        """What the paper's presets do, element by element."""
        declared = self.Options.declared if issubclass(self.Options, PresetField) else ()
        return [element for each in declared for element in each.elements]

    @abstractmethod
    def runs(self, options: PaperOptionsT) -> Sequence[SeriesRun]:
        """Returns the runs that the paper needs."""

    @abstractmethod
    def page(self, folders: Mapping[str, Path], scorers: Sequence[str] = ()) -> PaperPage:
        """Returns the tables and figures from the existing run folders; missing runs leave cells empty.

        `scorers` selects stored scores to use instead of the planned scorers' scores.
        """

    def planned(self, options: PaperOptionsT, out: Path | None) -> PlannedPaper | None:
        """Returns what is to be done where that is more than the runs; None if the runs are all."""
        del options, out
        return None


PAPERS: Registry[Paper[Any]] = Registry("paper", package="evenhand.papers")


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
    itself: Sequence[tuple[str, str]] = ()
    """(place, what the published numbers say about themselves); the tests compute it from these numbers."""
    shown: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    """Table → its title, its lead and perhaps its columns on our page."""

    def table(self, name: str, grids: Sequence[Grid], sentences: Sequence[str] = ()) -> PaperTable:
        """Returns a table with its title and its lead."""
        return PaperTable(name, self.shown[name]["title"], self.shown[name]["lead"], grids, sentences)

    def columns(self, table: str) -> Sequence[PaperColumn]:
        """Returns the columns of a table."""
        return [PaperColumn(*each) for each in self.shown[table]["columns"]]

    def rows(self, table: str, columns: Sequence[str], ending: str = "") -> list[PaperRow]:
        """Returns the paper's rows, named by model and setting; `ending` selects one metric."""
        reasons, found = self.reproducible[table], list[PaperRow]()
        for name, numbers in self.tables[table].items():
            if name.endswith(ending):
                model, _, setting = name.removesuffix(ending).partition(", ")
                reason = reasons.get(name) or reasons.get(setting, "")
                found.append(PaperRow.of_paper(model, map(numbers.get, columns), setting, name, reason))
        return found

    def row(self, table: str, name: str) -> Mapping[str, float]:
        """Returns the numbers of a row; empty for rows that are not in the paper."""
        return self.tables[table][name] if name else {}


@cache
def published(paper: str) -> Published:
    """Reads the published numbers of a paper from its YAML file."""
    raw: dict[str, Any] = read_yaml(resources.files(f"evenhand.papers.{paper}") / "published.yaml")
    return Published(
        raw["title"],
        raw["source"],
        {name: _rows(table) for name, table in raw["tables"].items()},
        [(each["about"], each["text"]) for each in raw["notes"]],
        {name: table.get("reproducible", {}) for name, table in raw["tables"].items()},
        [(each["about"], each["text"]) for each in raw["itself"]],
        raw["shown"],
    )


def _rows(table: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Returns the rows of a table, multiplied by its scale."""
    scale: float = table.get("scale", 1)
    # Rounded, since 0.29 × 100 is not 29 in floating point.
    rows: dict[str, dict[str, float] | list[float]] = table["rows"]
    named = {
        row: values if isinstance(values, dict) else dict(zip(cast("list[str]", table["columns"]), values, strict=True))
        for row, values in rows.items()
    }
    return {row: {column: round(scale * value, 6) for column, value in each.items()} for row, each in named.items()}
