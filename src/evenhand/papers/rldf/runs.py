"""The runs of the RLDF paper: the untrained model with three methods and each trained model with one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from evenhand.data.debates import BIASES
from evenhand.papers.base import PaperOptions, PaperRun
from evenhand.papers.rldf.arms import BASE, DEFAULT, METHODS, Training, arm_name, check_biases
from evenhand.papers.rldf.tables import CATEGORIES
from evenhand.papers.studies import BUILTIN
from evenhand.runs.plan import Assignment

CHOICES, OPINIONS = "bbq", "opinions"
SCORER = "opinion"


def runs_of(options: PaperOptions) -> list[PaperRun]:
    """Returns the runs of BBQ and opinions for every arm."""
    check_biases(options.bias)
    runs = [_choices(options, BASE, METHODS), opinions_run(options, f"{OPINIONS}/{BASE}", METHODS)]
    for arm, spec in options.trained.items():
        models, name = {"base": options.reached_alike(spec)}, arm_name(arm)
        runs.append(_choices(options, name, (DEFAULT,), models))
        bias = Training.named(name).bias
        # A model that was trained on one type of bias is asked about that type.
        about = options if bias is None else replace(options, bias=(bias,))
        runs.append(opinions_run(about, f"{OPINIONS}/{name}", (DEFAULT,), models))
    return runs


def opinions_run(
    options: PaperOptions, folder: str, methods: Sequence[str], models: Assignment | None = None
) -> PaperRun:
    """Returns an opinions run on held-out topics; all arms have the same judge, so that ratings are comparable."""
    chosen = {"data": options.pairs} if options.pairs else {}
    chosen |= {"bias": ",".join(options.bias)} if options.bias else {}
    plan = options.plan(
        OPINIONS,
        methods,
        limit=None if options.limit is None else options.limit * len(options.bias or BIASES),
        options=chosen,
        models=models,
        scorers=[f"{SCORER}:{options.judge or options.model.spec}"],
        is_public=False,
    )
    return PaperRun(folder, plan)


def _choices(options: PaperOptions, arm: str, methods: Sequence[str], models: Assignment | None = None) -> PaperRun:
    plan = options.plan(
        CHOICES + (BUILTIN if options.builtin else ""),
        methods,
        limit=None if options.limit is None else options.limit * len(CATEGORIES),
        options={"categories": ",".join(CATEGORIES)},
        models=models,
    )
    return PaperRun(f"{CHOICES}/{arm}", plan)
