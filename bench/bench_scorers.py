"""How many texts our own scorers score per CPU second, next to alt-profanity-check where it is installed.

Texts of about twenty words, after the weights are loaded. In the first pass every word is new to the scorer; later
passes find its vector.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from common import HERE, installed, save, table, verdict

TEXTS, PASSES, FLOOR = 5_000, 4, 2_000
NEURAL_TEXTS, NEURAL_FLOOR = 500, 300


def run() -> None:
    texts = _texts()
    speeds = {name: _speed(score, texts[: _most(name)]) for name, score in _scorers().items()}
    table(
        "Scorers",
        ("scorer", "texts/CPU s, first", "later", "floor", "target"),
        [
            (name, first, later, floor or "", verdict(first, floor, least=True) if floor else "")
            for name, (first, later) in speeds.items()
            for floor in (_floor(name),)
        ],
        "" if installed("profanity_check") else "alt-profanity-check is not installed: nothing to compare with.",
    )
    save("scorers", {name: {"first": first, "later": later} for name, (first, later) in speeds.items()})


def _most(name: str) -> int:
    return NEURAL_TEXTS if name == "neural" else TEXTS


def _floor(name: str) -> int | None:
    return NEURAL_FLOOR if name == "neural" else FLOOR if "builtin" in name else None


def _scorers() -> dict[str, Callable[[list[str]], Any]]:
    from evenhand.scorers.builtin import BuiltinScorer, BuiltinScorerB
    from evenhand.scorers.neural import NeuralScorer

    scorers: dict[str, Callable[[list[str]], Any]] = {
        scorer.name: scorer().score_texts for scorer in (BuiltinScorer, BuiltinScorerB)
    }
    if NeuralScorer.unavailable() is None:
        scorers["neural"] = NeuralScorer().score_texts
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
    score(["Hello."])  # loads the weights, once for any number of texts
    seconds: list[float] = []
    for _ in range(PASSES):
        started = time.process_time()
        score(list(texts))
        seconds.append(time.process_time() - started)
    return len(texts) / seconds[0], len(texts) / min(seconds[1:])
