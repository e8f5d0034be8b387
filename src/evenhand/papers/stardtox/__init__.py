"""StarDTox (Tahmasebi et al.): Table II (completions), Table III (BBQ) and Figure 3 (how much is refined)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evenhand.data.bbq import CATEGORIES
from evenhand.data.realtoxicity import BANDS
from evenhand.models.base import split_spec
from evenhand.models.endpoints import provider_class
from evenhand.papers.base import (
    PAPERS,
    Bar,
    Cell,
    Choice,
    Column,
    Figure,
    Grid,
    PaperOptions,
    PaperPage,
    PaperRun,
    Row,
    Table,
    published,
)
from evenhand.papers.stardtox.refined import refined_shares
from evenhand.papers.studies import BUILTIN, models_of, study_of, together, warnings_of
from evenhand.runs.plan import ArmKey, MethodPlan, ModelPlan
from evenhand.runs.stored import open_sources
from evenhand.studies.results import ArmResult, StudyResult
from evenhand.studies.tally import ALL

NAME = "stardtox"
PER_KIND = 100
"""Prompts per band and questions per category in the paper."""
COMPLETIONS = 25
ITERATIONS = (1, 2)
NEEDS_LOGITS = "needs logits: hf/ models"
NOT_RUN = "not run"
TEXTS, CHOICES = "realtoxicity", "bbq"


@dataclass(frozen=True, slots=True)
class _Arm:
    """An arm of the paper's runs."""

    method: str
    performance: bool | None = None
    """The plan's option; None for the method's default, which rates performance too."""

    def fits(self, key: ArmKey) -> bool:
        return key.is_method(self.method, performance=self.performance)


WITH, WITHOUT = _Arm(NAME), _Arm(NAME, performance=False)
STEERED = _Arm("self_debias_gen")


@dataclass(frozen=True, slots=True)
class _Line:
    """A row: our arm (None if there is none) and its name in the paper (empty if it is not there)."""

    method: str
    setting: str
    arm: _Arm | None
    published_as: str
    iteration: int | None = None


def _iterations(method: str, arm: _Arm, published_as: str) -> list[_Line]:
    return [_Line(method, f"Iter. {k}", arm, f"{published_as}, Iter. {k}", k) for k in ITERATIONS]


_DEFAULT = _Line("Default", "", _Arm("default"), "GPT-3.5 Default")
_FAIR = _Line("Fairness-aware prompt", "", _Arm("fair_prompt"), "GPT-3.5 + Fairness-aware Prompt")
_TEXT_LINES = (
    _DEFAULT,
    _FAIR,
    _Line("Self-Debias (Gen)", "this model", STEERED, ""),
    *(
        _Line("Self-Debias (Gen)", f"GPT-2 {size}", None, f"Self-Debias (Gen), {size}")
        for size in ("Standard", "Medium", "Large", "XL")
    ),
    *_iterations("StarDTox w/ performance", WITH, "STARDTOX w/ Performance"),
    *_iterations("StarDTox w/o performance", WITHOUT, "STARDTOX w/o Performance"),
)
_CHOICE_LINES = (
    _DEFAULT,
    _FAIR,
    *_iterations("StarDTox", WITH, "STARDTOX"),
    _Line("Self-Debias (QA)", "Explanation", _Arm("self_debias_explain"), "Self-Debias (QA), Explanation"),
    _Line("Self-Debias (QA)", "Reprompting", _Arm("self_debias_reprompt"), "Self-Debias (QA), Reprompting"),
)
_TEXT_COLUMNS = (
    Column("toxicity", "Toxicity", "lower is better"),
    Column("coherence", "Coherence", "higher is better"),
    Column("fluency", "Fluency", "higher is better"),
    Column("relevance", "Relevance", "higher is better"),
    Column("refusal", "Refusals"),
    Column("expected_max_toxicity", "Expected max. toxicity", "lower is better"),
    Column("any_toxic", "P(any ≥ 0.5)", "lower is better"),
)
_CHOICE_COLUMNS = (
    Column("accuracy_ambig", "Accuracy", "higher is better", "Ambiguous"),
    Column("bias_ambig", "Bias", "0 is best", "Ambiguous"),
    Column("unknown_ambig", "Unknown", "", "Ambiguous"),
    Column("accuracy_disambig", "Accuracy", "higher is better", "Disambiguated"),
    Column("bias_disambig", "Bias", "0 is best", "Disambiguated"),
    Column("unknown_disambig", "Unknown", "", "Disambiguated"),
    Column("coverage", "Coverage", "higher is better", "Both"),
)


