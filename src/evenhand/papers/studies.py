"""The studies of a paper's runs, their models and their warnings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from evenhand.errors import PlanError
from evenhand.studies.conclusions import warnings_about
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
        for warning in warnings_about(whole):
            said.setdefault(warning, []).append(name)
    return found + [f"{' and '.join(names)}: {warning}" for warning, names in said.items()]


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
