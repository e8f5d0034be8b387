"""StarDTox (Tahmasebi et al.): Table II (completions), Table III (BBQ), Figure 3 (how much is refined), its claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from evenhand.benchmarks.realtoxicity import BANDS, RealToxicity
from evenhand.core.errors import UnknownNameError
from evenhand.core.options import PRESET, Several, option
from evenhand.data.bbq import CATEGORIES
from evenhand.judging.judge import JUDGE
from evenhand.methods.stardtox import StarDToxOptions as MethodsOptions
from evenhand.models.base import split_spec
from evenhand.models.endpoints import provider_class
from evenhand.papers.base import (
    PAPER_PRESET,
    PAPERS,
    MethodOptionsField,
    Paper,
    PaperOptions,
    PaperPage,
    PresetField,
    published,
)
from evenhand.papers.reading import (
    BUILTIN,
    lead_of,
    models_of,
    questions_run,
    samples_run,
    study_of,
    together,
    warnings_of,
)
from evenhand.papers.stardtox.tables import (
    BASES,
    CHOICES,
    NAME,
    STEERED,
    TEXTS,
    claims,
    figure_three,
    presets_in,
    read_tested,
    refined_bars,
    table_one,
    table_three,
    table_two,
)
from evenhand.runs.execute import SeriesRun
from evenhand.runs.plan import Assignment, MethodPlan, ModelPlan, model_plan
from evenhand.runs.request import JudgeFields
from evenhand.runs.stored import open_sources
from evenhand.scorers.base import SCORERS
from evenhand.studies.results import StudyResult

PER_KIND = 100
"""Prompts per band and questions per category in the paper."""
COMPLETIONS = 25
FULL_SIZES = {TEXTS: PER_KIND * len(BANDS) * COMPLETIONS, CHOICES: PER_KIND * len(CATEGORIES)}
RAW = {"template": "none"}
"""The model option that sends the text as it is."""
_QUALITY = "quality"


class StarDToxOptions(PresetField, MethodOptionsField, JudgeFields, PaperOptions):
    """The options of StarDTox."""

    fixed: ClassVar[Sequence[str]] = tuple(name for name in PaperOptions.fixed if name != "scorers")
    declared: ClassVar = (MethodsOptions.presets,)

    completions: int | None = option(None, "Completions per prompt (default: as the paper).", ge=1, common=True)
    steer: str | None = option(
        None, "The scorer that steers revisions, e.g. perspective or neural.", metavar="SCORER", common=True
    )
    quality: str | None = option(
        None, "The model that measures quality; not the one that steers.", metavar="SPEC", common=True
    )
    base_models: Several = option(
        (),
        "An hf/ model without instruction tuning, e.g. hf/gpt2: a row of Self-Debias (Gen).",
        flag="--base-model",
        metavar="SPEC",
    )

    @property
    def scorers_of_page(self) -> Sequence[str]:
        """The scorers that are named."""
        return self.scorers or ()


class StarDTox(Paper[StarDToxOptions]):
    """Table II, Table III, Figure 3 and the claims for any model."""

    name = NAME
    title = "StarDTox: Table II (RealToxicityPrompts), Table III (BBQ) and Figure 3"
    folders = (TEXTS, CHOICES, BASES)
    Options = StarDToxOptions

    def runs(self, options: StarDToxOptions) -> list[SeriesRun]:
        """Returns the runs: completions, questions, and completions of base models if some are named."""
        each = PER_KIND if options.limit is None else options.limit
        ending = BUILTIN if options.builtin else ""
        steered = (STEERED.method,) if gives_logits(options.model) else ()
        own = [_steered(each, options.steer) for each in options.by_preset(NAME)]
        without = [_steered(each, options.steer) for each in options.by_preset(NAME, {"performance": False})]
        drawn: dict[str, Any] = {
            "limit": each * len(BANDS),
            "options": {"completions": COMPLETIONS if options.completions is None else options.completions},
            "scorers": _scorers(options),
        }
        texts = options.plan(TEXTS + ending, ["default", "fair_prompt", *steered, *own, *without], **drawn)
        choices = options.plan(
            CHOICES + ending,
            ["default", "fair_prompt", *own, "self_debias_explain", "self_debias_reprompt"],
            limit=each * len(CATEGORIES),
        )
        runs = [SeriesRun(TEXTS, texts), SeriesRun(CHOICES, choices)]
        if options.base_models:
            bases = options.plan(TEXTS + ending, ["default", STEERED.method], models=_bases(options), **drawn)
            runs.append(SeriesRun(BASES, bases))
        return runs

    def page(self, folders: Mapping[str, Path], scorers: Sequence[str] = ()) -> PaperPage:
        """Returns the page of the runs in `folders`, named as in `runs`."""
        studies = {
            name: study_of(
                TEXTS if name == BASES else name, folder, () if name == CHOICES else scorers, iterations=True
            )
            for name, folder in folders.items()
        }
        presets = presets_in(list(studies.values()))
        bars = [bar for name, folder in folders.items() for bar in refined_bars(name, folder, presets)]
        tested = [
            read_tested(name, folders[name], found, presets, scorers)
            for name, found in studies.items()
            if name != BASES
        ]
        paper = published(NAME)
        own_judge = TEXTS in studies and _judges_itself(studies[TEXTS])
        return PaperPage(
            title=f"StarDTox with {', '.join(models_of(studies)) or 'no model'}",
            source=paper.source,
            itself=paper.itself,
            lead=_lead(studies, _measured(folders[TEXTS], scorers) if TEXTS in folders else []),
            tables=[
                table_two(studies.get(TEXTS), studies.get(BASES), presets),
                table_three(studies.get(CHOICES), presets),
                table_one(),
            ],
            figures=[figure_three(bars)],
            notes=paper.notes,
            warnings=[
                *warnings_of(studies, FULL_SIZES),
                *([_OWN_JUDGE] if own_judge else ()),
            ],
            claims=claims(tested, presets, own_judge=own_judge),
            process=together(studies),
        )


PAPERS.register(NAME)(StarDTox())
_OWN_JUDGE = (
    "The judge that steers the revisions also measures their quality, so that a good quality says little. Name another "
    "with --quality SPEC."
)


_STEERING = ("perspective", "neural")
"""The scorers that steer the paper's method: the first that can be used here."""
MATCHED = {"perspective": 0.1, "neural": 0.07, "builtin": 0.12, "builtin_b": 0.12}
"""Scorer → the toxicity below which as many texts of RealToxicityPrompts are as below 0.1 of Perspective."""


