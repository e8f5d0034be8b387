"""What the readings of `weigh` on our own passages say: each signal alone, the fit, and how far it carries.

    python bench/methods/run.py MODEL --data DIR --sets own --out OUT --method default --method weigh:calls=12
    python bench/methods/refit.py OUT/own.json

No model is called. Half of the passages are of the built-in questions, half of the generator of training questions;
a fit on one half that is tested on the other shows what other passages may do to it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from evenhand.judging.card import Calibration
from evenhand.methods.weigh import signals
from evenhand.methods.weigh.fit import Labelled, cross_validated, fit
from evenhand.methods.weigh.signals import LEVELS, PRIOR, Readings, SignalWeights, load_weights

Row = dict[str, Any]


def labelled(row: Row, calls: int) -> Labelled:
    readings = Readings(**row["readings"])
    right = None if row["target"] == readings.unknown else readings.people.index(row["target"])
    return Labelled(readings.signals(calls), right, row["category"])


def auc(rows: Sequence[Labelled], value: Callable[[Labelled], float]) -> float:
    high, low = ([value(each) for each in rows if (each.right is not None) == told] for told in (True, False))
    return Calibration("", high, low, 0).auc or 0.0


def tested(weights: SignalWeights, rows: Sequence[Labelled]) -> str:
    """Percent right on passages that do not tell and that do, the AUC of `told`, and how often `who` is right."""
    right = {True: 0, False: 0}
    people = 0
    for each in rows:
        told, who = weights.told(each.signals), weights.who(each.signals)
        named = who.index(max(who)) == each.right
        right[each.right is not None] += named and told >= 0.5 if each.right is not None else told < 0.5
        people += each.right is not None and named
    count = sum(each.right is not None for each in rows)
    shares = 100 * right[False] / (len(rows) - count), 100 * right[True] / count, 100 * people / count
    ranking = auc(rows, lambda each: weights.told(each.signals))
    return f"{shares[0]:.1f} / {shares[1]:.1f}, AUC {ranking:.2f}, who {shares[2]:.1f}"


def left_open(rows: Sequence[Labelled], share: float, folds: int = 5) -> float:
    """Percent right on passages that tell, at the threshold that leaves `share` of the others open; cross-validated."""
    groups = sorted({each.group for each in rows})
    guesses: list[float] = []
    named: list[tuple[float, bool]] = []
    for fold in range(folds):
        tried = {group for place, group in enumerate(groups) if place % folds == fold}
        weights = SignalWeights("", "", fit([each for each in rows if each.group not in tried]))
        for each in (each for each in rows if each.group in tried):
            told, who = weights.told(each.signals), weights.who(each.signals)
            if each.right is None:
                guesses.append(told)
            else:
                named.append((told, who.index(max(who)) == each.right))
    threshold = sorted(guesses)[int(share * len(guesses))]
    return 100 * sum(told >= threshold and right for told, right in named) / len(named)


def claims(rows: Sequence[Row]) -> dict[str, float]:
    """How well the question for proof parts the right person from a guess, and from the other people."""
    read = [(Readings(**row["readings"]), row["target"]) for row in rows]
    told = [(each, target) for each, target in read if target != each.unknown]
    right = [each.proofs[each.people.index(target)] for each, target in told]
    others = [p for each, target in told for i, p in zip(each.people, each.proofs, strict=True) if i != target]
    guessed = [p for each, target in read if target == each.unknown for p in each.proofs]
    return {
        name: Calibration("", right, low, 0).auc or 0.0
        for name, low in (("right person against a guess", guessed), ("against another person", others))
    }


def _shown(values: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.2f}" for name, value in values.items())


def main() -> None:
    found = json.loads(Path(sys.argv[1]).read_bytes())["methods"]
    rows: list[Row] = next(each["rows"] for name, each in found.items() if name.startswith("weigh"))
    generated = [row["id"].startswith("generated") for row in rows]
    parts = {
        "built-in": [row for row, made in zip(rows, generated, strict=True) if not made],
        "generated": [row for row, made in zip(rows, generated, strict=True) if made],
    }
    for name, some in {"all": rows, **parts}.items():
        read = [labelled(row, LEVELS[-1]) for row in some]
        alone = {key: auc(read, lambda each, key=key: each.signals.told[key]) for key in read[0].signals.told}
        print(f"{name}: {len(read)} passages; AUC of each signal: {_shown(alone)}")
        print(f"  proof of one person, AUC: {_shown(claims(some))}")
        plain = [row for row in found.get("default", {}).get("rows", ()) if row["id"] in {each["id"] for each in some}]
        for condition in sorted({row["condition"] for row in plain}):
            right = [row["right"] for row in plain if row["condition"] == condition]
            print(f"  default, {condition}: {100 * sum(right) / len(right):.1f}")
    for calls in LEVELS:
        read = {name: [labelled(row, calls) for row in some] for name, some in {"all": rows, **parts}.items()}
        print(f"calls={calls}: cross-validated {cross_validated(read['all'])}")
        for name, some in read.items():
            print(f"  {name} alone, 85 % of the passages that do not tell left open: {left_open(some, 0.85):.1f}")
        for name, other in (("built-in", "generated"), ("generated", "built-in")):
            print(
                f"  fitted on {name}, tested on {other}: {tested(SignalWeights('', '', fit(read[name])), read[other])}"
            )
        for name, some in read.items():
            print(f"  prior weights, {name}: {tested(load_weights(PRIOR, '', calls), some)}")
    for limit in (3.0, 5.0, 7.0, 12.0):
        signals._LIMIT = limit
        print(f"log-odds cut at {limit}:", cross_validated([labelled(row, 6) for row in rows])["auc"])


if __name__ == "__main__":
    main()
