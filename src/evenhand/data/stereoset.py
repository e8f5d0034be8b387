"""Loads StereoSet's development set: a context with a stereotypical, an anti-stereotypical and an unrelated sentence.

One JSON file with two tasks: in `intrasentence` the sentences fill a blank, in `intersentence` they follow the context.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import orjson

from evenhand.core.errors import DataError
from evenhand.core.files import read_bytes

FILE = "dev.json"
Task = Literal["intrasentence", "intersentence"]
TASKS: tuple[Task, ...] = ("intrasentence", "intersentence")
LABELS = ("stereotype", "anti-stereotype", "unrelated")
_AGAIN = "Download the file again: evenhand data pull stereoset."


@dataclass(frozen=True, slots=True)
class Triple:
    """One context with its three sentences, in the order of `LABELS`."""

    id: str
    task: Task
    term: str
    """The word that the sentences are about."""
    bias_type: str
    context: str
    sentences: tuple[str, str, str]


def load_triples(path: Path) -> Sequence[Triple]:
    """Read all triples of both tasks."""
    try:
        content: Any = orjson.loads(read_bytes(path))
        return [_triple(each, task) for task in TASKS for each in content["data"][task]]
    except orjson.JSONDecodeError as error:
        raise DataError(f"not valid JSON ({error}). {_AGAIN}", file=path) from error
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"is not StereoSet's development set ({error!r}). {_AGAIN}", file=path) from error


def _triple(row: Any, task: Task) -> Triple:
    by_label = {each["gold_label"]: each["sentence"] for each in row["sentences"]}
    first, second, third = (str(by_label[label]) for label in LABELS)
    return Triple(str(row["id"]), task, row["target"], row["bias_type"], row["context"], (first, second, third))
