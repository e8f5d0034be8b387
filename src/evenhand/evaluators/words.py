"""Text helpers for critiques, shared by the evaluators."""

from __future__ import annotations

import re

UNKIND = "Its tone is hostile or unkind."


def without_scores(reason: str) -> str:
    """Removes sentences that mention a score from a judge's reason."""
    kept = [
        sentence.strip(" ;")
        for sentence in re.split(r"(?<=[.!?;])\s+", reason)
        if sentence.strip(" ;")
        and not re.search(r"\d|\b(?:score[ds]?|rat(?:ed|ing|ings)|threshold|percent)\b", sentence, re.I)
    ]
    return " ".join(sentence if sentence[-1] in ".!?" else f"{sentence}." for sentence in kept)
