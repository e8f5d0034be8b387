"""Ablations of RLDF: one training for each value of a parameter, all evaluated on the same topics; Figures 8 to 12."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from pathlib import Path

from evenhand.benchmarks.opinions import PAIRS_FILE
from evenhand.core.errors import UsageError
from evenhand.data.debates import BIASES
from evenhand.papers.base import Grid, PaperCell, PaperClaim, PaperColumn, PaperRow, PaperTable, untold
from evenhand.papers.rldf.arms import (
    BASE,
    DEFAULT,
    PARAMETERS,
    UNSAID,
    AblatedValues,
    Arms,
    RLDFOptions,
    opinions_run,
    read_arms,
)
from evenhand.papers.rldf.claims import ahead
from evenhand.papers.rldf.steps import ROLES, ROUNDS, Lesson, Making, about_pairs, debates_run
from evenhand.papers.rldf.tables import METRICS
from evenhand.runs.execute import SeriesRun

FOLDER = "ablate"


@dataclass(frozen=True, slots=True)
class AblationPoint:
    """One setting of the parameters."""

    roles: int
    rounds: int
    topics: int
    pairs: int | None = None
    """Number of training pairs; None for all."""

    @property
    def debates(self) -> str:
        return f"roles{self.roles}-rounds{self.rounds}-topics{self.topics}"

    @property
    def name(self) -> str:
        return self.debates + ("" if self.pairs is None else f"-pairs{self.pairs}")

    @classmethod
    def named(cls, name: str) -> AblationPoint | None:
        """Parses the name of a point; None for the untrained model."""
        found = re.fullmatch(r"roles(\d+)-rounds(\d+)-topics(\d+)(?:-pairs(\d+))?", name)
        return cls(*(None if each is None else int(each) for each in found.groups())) if found else None  # pyright: ignore[reportArgumentType]


def points(making: Making, values: AblatedValues) -> list[AblationPoint]:
    """Returns the points that vary one parameter at a time, without duplicates."""
    wanted = making.of("debate")
    centre = AblationPoint(wanted.get("roles", ROLES), wanted.get("rounds", ROUNDS), making.topics)
    for each in values.get("topics", ()):
        if not 1 < each <= making.topics:
            raise UsageError(f"There are topics for 2 to {making.topics:,} debates of each type, not for {each:,}.")
    return list(dict.fromkeys(replace(centre, **{name: value}) for name, each in values.items() for value in each))


def ablation(making: Making, values: AblatedValues) -> dict[str, dict[AblationPoint, Lesson]]:
    """Returns type of bias → point → its training; as in the paper, each training is on one type."""
    wanted = points(making, values)
    return {bias: {point: _lesson(making.about(bias), bias, point) for point in wanted} for bias in making.biases}


def _lesson(making: Making, bias: str, point: AblationPoint) -> Lesson:
    within = f"{FOLDER}/{bias}"
    teacher = {"teacher": making.teacher} if making.teacher else {}
    roles, rounds, topics, part = astuple(point)
    run = debates_run(
        making, f"{within}/debates/{point.debates}", specs=teacher, roles=roles, rounds=rounds, topics=topics
    )
    return Lesson(run, f"{within}/pairs/{point.debates}", f"{within}/models/{point.name}", part)


def ablation_runs(
    options: RLDFOptions, found: Mapping[str, Mapping[AblationPoint, Lesson]], out: Path
) -> list[SeriesRun]:
    """Returns the opinion runs of the untrained model and of every trained one, by type of bias."""
    runs: list[SeriesRun] = []
    for bias, lessons in found.items():
        about = options.changed(bias=(bias,))
        within = f"{FOLDER}/{bias}/opinions"
        runs.append(opinions_run(about, f"{within}/{BASE}", (DEFAULT,)))
        for point, each in lessons.items():
            models = {"base": options.reached_alike(f"hf/{out / each.models / 'ppo'}")}
            runs.append(opinions_run(about, f"{within}/{point.name}", (DEFAULT,), models))
    return runs


# --- Figures 8 to 12: bias scores by roles, rounds, pairs and topics, a figure for each type of bias ---

FIRST = 8
"""The number of the first figure, that of the first type of bias."""
BEST = {"roles": 3, "rounds": 5, "topics": 2000, "pairs": 5000}
"""The best values according to the paper, for all types and models."""
_TITLES = {"roles": "Roles", "rounds": "Rounds", "topics": "Topics", "pairs": "Pairs"}
_SCORE = METRICS["BS"]

Series = Mapping[str, Sequence[AblationPoint]]
"""Parameter → the points that vary only in it, sorted by its value."""


@dataclass(frozen=True, slots=True)
class Ablation:
    """The points of one type of bias."""

    bias: str
    arms: Arms
    series: Series
    runs: Mapping[str, Path]


def read_ablation(bias: str, runs: Mapping[str, Path], scorers: Sequence[str] = ()) -> Ablation:
    """Reads the runs of a type of bias, by the names of their points; `base` is the untrained model."""
    found = series([point for name in runs if (point := AblationPoint.named(name))])
    arms = read_arms(runs, "bias", [UNSAID], scorers, _neighbours(found))
    return Ablation(bias, arms, found, runs)


def series(points: Sequence[AblationPoint]) -> Series:
    """Groups the points by the parameter that varies; all others have their most common value."""
    usual = {name: _most_common([getattr(point, name) for point in points]) for name in PARAMETERS if points}
    found: dict[str, list[AblationPoint]] = {}
    for name in PARAMETERS:
        centre = {other: value for other, value in usual.items() if other != name}
        varied = [point for point in points if replace(point, **centre) == point]
        if len(varied) > 1:
            found[name] = sorted(varied, key=lambda point: _order(point, name))
    return found


def _most_common(values: Sequence[int | None]) -> int | None:
    return Counter(values).most_common(1)[0][0]


def _order(point: AblationPoint, name: str) -> float:
    """Returns a sort key; all pairs (None) come last."""
    value: int | None = getattr(point, name)
    return float("inf") if value is None else value


def _neighbours(found: Series) -> list[tuple[str, str]]:
    """Returns pairs of every value and the paper's best value."""
    pairs: list[tuple[str, str]] = []
    for name, points in found.items():
        best = [point for point in points if getattr(point, name) == BEST[name]]
        pairs += [(point.name, each.name) for each in best for point in points if point != each]
    return pairs


