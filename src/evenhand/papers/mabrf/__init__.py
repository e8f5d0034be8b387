"""MABRF (Roy and Rehman): Tables 1 to 5, Figure 4 (relevancy of the reasoning), its research questions and claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Self

from pydantic import model_validator

from evenhand.core.errors import UsageError
from evenhand.core.options import option
from evenhand.data.bbq import CATEGORIES
from evenhand.methods.base import METHODS
from evenhand.methods.mabrf.agents import MabrfOptions
from evenhand.methods.search import SearchOptions
from evenhand.papers.base import PAPERS, MethodOptionsField, Paper, PaperOptions, PaperPage, PresetField, published
from evenhand.papers.mabrf.tables import (
    ACCURACIES,
    NAME,
    PooledArm,
    bin_metrics,
    claims,
    figure_four,
    models_in,
    pooled_arms,
    read_compared,
    read_counts,
    search_warnings,
    table_five,
    table_four,
    table_of_correlation,
    table_of_questions,
    table_of_reasoning,
    table_one,
    table_three,
    table_two,
)
from evenhand.papers.reading import BUILTIN, lead_of, models_of, questions_run, study_of, together, warnings_of
from evenhand.runs.execute import SeriesRun
from evenhand.runs.plan import MethodPlan
from evenhand.runs.pools import OPTIONS
from evenhand.runs.request import JudgeFields
from evenhand.studies.conclusions import conclusions
from evenhand.studies.results import StudyResult
from evenhand.studies.study import study

CHOICES, ANSWERS = "bbq", "squad"
FULL_SIZES = {CHOICES: 110, ANSWERS: 100}
"""Number of questions in the paper."""
SUBSET = "mabrf_110"
KINDS_OF_ANSWERS = 2
"""Answerable and unanswerable questions of SQuAD."""


class MABRFOptions(PresetField, MethodOptionsField, JudgeFields, PaperOptions):
    """The options of MABRF."""

    several_models: ClassVar[bool] = True
    declared: ClassVar = (MabrfOptions.presets, SearchOptions.presets)

    search: str | None = option(None, "Where to search (default ddgs).", metavar="SPEC", common=True)
    accept: float | None = option(
        None,
        "The judge accepts a reasoning below this bias; evenhand doctor finds the value.",
        ge=1,
        le=10,
        common=True,
    )
    look: bool = option(False, "Let the judge read the passage first, if evenhand doctor says so.", common=True)
    domain: bool = option(False, "Tell the judge what to look for in the question's category.")

    @model_validator(mode="after")
    def _one_provider(self) -> Self:
        if "," in (self.search or ""):
            raise UsageError("A paper searches with one provider, without a comma, e.g. wikipedia or corpus:FOLDER.")
        return self


class MABRF(Paper[MABRFOptions]):
    """Tables 1 to 5, Figure 4, the research questions and the claims for any models."""

    name = NAME
    title = "MABRF: Tables 1 to 5 (BBQ and SQuAD v2), Figure 4 and the research questions"
    folders = (CHOICES, ANSWERS)
    Options = MABRFOptions

    def runs(self, options: MABRFOptions) -> list[SeriesRun]:
        """Returns the runs: BBQ with four methods and SQuAD with three; the legacy bias is the paper's formula."""
        search = options.search or ("corpus:builtin" if options.builtin else "ddgs")
        ending = BUILTIN if options.builtin else ""
        judged = _judged(options)
        limit, selected = _selection(options)
        loops = [plan for each in (judged, {"search": search, **judged}) for plan in options.by_preset(NAME, each)]
        searched = _searched(options, search)
        choices = options.plan(CHOICES + ending, ["default", "cot", *loops], limit=limit, options=selected)
        most = FULL_SIZES[ANSWERS] if options.limit is None else options.limit * KINDS_OF_ANSWERS
        answers = options.plan(ANSWERS + ending, ["closed_book", *searched, "default"], limit=most)
        return [SeriesRun(CHOICES, choices), SeriesRun(ANSWERS, answers)]

    def page(self, folders: Mapping[str, Path], scorers: Sequence[str] = ()) -> PaperPage:
        """Returns the page of the runs in `folders`, named as in `runs`; scorers are not used."""
        del scorers
        studies = {name: study_of(name, folder) for name, folder in folders.items()}
        arms: dict[str, list[PooledArm]] = {name: [] for name in self.folders}
        sentences: dict[str, list[str]] = {name: [] for name in self.folders}
        for name, folder in folders.items():
            key, more = ("category", [*ACCURACIES, *bin_metrics()]) if name == CHOICES else ("group", [])
            arms[name] = pooled_arms(folder, key, more)
            sentences[name] = _sentences(folder, studies[name], arms[name])
        counts = {name: read_counts(folder) for name, folder in folders.items()}
        compared = read_compared(folders, arms, (CHOICES, ANSWERS), counts.get(CHOICES, {}))
        paper = published(NAME)
        return PaperPage(
            title=f"MABRF with {', '.join(models_of(studies)) or 'no model'}",
            source=paper.source,
            itself=paper.itself,
            lead=_lead(studies),
            tables=[
                table_of_questions(compared),
                table_three(arms[CHOICES], sentences[CHOICES]),
                table_four(arms[ANSWERS], sentences[ANSWERS]),
                table_five(arms[CHOICES]),
                table_of_correlation(compared),
                table_of_reasoning(arms[CHOICES]),
                table_one(folders.get(CHOICES)),
                table_two(folders.get(ANSWERS)),
            ],
            figures=[figure_four(arms[CHOICES])],
            notes=paper.notes,
            warnings=[
                *warnings_of(studies, FULL_SIZES),
                *(f"{name}: {warning}" for name, arms in counts.items() for warning in search_warnings(arms)),
            ],
            claims=claims(compared),
            process=together(studies),
        )