class StarDTox:
    """Table II, Table III and Figure 3 for any model."""

    name = NAME
    title = "StarDTox: Table II (RealToxicityPrompts), Table III (BBQ) and Figure 3"
    folders: tuple[str, ...] = (TEXTS, CHOICES)
    takes: frozenset[Choice] = frozenset({"completions", "scorers"})

    def runs(self, options: PaperOptions) -> list[PaperRun]:
        """Returns the runs: completions with five methods (four without logits) and questions with five."""
        each = PER_KIND if options.limit is None else options.limit
        ending = BUILTIN if options.builtin else ""
        steered = (STEERED.method,) if gives_logits(options.model) else ()
        without = MethodPlan(name=NAME, options={"performance": False})
        texts = options.plan(
            TEXTS + ending,
            ["default", "fair_prompt", *steered, NAME, without],
            limit=each * len(BANDS),
            options={"completions": COMPLETIONS if options.completions is None else options.completions},
            scorers=options.scorers,
        )
        choices = options.plan(
            CHOICES + ending,
            ["default", "fair_prompt", NAME, "self_debias_explain", "self_debias_reprompt"],
            limit=each * len(CATEGORIES),
        )
        return [PaperRun(TEXTS, texts), PaperRun(CHOICES, choices)]

    def page(self, folders: Mapping[str, Path], scorers: Sequence[str] = ()) -> PaperPage:
        """Returns the page of the runs in `folders`, named as in `runs`."""
        studies = {
            name: study_of(name, folder, scorers if name == TEXTS else (), iterations=True)
            for name, folder in folders.items()
        }
        bars = [bar for name, folder in folders.items() for bar in _bars(name, folder)]
        paper = published(NAME)
        return PaperPage(
            title=f"StarDTox with {', '.join(models_of(studies)) or 'no model'}",
            source=paper.source,
            lead=_lead(studies, _measured(folders[TEXTS], scorers) if TEXTS in folders else []),
            tables=[_table_two(studies.get(TEXTS)), _table_three(studies.get(CHOICES))],
            figures=[_figure_three(bars)],
            notes=paper.notes,
            warnings=warnings_of(studies, {name: _full_size(name) for name in self.folders}),
            process=together(studies),
        )


PAPERS.register(NAME)(StarDTox())


def gives_logits(model: ModelPlan) -> bool:
    """Returns whether models of this provider give all logits, without loading one."""
    features: object = getattr(provider_class(model.provider or split_spec(model.spec)[0]), "features", None)
    return isinstance(features, frozenset) and "logits" in features


# --- the tables ---


def _table_two(found: StudyResult | None) -> Table:
    return Table(
        "table2",
        "Table II: sentence completion",
        "Mean toxicity and quality of the completions, in per cent, by band of the prompts. The paper has the first "
        "four columns; the others say what a low toxicity may have cost or hidden.",
        [
            Grid(band, _TEXT_COLUMNS, [_row(line, found, _TEXT_COLUMNS, band, band) for line in _TEXT_LINES])
            for band in BANDS
        ],
        list(found.verdicts) if found else [],
    )


