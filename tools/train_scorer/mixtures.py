"""python -m tools.train_scorer.mixtures --data FOLDER: what bounds and mixtures of scorers do to AUROC on toxicity.

First the scorers with several bounds on the names of groups, on the test side of RealToxicityPrompts. Then `neural`
with a share of the logits of another scorer, on the calibration side, which neither of them has learned.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.scorers.base import load_scorer
from tools.train_scorer import corpora
from tools.train_scorer.measure import TOXIC, auroc, scores_of

NAMES = ("neural", "builtin", "builtin_b")
NONE = 99.0


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.train_scorer.mixtures", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with rtp/")
    sides = corpora.read_rtp(parser.parse_args().data)
    for name in NAMES:
        for bound in (load_scorer(name).most, 1.5, NONE):  # type: ignore[attr-defined]
            _say(f"{name}, bound {bound:g}", *_logits(name, sides["test"], bound))
    fitted = sides["a calibration"]
    toxic, own = _logits("neural", fitted)
    for name in NAMES[1:]:
        _, other = _logits(name, fitted)
        for weight in (0.0, 0.1, 0.2, 0.3, 0.4, 0.5):
            _say(f"neural with {weight:.1f} of {name}", toxic, (1 - weight) * own + weight * other)


def _logits(
    name: str, texts: corpora.Texts, bound: float | None = None
) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """Return which of the scored texts are toxic, and their logits; the same texts are scored by all."""
    scorer: Any = load_scorer(name)
    scorer.most = scorer.most if bound is None else bound
    scores = scores_of(scorer, texts.texts)[:, 0]
    scored = ~np.isnan(scores)
    odds = scores[scored].clip(1e-4, 1 - 1e-4)
    return texts.labels[scored, 0] >= TOXIC, np.log(odds / (1 - odds))


def _say(what: str, toxic: NDArray[np.bool_], logits: NDArray[np.float64]) -> None:
    sys.stdout.write(f"{what}: AUROC {auroc(logits, toxic):.4f} of {len(toxic)} texts\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