PAPERS.register(NAME)(MABRF())


def _searched(options: MABRFOptions, provider: str) -> list[MethodPlan]:
    """Returns the searches of SQuAD, each once: presets may search alike."""
    found = options.by_preset("search", {"provider": provider})
    made = {repr(METHODS.get(each.name).with_options(each.options)): each for each in reversed(found)}
    return list(made.values())[::-1]


def _judged(options: MABRFOptions) -> dict[str, Any]:
    """Returns the options that depend on the judge."""
    judged: dict[str, Any] = {name: True for name in ("look", "domain") if getattr(options, name)}
    if (accept := options.accept) is not None:
        # With a look, groundedness decides. 5.0 and 5 are the same run.
        name, bound = ("grounded", round(11 - accept, 3)) if options.look else ("accept", accept)
        judged = {name: int(bound) if bound == int(bound) else bound, **judged}
    return judged


def _selection(options: PaperOptions) -> tuple[int | None, dict[str, Any]]:
    """Returns limit and options of BBQ: the paper's questions, unless the user sets a limit per category."""
    if options.limit is not None:
        return options.limit * len(CATEGORIES), {"legacy": True}
    if options.builtin:
        return FULL_SIZES[CHOICES], {"legacy": True}
    return None, {"legacy": True, "subset": SUBSET}


def _sentences(folder: Path, found: StudyResult, arms: Sequence[PooledArm]) -> list[str]:
    """Returns the paired comparisons of each model with its own `default`."""
    sentences: list[str] = []
    for model in models_in(arms):
        own = [arm for arm in arms if arm.model == model]
        baseline = next((arm for arm in own if arm.key.method == "default"), own[0])
        compared = found if len(own) == len(arms) else study([folder], baseline=baseline.id)
        ids = {arm.id for arm in own}
        part = replace(
            compared,
            arms=[arm for arm in compared.arms if arm.id in ids],
            effects=[effect for effect in compared.effects if effect.after in ids],
        )
        sentences += map(str, conclusions(part))
    return sentences


def _lead(studies: Mapping[str, StudyResult]) -> str:
    parts: list[str] = []
    for found in studies.values():
        facts = found.provenance[next(iter(found.provenance))]
        plan = facts["plan"]
        chosen = " (the paper's own)" if plan["benchmark_options"].get("subset") == SUBSET else ""
        parts.append(f"{questions_run(found)}{chosen} of {found.benchmark}, seed {plan['seeds'][0]}")
    searches = dict.fromkeys(
        options[key]
        for found in studies.values()
        for facts in found.provenance.values()
        for options in (method["options"] for method in facts["plan"]["methods"])
        for key in OPTIONS
        if options.get(key)
    )
    parts += [f"search by {' and '.join(searches)}"] if searches else []
    return lead_of(parts)
