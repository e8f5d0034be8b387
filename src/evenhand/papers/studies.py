"""The studies of a paper's runs, their models and their warnings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from evenhand.core.errors import PlanError
from evenhand.runs.summary import UNGRADED
from evenhand.studies.conclusions import MANY_UNGRADED, warnings_about
from evenhand.studies.results import StudyResult
from evenhand.studies.study import study

BUILTIN = "_builtin"
"""Name suffix of our own data sets."""


def study_of(name: str, folder: Path, scorers: Sequence[str] = (), *, iterations: bool = False) -> StudyResult:
    """Returns the study of the run called `name`, which must be of that benchmark."""
    found = study([folder], scorers=scorers, iterations=iterations)
    if found.benchmark.removesuffix(BUILTIN) != name:
        raise PlanError(f"{folder} holds a run of {found.benchmark}, not of {name}. Choose another --out.")
    return found


def models_of(studies: Mapping[str, StudyResult]) -> list[str]:
    """Returns the base models, then the models of other roles."""
    used = [
        spec if role == "base" else f"{spec} as {role}"
        for found in studies.values()
        for arm in found.arms
        for role, spec in arm.models.items()
    ]
    return sorted(dict.fromkeys(used), key=lambda each: " as " in each)


def warnings_of(studies: Mapping[str, StudyResult], full_sizes: Mapping[str, int]) -> list[str]:
    """Returns warnings, each once; `full_sizes` is the number of samples of each run in the paper."""
    found: list[str] = []
    if own := [each.benchmark for each in studies.values() if each.benchmark.endswith(BUILTIN)]:
        found.append(f"{' and '.join(own)}: our own data, not comparable with the paper's numbers.")
    found += [f"{name} was not run; its cells are empty." for name in full_sizes if name not in studies]
    smaller = [
        f"{name} {facts['samples']:,} of {full_sizes[name]:,}"
        for name, each in studies.items()
        for facts in each.provenance.values()
        if facts["samples"] < full_sizes.get(name, 0)
    ]
    if smaller:
        found.append(f"Fewer samples than in the paper ({'; '.join(smaller)}): the intervals are wider.")
    said: dict[str, list[str]] = {}
    for name, each in studies.items():
        # Without the single iterations, which would repeat the same warnings.
        whole = replace(each, arms=[arm for arm in each.arms if arm.iteration is None])
        for warning in [*warnings_about(whole), *_incomplete(whole)]:
            said.setdefault(warning, []).append(name)
    return found + [f"{' and '.join(names)}: {warning}" for warning, names in said.items()]


def _incomplete(study: StudyResult) -> list[str]:
    """Warns of samples without a grade and of samples that were not run, in one sentence each for all arms."""
    totals = {arm.label: sum(arm.statuses.values()) + arm.pending for arm in study.arms}
    ungraded = {arm.label: sum(arm.statuses.get(each, 0) for each in UNGRADED) for arm in study.arms}
    found: list[str] = []
    if named := _shares(ungraded, totals):
        found.append(f"Without a grade: {named}. The graded samples may not represent all; Failures has the reasons.")
    if named := _shares({arm.label: arm.pending for arm in study.arms}, totals):
        found.append(f"Not run: {named}. --resume completes them.")
    return found


def _shares(counts: Mapping[str, int], totals: Mapping[str, int]) -> str:
    many = [(label, count, totals[label]) for label, count in counts.items() if count]
    return ", ".join(f"{label} {n:,} of {total:,}" for label, n, total in many if n >= MANY_UNGRADED * total)


def together(studies: Mapping[str, StudyResult]) -> StudyResult | None:
    """Returns all arms of all runs as one study, for sections that do not use metrics."""
    if not studies:
        return None
    arms = [
        replace(arm, id=f"{name}.{arm.id}", label=f"{name}: {arm.label}")
        for name, found in studies.items()
        for arm in found.arms
        if arm.iteration is None
    ]
    provenance = {name: found.provenance[next(iter(found.provenance))] for name, found in studies.items()}
    return replace(next(iter(studies.values())), arms=arms, effects=[], provenance=provenance)
