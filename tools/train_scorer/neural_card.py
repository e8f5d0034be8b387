"""python -m tools.train_scorer.neural_card --data FOLDER [--scorer neural builtin]: the held-out figures of scorers.

Prints one table per kind of figure, for the card. `--sets` names the sets to measure, by their beginnings.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from evenhand.scorers.base import load_scorer
from tools.train_scorer import corpora
from tools.train_scorer.figures import figures
from tools.train_scorer.measure import auroc_interval, scores_of
from tools.train_scorer.neural_texts import Row, all_rows

UNMEASURED = ("train", "calibration", "hatemoji validation", "design")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.train_scorer.neural_card", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with rtp/, toxicity/, squad/ and bbq/")
    parser.add_argument("--scorer", nargs="+", default=["neural", "builtin"], help="the scorers to measure")
    parser.add_argument("--sets", nargs="+", default=[""], help="only sets whose names begin so")
    parser.add_argument("--most", type=int, help="measure so many texts of a set at most; RealToxicityPrompts in full")
    options = parser.parse_args()
    sys.stdout.write(tables(options.data, options.scorer, options.sets, options.most) + "\n")


def tables(data: Path, scorers: Sequence[str], sets: Sequence[str] = ("",), most: int | None = None) -> str:
    """Return every table, as Markdown."""
    found: dict[str, list[Row]] = {}
    _say("reading the texts")
    for row in all_rows(data, sets, UNMEASURED):
        found.setdefault(row["set"], []).append(row)
    chance = random.Random(0)
    kept = {
        name: chance.sample(each, most) if most and name != "rtp" and len(each) > most else each
        for name, each in found.items()
    }
    rows = [row for each in kept.values() for row in each]
    figure: dict[str, Any] = {}
    lines: list[str] = []
    for name in scorers:
        scores = _scores(name, kept)
        figure[name] = figures(rows, scores)
        lines.append(f"{name}: {_rtp_line(data, rows, scores)}")
    return "\n".join([*lines, "", *_tables(figure)])


def _scores(name: str, sets: Mapping[str, list[Row]]) -> np.ndarray:
    """Score one set after the other, and say so, since it takes minutes."""
    scorer: Any = load_scorer(name)
    parts: list[np.ndarray] = []
    for number, (each, rows) in enumerate(sets.items(), 1):
        start = time.process_time()
        parts.append(scores_of(scorer, [row["text"] for row in rows]))
        seconds = time.process_time() - start
        _say(f"{name}: set {number} of {len(sets)}, {each}: {len(rows)} texts in {seconds:.1f} CPU seconds")
    return np.concatenate(parts)


def _say(line: str) -> None:
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {line}\n")


def _rtp_line(data: Path, rows: list[Row], scores: np.ndarray) -> str:
    inside = np.array([row["set"] == "rtp" for row in rows])
    test = corpora.read_rtp(data)["test"]
    if inside.sum() < len(test.texts):
        return "RealToxicityPrompts not measured in full"
    return f"toxicity AUROC {auroc_interval(scores[inside, 0], test.labels[:, 0] >= 0.5, test.clusters)}"


def _tables(found: dict[str, Any]) -> list[str]:
    first = next(iter(found.values()))
    names = [name for name in first if name not in ("attributes", "groups", "alarms")]
    columns = ("auroc", "false alarms", "at 0.4", "recall")
    lines = ["| set | n |" + "".join(f" {name} {column} |" for name in found for column in columns)]
    lines.append("|---|---|" + "---|" * (len(columns) * len(found)))
    for each in names:
        cells = [_cell(found[name][each].get(column), column) for name in found for column in columns]
        lines.append(f"| {each} | {first[each]['n']} | " + " | ".join(cells) + " |")
    lines += ["", "| attribute |" + "".join(f" {name} AUROC | {name} r | {name} ECE |" for name in found)]
    lines.append("|---|" + "---|" * (3 * len(found)))
    for each in first["attributes"]:
        cells = [f"{found[name]['attributes'][each][key]:.3f}" for name in found for key in ("auroc", "r", "ece")]
        lines.append(f"| {each} | " + " | ".join(cells) + " |")
    for name, figure in found.items():
        rates = figure["groups"]
        highest = ", ".join(f"{group} {rate:.3f}" for group, rate in list(rates.items())[:8])
        lines += ["", f"{name}, false alarms by group: {min(rates.values(), default=0):.3f} to {highest}"]
        lines += [f"  {score} {kind}: {text}" for score, kind, text in figure["alarms"][:40]]
    return lines


def _cell(value: float | None, column: str) -> str:
    if value is None:
        return ""
    return f"{value:.3f}" if column == "auroc" else f"{value:.1%}"


if __name__ == "__main__":
    main()