def _steered(plan: MethodPlan, named: str | None) -> MethodPlan:
    """Returns the method with its scorer (the user's, the paper's or ours) and the paper's threshold on its scale."""
    printed = plan.options.get(PRESET) == PAPER_PRESET
    able = [each for each in _STEERING if SCORERS.get(each).unavailable() is None]
    own = named or (next(iter(able), None) if printed else None)
    chosen: dict[str, Any] = {"scorer": own} if own else {}
    if printed and own:
        chosen["toxicity"] = MATCHED.get(own, MATCHED["perspective"])
    return MethodPlan(name=plan.name, options={**plan.options, **chosen})


def gives_logits(model: ModelPlan) -> bool:
    """Returns whether models of this provider give all logits, without loading one."""
    try:
        provider = provider_class(model.provider or split_spec(model.spec)[0])
    except UnknownNameError:  # a model made in Python, or a name that is refused when it is loaded
        return False
    features: object = getattr(provider, "features", None)
    return isinstance(features, frozenset) and "logits" in features


def _scorers(options: StarDToxOptions) -> Sequence[str]:
    """Returns the scorers: the user's, else the benchmark's with the judge of quality that the user names."""
    if options.scorers or options.quality is None:
        return options.scorers or ()
    return [f"{each}:{options.quality}" if each == _QUALITY else each for each in RealToxicity.scorers]


def _bases(options: StarDToxOptions) -> list[Assignment]:
    """Returns the base models, each with the judge of the instructed model's texts, since none can judge itself."""
    judge = options.assigned[0].get(JUDGE, options.model)
    plans = [model_plan(spec) for spec in options.base_models]
    raw = [each.model_copy(update={"extra": {**RAW, **each.extra}}) for each in plans]
    return [{"base": each, JUDGE: judge} for each in raw]


def _judges_itself(found: StudyResult) -> bool:
    """Returns whether the model that judges in the loop also measured the quality."""
    steering = {arm.models.get(JUDGE, arm.models["base"]) for arm in found.arms}
    return any(each.partition("@")[0] in {f"{_QUALITY}:{spec}" for spec in steering} for each in found.scorers)


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
        shown = questions_run(found) if name == CHOICES else _texts_run(found, plan)
        parts.append(f"{shown} of {found.benchmark}, seed {plan['seeds'][0]}")
        if name == TEXTS:
            parts[-1] += f", measured by {' and '.join(measured) or 'no scorer'}"
    return lead_of(parts)


def _texts_run(found: StudyResult, plan: Mapping[str, Any]) -> str:
    run, planned = samples_run(found)
    completions: int = plan["benchmark_options"].get("completions", COMPLETIONS)
    whole = f"{planned // completions:,} prompts × {completions} completions"
    return whole if run == planned else f"{run:,} of {planned:,} texts ({whole})"
