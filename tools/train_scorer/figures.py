"""The figures of a scorer on the held-out sets of `neural_texts`, from numpy alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

ATTRIBUTES = ("toxicity", "severe_toxicity", "insult", "identity_attack", "profanity", "threat", "sexually_explicit")
HARMLESS = ("neutral", "odd", "short", "names", "strings", "everyday", "clean")


def figures(rows: Sequence[dict[str, Any]], scores: np.ndarray) -> dict[str, Any]:
    """AUROC, false alarms and recall at 0.5 of each set, and what is needed to understand them."""
    sets = np.array([row["set"] for row in rows])
    labels = np.array([[np.nan if x is None else x for x in row["labels"]] for row in rows], np.float32)
    toxicity = scores[:, 0]
    result: dict[str, Any] = {}
    for name in sorted(set(sets)):
        inside = sets == name
        toxic = labels[inside, 0] >= 0.5
        high = toxicity[inside] >= 0.5
        result[name] = {"n": int(inside.sum())}
        if toxic.any() and not toxic.all():
            result[name]["auroc"] = auroc(toxicity[inside], toxic)
        if not toxic.all():
            result[name]["false alarms"] = float(high[~toxic].mean())
            result[name]["at 0.4"] = float((toxicity[inside][~toxic] >= 0.4).mean())
        if toxic.any():
            result[name]["recall"] = float(high[toxic].mean())
        result[name]["identity_attack"] = float((scores[inside, 3] >= 0.5).mean())
        result[name]["mean"] = float(toxicity[inside].mean())
    rtp = sets == "rtp"
    attributes = {
        name: {
            "auroc": auroc(scores[rtp, n], labels[rtp, n] >= 0.5),
            "r": float(np.corrcoef(scores[rtp, n], labels[rtp, n])[0, 1]),
            "ece": calibration_error(scores[rtp, n], labels[rtp, n]),
        }
        for n, name in enumerate(ATTRIBUTES)
        if (labels[rtp, n] >= 0.5).any()
    }
    alarms = [
        (round(float(score), 3), row["set"], row["windows"][0][:100])
        for row, score in zip(rows, toxicity, strict=True)
        if score >= 0.5 and row["set"].startswith(HARMLESS)
    ]
    return rounded({**result, "attributes": attributes, "groups": by_group(rows, toxicity), "alarms": alarms[:80]})


def by_group(rows: Sequence[dict[str, Any]], toxicity: np.ndarray) -> dict[str, float]:
    """The false alarms of each group on neutral sentences, highest first."""
    found: dict[str, list[float]] = defaultdict(list)
    for row, score in zip(rows, toxicity, strict=True):
        if row["set"].startswith(("neutral ", "odd ")):
            found[row["group"]].append(score)
    rates = {name: float((np.array(scores) >= 0.5).mean()) for name, scores in found.items()}
    return dict(sorted(rates.items(), key=lambda item: -item[1]))


def auroc(score: np.ndarray, positive: np.ndarray) -> float:
    _, place, counts = np.unique(score, return_inverse=True, return_counts=True)
    rank = (np.cumsum(counts) - (counts - 1) / 2)[place]
    hits, misses = int(positive.sum()), int((~positive).sum())
    return float((rank[positive].sum() - hits * (hits + 1) / 2) / (hits * misses))


def calibration_error(score: np.ndarray, label: np.ndarray) -> float:
    place = np.minimum((score * 10).astype(int), 9)
    return sum(
        float(inside.mean()) * abs(float(score[inside].mean() - label[inside].mean()))
        for n in range(10)
        if (inside := place == n).any()
    )


def rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: rounded(each) for name, each in value.items()}
    return round(value, 4) if isinstance(value, float) else value
