"""Calibration of StarDTox's judges: contrasting texts, and the suggested thresholds.

The texts are our own, so that nothing is tuned on a public benchmark. The passages are those of `bbq_builtin`, so
results on that benchmark are too optimistic.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from evenhand.data.bbq.generate import builtin_rows
from evenhand.evaluators.bias import bias_messages, bias_rubric
from evenhand.evaluators.calibration import Calibration, Contrast, JudgeTest, rated_by
from evenhand.evaluators.support import support_messages, support_rubric
from evenhand.reading.text import abstains
from evenhand.scorers.quality import QUALITIES, quality_messages, quality_rubric
from evenhand.types import Sample

PASSAGES = 24
"""Number of built-in passages, each rated with and without the fact that settles the question."""


def contrasts() -> list[Contrast]:
    """Returns the contrasts for all ratings of StarDTox's judges."""
    return [*_support_jobs(), *_quality_jobs(), *_harm_jobs()]


def _support_jobs() -> Iterator[Contrast]:
    """Yields each passage with the fact and without it, both with the same person as the answer."""
    pairs: dict[str, dict[str, dict[str, Any]]] = {}
    for row in builtin_rows():
        if row["question_polarity"] == "neg":
            pairs.setdefault(f"{row['category']}/{row['question_index']}", {}).setdefault(row["context_condition"], row)
    both = [pair for pair in pairs.values() if len(pair) == 2]
    for pair in random.Random(0).sample(both, min(PASSAGES, len(both))):
        clear, vague = pair["disambig"], pair["ambig"]
        person = clear[f"ans{clear['label']}"]
        same = next((vague[f"ans{i}"] for i in range(3) if vague[f"ans{i}"] == person), None)
        other = next(vague[f"ans{i}"] for i in range(3) if not abstains(vague[f"ans{i}"]))
        for row, answer, high in ((clear, person, True), (vague, same or other, False)):
            sample = Sample("contrast", "choice", row["question"], row["context"])
            messages = support_messages(sample, answer)
            yield rated_by(sample, support_rubric(), messages, [("settled", high), ("support", high)])


def _quality_jobs() -> Iterator[Contrast]:
    pairs = _contrast()["quality"]
    for number, (beginning, good) in enumerate(pairs):
        words = good.split()
        random.Random(number).shuffle(words)
        other = pairs[(number + 5) % len(pairs)][1]
        for text, high in ((good, True), (" ".join(words), False), (other, False)):
            wrong = QUALITIES if high else (("relevance", "coherence") if text == other else ("fluency", "coherence"))
            sample = Sample("contrast", "completion", beginning)
            expected = [(name, high) for name in wrong]
            yield rated_by(sample, quality_rubric(), quality_messages(beginning, text), expected)


def _harm_jobs() -> Iterator[Contrast]:
    for beginning, harmful, harmless in _contrast()["harm"]:
        for text, high in ((harmful, True), (harmless, False)):
            sample = Sample("contrast", "completion", beginning)
            yield rated_by(sample, bias_rubric(), bias_messages(beginning, text), [("harm", high)])


@cache
def _contrast() -> dict[str, Any]:
    return yaml.safe_load(Path(__file__).with_name("contrast.yaml").read_text(encoding="utf-8"))


def suggested_options(calibrations: Sequence[Calibration]) -> dict[str, float]:
    """Returns StarDTox's suggested options for this judge; none for ratings at chance."""
    by_name = {each.rating: each.threshold for each in calibrations}
    options: dict[str, float] = {}
    for name in ("support", "settled"):
        if by_name.get(name) is not None:
            options[name] = round(100 * (by_name[name] or 0), 1)
    qualities = [by_name[name] for name in QUALITIES if by_name.get(name) is not None]
    if qualities:
        # One threshold serves three scales: the lowest, so that a good text can pass on all of them.
        options["quality"] = round(100 * min(value for value in qualities if value is not None), 1)
    return options


CALIBRATION = JudgeTest("judge for stardtox", contrasts, suggested_options)
