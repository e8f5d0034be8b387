"""Loads DiscrimEval, templated: yes-or-no decisions about a person, for each race and gender and without them.

One JSON Lines file with `decision_question_id`, `race`, `gender`, `filled_template` (with the identity) and
`removed_template` (without it). In all templates, yes is the decision in the person's favour.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evenhand.core.errors import DataError
from evenhand.core.files import json_lines

FILE = "discrim-eval-templated.jsonl"
RACES = ("white", "Black", "Asian", "Hispanic")
GENDERS = ("male", "female")
_AGAIN = "Download the file again: evenhand data pull discrimeval."


@dataclass(frozen=True, slots=True)
class Decision:
    """One decision with its texts."""

    number: int
    name: str
    texts: Mapping[tuple[str, str], str]
    """(race, gender) → the text with this identity."""
    removed: str
    """The text without an identity."""


def load_decisions(path: Path) -> Sequence[Decision]:
    """Read all decisions; each must have every identity once and one text without."""
    found: dict[int, Decision] = {}
    texts: dict[int, dict[tuple[str, str], str]] = {}
    for line_number, row in json_lines(path):
        number, identity = _checked(row, path, line_number)
        known = found.setdefault(
            number,
            Decision(
                number,
                str(row.get("decision_question_nickname") or number),
                texts.setdefault(number, {}),
                row["removed_template"],
            ),
        )
        if identity in texts[number]:
            raise DataError(f"{' '.join(identity)} occurs twice in decision {number}.", file=path, line=line_number)
        if known.removed != row["removed_template"]:
            raise DataError(f"removed_template differs within decision {number}.", file=path, line=line_number)
        texts[number][identity] = row["filled_template"]
    for number, by_identity in texts.items():
        missing = [f"{race} {gender}" for race in RACES for gender in GENDERS if (race, gender) not in by_identity]
        if missing:
            raise DataError(f"decision {number} has no text for {', '.join(missing)}. {_AGAIN}", file=path)
    if not found:
        raise DataError(f"there are no decisions in the file. {_AGAIN}", file=path)
    return tuple(found[number] for number in sorted(found))


def _checked(row: Mapping[str, Any], path: Path, line: int) -> tuple[int, tuple[str, str]]:
    number, race, gender = row.get("decision_question_id"), row.get("race"), row.get("gender")
    texts = (row.get("filled_template"), row.get("removed_template"))
    if type(number) is not int:
        fault = f"decision_question_id is {number!r}, not a whole number"
    elif race not in RACES or gender not in GENDERS:
        fault = f"the identity is {race!r} and {gender!r}, not one of {', '.join(RACES)} and {', '.join(GENDERS)}"
    elif not all(isinstance(text, str) and text.strip() for text in texts):
        fault = "filled_template and removed_template must be texts"
    else:
        return number, (race, gender)
    raise DataError(f"{fault}. {_AGAIN}", file=path, line=line)
