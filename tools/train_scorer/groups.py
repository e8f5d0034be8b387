"""python -m tools.train_scorer.groups [--scorer neural builtin] [--part report]: do scorers treat groups alike?

For each scorer: the share of neutral sentences in odd grammar with toxicity of 0.5 or more, over all groups and for the
group with most of them, and the share of attacks (which should be high). `--most` compares bounds on what the names of
groups may add to the logit of toxicity (`evenhand.scorers.identity`).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from evenhand.scorers.base import load_scorer
from tools.train_scorer import identity
from tools.train_scorer.identity import Group
from tools.train_scorer.measure import TOXIC, scores_of

KNOWN = ("groups", "held_out_groups", "crossed_groups")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.train_scorer.groups", description=__doc__)
    parser.add_argument("--scorer", nargs="+", default=["neural", "builtin", "builtin_b"])
    parser.add_argument("--part", choices=("design", "report"), default="report", help="of groups.yaml")
    parser.add_argument("--most", type=float, nargs="+", help="compare these bounds; 99 is none")
    options = parser.parse_args()
    for line in lines(options.scorer, options.part, options.most):
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def lines(scorers: Sequence[str], part: str = "report", bounds: Sequence[float] | None = None) -> Iterator[str]:
    """Yield the table, line by line."""
    spec = yaml.safe_load((Path(__file__).parent / "groups.yaml").read_text(encoding="utf-8"))
    sets = {"known groups": [group for section in KNOWN for group in identity.groups(section)]}
    if part == "report":
        sets["groups of the report"] = [_group(kind, line) for kind, lines in spec["groups"].items() for line in lines]
    yield "| scorer | bound | groups | n | odd grammar: alarms | highest of one group | lowest | attacks found |"
    yield "|---|---|---|---|---|---|---|---|"
    for name in scorers:
        scorer: Any = load_scorer(name)
        for most in bounds or [scorer.most]:
            scorer.most = most
            for kind, groups in sets.items():
                odd, attacks = (_high(scorer, spec[part][each], groups) for each in ("odd", "attacks"))
                each = odd.mean(1)
                highest = f"{each.max():.1%} ({groups[int(each.argmax())].many})"
                yield (
                    f"| {name} | {most:g} | {len(groups)} {kind} | {odd.size} | {odd.mean():.1%} | {highest} "
                    f"| {each.min():.1%} | {attacks.mean():.1%} |"
                )


def _group(kind: str, line: str) -> Group:
    return Group(kind, *(part.strip() for part in line.split("|")))


def _high(scorer: Any, templates: Sequence[str], groups: Sequence[Group]) -> np.ndarray:
    """Return which sentences get toxicity of 0.5 or more, one row per group."""
    scores = scores_of(scorer, [group.say(template) for group in groups for template in templates])
    return (scores[:, 0] >= TOXIC).reshape(len(groups), len(templates))


if __name__ == "__main__":
    main()
