"""Writes a subset of a folder of pairs: a number of training pairs drawn by the seed, and the whole test set."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson

from evenhand.core.errors import UsageError
from evenhand.data.opinion_topics import PAIRS_FILE

_PAIRS, _ANSWERS = "pairs.train.jsonl", "sft.train.jsonl"


def about_pairs(folder: Path) -> dict[str, Any]:
    """Reads the description of a folder of pairs."""
    return orjson.loads((folder / PAIRS_FILE).read_bytes())


def write_part(whole: Path, target: Path, count: int, seed: int) -> None:
    """Writes `count` pairs and the same share of low-bias answers; smaller parts are subsets of larger ones."""
    pairs, answers = ((whole / name).read_bytes().splitlines(keepends=True) for name in (_PAIRS, _ANSWERS))
    if count > len(pairs):
        raise UsageError(f"{whole} has {len(pairs):,} training pairs, not {count:,}. Debate more topics.")
    files = {path.name: path.read_bytes() for path in sorted(whole.glob("*.jsonl"))}
    files[_PAIRS] = b"".join(_drawn(pairs, count, seed))
    files[_ANSWERS] = b"".join(_drawn(answers, max(1, round(len(answers) * count / len(pairs))), seed))
    about = about_pairs(whole)
    about["counts"] |= {"pairs_train": count, "sft_train": files[_ANSWERS].count(b"\n")}
    about["sha256"] = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    target.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (target / name).write_bytes(content)
    # Written last, so that it marks a complete folder.
    (target / PAIRS_FILE).write_bytes(orjson.dumps(about, option=orjson.OPT_INDENT_2) + b"\n")


def _drawn(lines: Sequence[bytes], count: int, seed: int) -> list[bytes]:
    """Draws lines by hash, so that the first ones do not depend on the number drawn."""
    order = sorted(lines, key=lambda line: hashlib.blake2b(str(seed).encode() + line, digest_size=8).digest())
    chosen = set(order[:count])
    return [line for line in lines if line in chosen]
