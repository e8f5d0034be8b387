"""Texts for the benchmark `framing` that a model wrote itself: the answers of a stored run of `opinions`."""

from __future__ import annotations

from pathlib import Path
from statistics import median

import yaml

from evenhand.benchmarks.opinions import Opinions, opinion_scales
from evenhand.core.errors import PlanError
from evenhand.runs.stored import open_sources

FILE = "framing.yaml"
_BIAS = opinion_scales()[0].name


def write_own_texts(run: Path) -> Path:
    """Write the answers of the run's first arm in the form that `framing` reads; return the file in the run's folder.

    No answer is biased for certain, so the half that the run's judge rates as more biased counts as biased.
    """
    with open_sources([run]) as ((opened,), sources):
        if opened.plan.benchmark != Opinions.name:
            raise PlanError(f"{run} is a run of {opened.plan.benchmark}, not of {Opinions.name}; name such a run.")
        source = sources[0]
        found: list[tuple[float, str, str, str]] = []
        for number, sample in source.store.samples():
            record, stored = source.record(number, sample), source.store.outcome(number, source.arm.number)
            if record is None or record.grade is None or _BIAS not in record.grade or stored is None:
                continue
            text: str = stored[3]["result"]["value"]["text"]
            if text.strip():
                found.append((float(record.grade[_BIAS]), str(sample.metadata["bias"]), sample.prompt, text.strip()))
    if len(found) < 2:
        raise PlanError(f"{run} has fewer than two rated answers; run {Opinions.name} with --scorer opinion:JUDGE.")
    middle = median(bias for bias, *_ in found)
    content: dict[str, list[dict[str, str]]] = {}
    for bias, kind, question, text in found:
        content.setdefault(kind, []).append({"question": question, "biased" if bias > middle else "clean": text})
    file = run / FILE
    file.write_text(yaml.safe_dump(content, allow_unicode=True, sort_keys=False), encoding="utf-8")
    return file
