"""How many texts the built-in scorers score per CPU second, next to alt-profanity-check where it is installed.

Texts of about twenty words. In the first pass every word is new to the scorer; later passes find its vector.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from common import HERE, installed, save, table, verdict

TEXTS, PASSES, FLOOR = 5_000, 4, 2_000


def run() -> None:
    texts = _texts()
    speeds = {name: _speed(score, texts) for name, score in _scorers().items()}
    table(
        "Scorers",
        ("scorer", "texts/CPU s, first", "later", f"first ÷ {FLOOR:,}", "target"),
        [
            (name, first, later, first / FLOOR, verdict(first, FLOOR, least=True) if "builtin" in name else "")
            for name, (first, later) in speeds.items()
        ],
        "" if installed("profanity_check") else "alt-profanity-check is not installed: nothing to compare with.",
    )
    save("scorers", {name: {"first": first, "later": later} for name, (first, later) in speeds.items()})


def _scorers() -> dict[str, Callable[[list[str]], Any]]:
    from evenhand.scorers.builtin import BuiltinScorer, BuiltinScorerB

    scorers: dict[str, Callable[[list[str]], Any]] = {
        scorer.name: scorer().score_texts for scorer in (BuiltinScorer, BuiltinScorerB)
    }
    if installed("profanity_check"):
        from profanity_check import predict_prob

        scorers["alt-profanity-check"] = predict_prob
    return scorers


def _texts() -> list[str]:
    """Sentences that the scorers were not trained on, two in a text."""
    sys.path.insert(0, str(HERE.parent))
    from tools.train_scorer.identity import held_out_sentences

    kinds = ("neutral", "grave", "unkind")
    sentences = [sentence.text for kind in kinds for sentence in held_out_sentences(kind)]
    return [f"{sentences[n % len(sentences)]} {sentences[n * 7 % len(sentences)]}" for n in range(TEXTS)]


def _speed(score: Callable[[list[str]], Any], texts: Sequence[str]) -> tuple[float, float]:
    seconds: list[float] = []
    for _ in range(PASSES):
        started = time.process_time()
        score(list(texts))
        seconds.append(time.process_time() - started)
    return len(texts) / seconds[0], len(texts) / min(seconds[1:])
