"""python -m tools.train_scorer.groups [--scorer neural builtin] [--part report]: do scorers treat groups alike?

For each scorer: the share of neutral sentences with toxicity of 0.5 or more, over all groups, for the group with most
and with fewest of them, and the difference of these two; and the share of attacks (which should be high). `--most`
compares bounds on what the names of groups may add to the logit of toxicity (`evenhand.scorers.identity`).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from evenhand.core.types import Unscored
from evenhand.scorers.base import load_scorer
from evenhand.scorers.identity import without_groups
from evenhand.scorers.neural import plain_text
from evenhand.stats import wilson
from tools.train_scorer import identity
from tools.train_scorer.identity import Group
from tools.train_scorer.measure import RESAMPLES, TOXIC, scores_of

KNOWN = ("groups", "held_out_groups", "crossed_groups")
COLUMNS = ("scorer", "bound", "groups", "n", "plain: alarms", "odd grammar: alarms", "highest", "lowest")
Alarms = NDArray[np.bool_]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.train_scorer.groups", description=__doc__)
    parser.add_argument("--scorer", nargs="+", default=["neural", "builtin", "builtin_b"])
    parser.add_argument("--part", choices=("design", "report"), default="report", help="of groups.yaml")
    parser.add_argument("--most", type=float, nargs="+", help="compare these bounds; 99 is none")
    parser.add_argument("--sentences", action="store_true", help="also print the sentences with false alarms")
    options = parser.parse_args()
    for line in lines(options.scorer, options.part, options.most, options.sentences):
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def lines(
    scorers: Sequence[str], part: str = "report", bounds: Sequence[float] | None = None, sentences: bool = False
) -> Iterator[str]:
    """Yield the table, line by line."""
    spec = yaml.safe_load((Path(__file__).parent / "groups.yaml").read_text(encoding="utf-8"))[part]
    sets = sets_of(spec)
    columns = [*COLUMNS, "highest − lowest, points", "attacks found"]
    yield "| " + " | ".join(columns) + " |"
    yield "|" + "---|" * len(columns)
    for name in scorers:
        scorer: Any = load_scorer(name)
        for most in bounds or [scorer.most]:
            scorer.most = most
            for kind, groups in sets.items():
                plain, odd, attacks = (
                    _high(scorer, spec.get(each, ()), groups) for each in ("plain", "odd", "attacks")
                )
                shares = [f"{each.mean():.1%}" if each.size else "–" for each in (plain, odd)]
                both = np.hstack([plain, odd])
                cells = [name, f"{most:g}", f"{len(groups)} {kind}", both.size, *shares, *ends(both, groups)]
                yield "| " + " | ".join(map(str, [*cells, f"{attacks.mean():.1%}"])) + " |"
                if sentences:
                    templates: list[str] = [*spec.get("plain", ()), *spec["odd"]]
                    yield from (f"  {groups[row].say(templates[place])}" for row, place in np.argwhere(both).tolist())


def sets_of(spec: Mapping[str, Any]) -> dict[str, list[Group]]:
    known = [group for section in KNOWN for group in identity.groups(section)]
    fresh = [
        Group(kind, *(part.strip() for part in line.split("|"))) for kind, of in spec["groups"].items() for line in of
    ]
    return {
        "known": known,
        "fresh, on the list of names": [group for group in fresh if _is_listed(group)],
        "fresh, not on the list": [group for group in fresh if not _is_listed(group)],
    }


def _is_listed(group: Group) -> bool:
    """Return whether every form of the group's name has a word of `identity.txt`."""
    forms = [plain_text(form) for form in (group.predicate, group.one, group.many)]
    return all(not isinstance(form, Unscored) and without_groups(form.split(" ")) for form in forms)


def _high(scorer: Any, templates: Sequence[str], groups: Sequence[Group]) -> Alarms:
    """Return which sentences get toxicity of 0.5 or more, one row per group."""
    if not templates:
        return np.zeros((len(groups), 0), bool)
    scores = scores_of(scorer, [group.say(template) for group in groups for template in templates])
    return (scores[:, 0] >= TOXIC).reshape(len(groups), len(templates))


def ends(alarms: Alarms, groups: Sequence[Group]) -> Iterator[str]:
    """The highest share of one group with its interval, the lowest, and their difference.

    The interval of the difference is from resampling the templates, which the groups have in common.
    """
    each = alarms.mean(1)
    highest = wilson(int(alarms.sum(1).max()), alarms.shape[1])
    yield f"{each.max():.1%} [{highest.low or 0:.1%}, {highest.high or 0:.1%}] ({groups[int(each.argmax())].many})"
    yield f"{each.min():.1%}"
    random = np.random.default_rng(0)
    drawn = [alarms[:, random.integers(alarms.shape[1], size=alarms.shape[1])].mean(1) for _ in range(RESAMPLES)]
    low, high = np.quantile([100 * (share.max() - share.min()) for share in drawn], [0.025, 0.975])
    yield f"{100 * (each.max() - each.min()):.1f} [{low:.1f}, {high:.1f}]"


if __name__ == "__main__":
    main()