def _table_three(found: StudyResult | None) -> Table:
    return Table(
        "table3",
        "Table III: multiple-choice questions",
        "Accuracy and bias on BBQ, in per cent, pooled over all categories. The paper has accuracy and bias; the share "
        "of “unknown” answers and the coverage tell at what price a low bias comes.",
        [Grid("BBQ", _CHOICE_COLUMNS, [_row(line, found, _CHOICE_COLUMNS, ALL, CHOICES) for line in _CHOICE_LINES])],
        list(found.verdicts) if found else [],
    )


def _row(line: _Line, found: StudyResult | None, columns: Sequence[Column], group: str, table: str) -> Row:
    paper = published(NAME).row(table, line.published_as)
    arm = _arm(found, line) if found else None
    cells = [Cell(arm.estimate(column.name, group) if arm else None, paper.get(column.name)) for column in columns]
    return Row(line.method, line.setting, cells, arm is not None, _note(line, found, arm), line.published_as)


def _arm(found: StudyResult, line: _Line) -> ArmResult | None:
    """Returns the arm of a line; if no item needed the iteration, the final results are used."""
    of_line = [arm for arm in found.arms if line.arm is not None and line.arm.fits(arm.key)]
    at = [arm for arm in of_line if arm.iteration == line.iteration]
    return next(iter(at or [arm for arm in of_line if arm.iteration is None]), None)


def _note(line: _Line, found: StudyResult | None, arm: ArmResult | None) -> str:
    if arm is not None or line.arm is None:
        return ""
    missing_logits = found is not None and line.arm == STEERED
    return NEEDS_LOGITS if missing_logits else NOT_RUN


# --- the figure ---


def _figure_three(bars: Sequence[Bar]) -> Figure:
    return Figure(
        "figure3",
        "Figure 3: what is refined",
        "The share of completions (RealToxicityPrompts, moderate and high) and of answers (BBQ) that were refined in "
        "the first and in the second iteration, in per cent; a bar's length is the number of refinements per 100.",
        [f"Iteration {k}" for k in ITERATIONS],
        bars,
    )


def _bars(name: str, folder: Path) -> list[Bar]:
    """Returns one bar per data set and iterating arm, grouped by data set as in the paper."""
    settings = {"w/ performance": WITH, "w/o performance": WITHOUT} if name == TEXTS else {"": WITH}
    key, names = ("band", {band: band for band in BANDS}) if name == TEXTS else (None, {ALL: "BBQ"})
    shares = refined_shares(folder, {setting: arm.fits for setting, arm in settings.items()}, key, ITERATIONS)
    return [
        Bar(title, setting, shares[setting][group])
        for group, title in names.items()
        for setting in settings
        if group in shares.get(setting, {})
    ]


# --- about the runs ---


def _measured(folder: Path, scorers: Sequence[str]) -> list[str]:
    """Returns the specs of the scorers in use."""
    with open_sources([folder], scorers=scorers) as (runs, sources):
        known: dict[str, Any] = runs[0].store.get("scorers") or {}
        return [known[scorer]["spec"] for scorer in sources[0].scorers[1:]]


def _lead(studies: Mapping[str, StudyResult], measured: Sequence[str]) -> str:
    parts: list[str] = []
    for name, found in studies.items():
        facts = found.provenance[next(iter(found.provenance))]
        plan = facts["plan"]
        parts.append(f"{_samples(name, facts['samples'], plan)} of {found.benchmark}, seed {plan['seeds'][0]}")
        if name == TEXTS:
            parts[-1] += f", measured by {' and '.join(measured) or 'no scorer'}"
    return "; ".join(parts) + ". In brackets: 95 % intervals. A dash: no value, which is not 0." if parts else ""


def _samples(name: str, samples: int, plan: Mapping[str, Any]) -> str:
    if name == CHOICES:
        return f"{samples:,} questions"
    completions: int = plan["benchmark_options"].get("completions", COMPLETIONS)
    return f"{samples // completions:,} prompts × {completions} completions"


def _full_size(name: str) -> int:
    return PER_KIND * (len(BANDS) * COMPLETIONS if name == TEXTS else len(CATEGORIES))
