"""Loads opinion questions: those of the debate topics (built in or from a file), or those held out from training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import orjson

from evenhand.core.errors import DataError, UnknownNameError
from evenhand.data.debates import BIASES, load_topics

PAIRS_FILE, PAIRS_FORMAT = "pairs.json", "evenhand-pairs-1"
"""The metadata file of a folder of preference pairs, which lists the held-out questions."""


@dataclass(frozen=True, slots=True)
class OpinionTopic:
    """A neutral question whose answers may show a type of bias."""

    id: str
    bias: str
    question: str


def load_questions(biases: Sequence[str] | None = None, data: str | Path | None = None) -> list[OpinionTopic]:
    """Load the questions of the given types of bias, or of all.

    `data` is a file of debate topics, or a folder (or its pairs.json) written by `evenhand train pairs`; of the
    latter, only the held-out questions are loaded.
    """
    if data is None:
        return [each for bias in biases or BIASES for each in _of_debates(bias, None)]
    path = Path(data).expanduser()
    questions = _held_out(path) if path.is_dir() or path.suffix == ".json" else _of_debates(None, path)
    known = list(dict.fromkeys(each.bias for each in questions))
    for bias in biases or ():
        if bias not in known:
            raise UnknownNameError(f"type of bias in {data}", bias, known)
    return [each for each in questions if not biases or each.bias in biases]


def _of_debates(bias: str | None, file: Path | None) -> list[OpinionTopic]:
    topics = load_topics(bias, file)
    return [OpinionTopic(each.id, topics.bias, each.question) for each in topics.topics]


def _held_out(path: Path) -> list[OpinionTopic]:
    file = path / PAIRS_FILE if path.is_dir() else path
    try:
        content: Any = orjson.loads(file.read_bytes())
    except OSError as error:
        raise DataError(
            f"cannot be read: {error.strerror}; give a folder written by `evenhand train pairs`.", file=file
        ) from error
    except orjson.JSONDecodeError as error:
        raise DataError(f"not valid JSON ({error}).", file=file) from error
    if not isinstance(content, dict) or cast(dict[str, Any], content).get("format") != PAIRS_FORMAT:
        raise DataError(f"not written by `evenhand train pairs` (its format is not {PAIRS_FORMAT}).", file=file)
    rows: Sequence[Mapping[str, str]] = cast(dict[str, Any], content)["held_out"]
    return [OpinionTopic(row["id"], row["bias"], row["question"]) for row in rows]
