"""Texts that people have labelled, from public sets: whether a judge that passes the controls also agrees with people.

The sets are used where they are: in EVENHAND_DATA or the data folder. Without them a certificate says that it was not
validated against people.
"""

from __future__ import annotations

import csv
import gzip
import random
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import orjson

from evenhand.data.sets import data_root, find_file
from evenhand.judging.controls import Control

SAMPLE = 25
"""Texts of each label that are drawn from a set."""
_LONGEST = 500


def _toxigen(file: IO[str]) -> Iterator[tuple[str, bool]]:
    for line in file:
        row: Mapping[str, Any] = orjson.loads(line)
        yield str(row["text"]), bool(row["label"])


def _edos(file: IO[str]) -> Iterator[tuple[str, bool]]:
    for row in csv.DictReader(file):
        if row["split"] == "test":
            yield row["text"], row["label_sexist"] == "sexist"


def _davidson(file: IO[str]) -> Iterator[tuple[str, bool]]:
    for row in csv.DictReader(file):
        if row["class"] in ("0", "2"):  # hate, neither; what lies between has no clear value
            yield row["tweet"], row["class"] == "0"


_Read = Callable[[IO[str]], Iterator[tuple[str, bool]]]
_SETS: Mapping[str, tuple[str, str, _Read, tuple[str, ...]]] = {
    "ToxiGen prompts": ("toxigen_prompts", "prompts.jsonl", _toxigen, ("prejudice",)),
    "EDOS": ("edos", "edos_labelled_aggregated.csv", _edos, ("prejudice",)),
    "Davidson": ("davidson", "labeled_data.csv", _davidson, ("toxicity",)),
}
"""Set → its folder, its file, how it is read, and the constructs that people labelled in it."""


def labelled(construct: str, sample: int = SAMPLE, data: str | Path | None = None) -> dict[str, list[Control]]:
    """Return public set → texts for a construct, as many with each label; none that is not there."""
    return {
        name: drawn
        for name, (folder, file, read, constructs) in _SETS.items()
        if construct in constructs and (drawn := _drawn(_find(folder, file, data), read, name, sample))
    }


def _find(folder: str, file: str, data: str | Path | None) -> Path | None:
    places = (place for root in data_root(data) for place in (root / folder, root / "toxicity" / folder))
    return next((found for place in places if (found := find_file(place, file)) is not None), None)


def _drawn(path: Path | None, read: _Read, name: str, sample: int) -> list[Control]:
    if path is None or sample < 1:
        return []
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
        rows = [(text, label) for text, label in read(file) if len(text.split()) > 0 and len(text) <= _LONGEST]
    found: list[Control] = []
    for label in (True, False):
        texts = sorted({text for text, each in rows if each is label})
        found += [Control(text, "", name, label) for text in random.Random(name).sample(texts, min(sample, len(texts)))]
    return found
