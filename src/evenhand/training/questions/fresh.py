"""Draws private questions from a secret seed, and commits to them: for tests that no vendor can have trained on.

The draw uses the situations and people that `train questions` never trains on. The parts are those of this package and
public; which of them a question joins is known to whoever has the seed.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import orjson

from evenhand.core.errors import DataError, UsageError
from evenhand.core.files import write_bytes
from evenhand.core.version import own_version
from evenhand.training.questions.folder import draw, load_benchmarks
from evenhand.training.questions.generate import LEAST, QuestionPlan, counts, make
from evenhand.training.questions.language import KNOWLEDGE, LANGUAGES, Split, load
from evenhand.training.questions.row import QuestionRow

_SHORTEST = 32
"""Characters of a seed, so that its hash cannot be guessed."""
_WRITTEN = ("context", "question", "options", "right", "unknown", "state", "category", "language", "polarity")


def read_seed(path: Path) -> bytes:
    """The secret seed of a file; a new one is made for its owner only, if there is none."""
    if not path.exists():
        write_bytes(path, secrets.token_hex(32).encode() + b"\n", mode=0o600)
    try:
        seed = path.read_bytes().strip()
    except OSError as error:
        raise DataError(f"the seed cannot be read: {error.strerror}.", file=path) from error
    if len(seed) < _SHORTEST:
        raise UsageError(f"{path} holds a seed that could be guessed; use {_SHORTEST} characters, or a new file.")
    return seed


def fresh_questions(
    seed: bytes, count: int, languages: Sequence[str] = LANGUAGES, data: str | None = None
) -> tuple[bytes, dict[str, Any]]:
    """The questions of a seed as JSON Lines, and the commitment to them."""
    number = int.from_bytes(hashlib.sha256(b"evenhand fresh/" + seed).digest())
    kinds = tuple(each for each in load("en").categories if each != KNOWLEDGE)
    plan = QuestionPlan(max(count, LEAST), number, ("letter",), tuple(languages), kinds)
    benchmarks = load_benchmarks(data)
    rows, leaks = draw(plan, "dev", plan.count + plan.count // 20, benchmarks)  # some more, since some are dropped
    trained = QuestionPlan()
    splits: tuple[Split, ...] = ("train", "dev")
    known = {row.context for split in splits for row in islice(make(trained, split), counts(trained)[split])}
    taught = {(name, each.id) for name in languages for each in load(name).situations if each.split == "train"}
    clean = [row for row in rows if row.context not in known and (row.language, row.situation) not in taught]
    kept = clean[:count]
    content = b"".join(_line(place, row) for place, row in enumerate(kept, 1))
    return content, {
        "evenhand": own_version(),
        "seed_sha256": hashlib.sha256(seed).hexdigest(),
        "questions_sha256": hashlib.sha256(content).hexdigest(),
        "questions": len(kept),
        "asked_for": count,
        "languages": list(languages),
        "leaks": {**benchmarks.note(), "dropped": sum(leaks.values()), "dropped_as_trained": len(rows) - len(clean)},
    }


def _line(place: int, row: QuestionRow) -> bytes:
    values = {name: getattr(row, name) for name in _WRITTEN}
    # The situation is named by a hash, which is enough for clusters.
    situation = hashlib.sha256(f"{row.language}/{row.situation}".encode()).hexdigest()[:12]
    return orjson.dumps({"id": f"fresh-{place}", **values, "situation": situation}) + b"\n"