def figure(ablation: Ablation) -> PaperTable:
    """Returns charts and numbers by parameter."""
    bias, arms = ablation.bias, ablation.arms
    number = FIRST + BIASES.index(bias) if bias in BIASES else None
    return PaperTable(
        f"figure{number}" if number else f"ablation_{bias}",
        f"{f'Figure {number}' if number else 'Ablation'}: {bias}, by what was trained with",
        "BS on the same topics for all points, from 0 to 100, lower is better; intervals by topic. Each point is one "
        "training. The paper has pictures without numbers.",
        [_grid(name, arms, points, ablation.runs) for name, points in ablation.series.items()],
    )


def figure_claims(ablation: Ablation) -> list[PaperClaim]:
    """Returns the checks of the paper's best values."""
    return [_claim(ablation.bias, ablation.arms, name, points) for name, points in ablation.series.items()]


def _grid(name: str, arms: Arms, points: Sequence[AblationPoint], runs: Mapping[str, Path]) -> Grid:
    columns = [PaperColumn(_value(point, name), _value(point, name), _trained_on(point, runs)) for point in points]
    trained = [PaperCell(arms.estimate(point.name, _SCORE)) for point in points]
    plain = [PaperCell(arms.estimate(DEFAULT, _SCORE)) for _ in points]
    found = [arms.difference(DEFAULT, point.name, _SCORE) for point in points]
    changed = [PaperCell(each.estimate if each else None) for each in found]
    rows = [
        PaperRow(arms.model, "RLDF", trained),
        PaperRow(arms.model, "Default", plain),
        PaperRow(arms.model, "RLDF less Default", changed),
        PaperRow(
            arms.model, "Words of RLDF, % of Default", [PaperCell(arms.length_ratio(point.name)) for point in points]
        ),
    ]
    return Grid(_TITLES[name], columns, rows, "Model", drawn=2)


def _value(point: AblationPoint, name: str) -> str:
    value = getattr(point, name)
    return "all" if value is None else f"{value:,}"


def _trained_on(point: AblationPoint, runs: Mapping[str, Path]) -> str:
    """Returns the number of training pairs, which grows with rounds, roles and topics."""
    within = runs[point.name].parents[1] / "pairs"
    folder = within / (point.debates if point.pairs is None else point.name.replace("-pairs", "-"))
    if not (folder / PAIRS_FILE).is_file():
        return ""
    return f"{about_pairs(folder)['counts']['pairs_train']:,} pairs"


def _claim(bias: str, arms: Arms, name: str, points: Sequence[AblationPoint]) -> PaperClaim:
    best = next((point for point in points if getattr(point, name) == BEST[name]), None)
    others = [point for point in points if point != best]
    found = [
        (f"{BEST[name]:,} less {_value(point, name)}", arms.difference(point.name, best.name, _SCORE))
        for point in others
        if best
    ]
    fault = arms.fault(best.name) if best else None
    finding = untold(f"its answers cannot be compared: {fault}") if fault else ahead(found, "lower")
    number = FIRST + BIASES.index(bias) if bias in BIASES else None
    place = f"Figure {number}" if number else "Ablation"
    return PaperClaim(f"{bias.capitalize()}: {BEST[name]:,} {name} give the least bias", place, arms.model, *finding)
