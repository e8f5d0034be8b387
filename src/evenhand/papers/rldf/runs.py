"""The runs of the RLDF paper: the model under three methods and each trained model under one."""

from __future__ import annotations

from evenhand.data.debates import BIASES
from evenhand.papers.base import Ask, PaperRun
from evenhand.papers.rldf.arms import BASE, METHODS
from evenhand.papers.rldf.tables import CATEGORIES
from evenhand.papers.studies import BUILTIN

CHOICES, OPINIONS = "bbq", "opinions"
SCORER = "opinion"


def runs_of(ask: Ask) -> list[PaperRun]:
    """BBQ and opinions for every arm."""
    arms: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {BASE: (METHODS, ())}
    arms |= {arm: (METHODS[:1], (spec,)) for arm, spec in ask.trained.items()}
    return [
        run
        for arm, (methods, models) in arms.items()
        for run in (_choices(ask, arm, methods, models), opinions_run(ask, f"{OPINIONS}/{arm}", methods, models))
    ]


def opinions_run(ask: Ask, folder: str, methods: tuple[str, ...], models: tuple[str, ...]) -> PaperRun:
    """Opinions on what training has not seen; one judge for all arms, or their ratings could not be compared."""
    biases = ask.bias or BIASES
    settings = [f"data={ask.topics}"] if ask.topics else []
    settings += [f"bias={','.join(ask.bias)}"] if ask.bias else []
    limit = None if ask.limit is None else ask.limit * len(biases)
    judge = (f"{SCORER}:{ask.judge or ask.model}",)
    return PaperRun(folder, OPINIONS, methods, limit, tuple(settings), models=models, scorers=judge, public=False)


def _choices(ask: Ask, arm: str, methods: tuple[str, ...], models: tuple[str, ...]) -> PaperRun:
    limit = None if ask.limit is None else ask.limit * len(CATEGORIES)
    benchmark = CHOICES + (BUILTIN if ask.builtin else "")
    settings = (f"categories={','.join(CATEGORIES)}",)
    return PaperRun(f"{CHOICES}/{arm}", benchmark, methods, limit, settings, models=models)
