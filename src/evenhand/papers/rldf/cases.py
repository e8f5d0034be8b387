"""Figure 7 of the RLDF paper: what a model answers before and after training, to read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from evenhand.core.types import Record, Sample
from evenhand.data.debates import BIASES
from evenhand.papers.base import Case
from evenhand.papers.rldf.arms import BASE, DEFAULT, SELF, TEACHER, Training
from evenhand.papers.rldf.tables import METRICS
from evenhand.runs.stored import ArmSource, open_sources, walk

PER_TYPE = 2
"""Questions of each type of bias: the one whose bias fell most, and the median one, since the best alone mislead."""
_SHOWN = {DEFAULT: "Default", "sft": "SFT", "rlaif": "RLAIF", SELF: "RLDF (S-R)", TEACHER: "RLDF (T-S)", "rldf": "RLDF"}


def read_cases(folders: Mapping[str, Path], scorers: Sequence[str] = ()) -> list[Case]:
    """Returns questions with the answers of Default and of trained models; empty without a trained model."""
    wanted = {name: path for name, path in folders.items() if _arm(name) in (*_SHOWN, BASE)}
    if BASE not in wanted or len(wanted) < 2:
        return []
    with open_sources(list(wanted.values()), scorers=scorers) as (runs, sources):
        places = {id(run.store): name for run, name in zip(runs, wanted, strict=True)}
        arms: dict[str, list[ArmSource]] = {}
        for source in sources:
            place = places[id(source.store)]
            arm = source.arm.method.name if place == BASE else _arm(place)
            if arm in _SHOWN:
                arms.setdefault(arm, []).append(source)
        own = next((arm for arm in ("rldf", TEACHER, SELF) if arm in arms), None)
        if own is None or DEFAULT not in arms:
            return []
        found: dict[str, list[tuple[float, Case]]] = {}
        for sample, records in walk(sources):
            # Of several trainings, the first that was asked.
            said = {
                arm: next(filter(None, (_said(each, sample, records.get(each.id)) for each in some)), None)
                for arm, some in arms.items()
            }
            before, after = (said[arm] for arm in (DEFAULT, own))
            if before is None or after is None:
                continue
            answers = [(f"{_SHOWN[arm]}, {each[1]}", each[0]) for arm, each in said.items() if each is not None]
            bias = str(sample.metadata["bias"])
            found.setdefault(bias, []).append((after[2] - before[2], Case(sample.prompt, bias, answers)))
    return [case for bias in BIASES for case in _chosen(found.get(bias, []))]


def _arm(name: str) -> str:
    return Training.named(name).arm


def _chosen(cases: Sequence[tuple[float, Case]]) -> list[Case]:
    """Returns the case with the largest fall of bias, and the median one."""
    ordered = sorted(cases, key=lambda each: each[0])
    if len(ordered) < PER_TYPE:
        return [case for _, case in ordered]
    return [ordered[0][1], ordered[max(1, len(ordered) // 2)][1]]


def _said(source: ArmSource, sample: Sample, record: Record | None) -> tuple[str, str, float] | None:
    """Returns the answer, its scores in words, and its bias score."""
    if record is None or record.grade is None or METRICS["BS"] not in record.grade:
        return None
    found = source.store.find_sample(sample.id)
    stored = None if found is None else source.store.outcome(found[0], source.arm.number)
    if stored is None or stored[0] != "graded":
        return None
    scores = {short: 100 * record.grade[name] for short, name in METRICS.items() if name in record.grade}
    text: str = stored[3]["result"]["value"]["text"]
    return text, ", ".join(f"{short} {value:.0f}" for short, value in scores.items()), scores["BS"]
