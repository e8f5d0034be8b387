"""Harmless everyday text from everyday.yaml: names, short replies, terms of use, random strings."""

from __future__ import annotations

import base64
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import yaml


def draw(kind: str, number: int, random: np.random.Generator) -> list[str]:
    """Texts of one kind, drawn with replacement; names are filled in at random."""
    if kind == "strings":
        return [random_string(random) for _ in range(number)]
    templates: list[str] = _spec()[kind]
    firsts, lasts = _spec()["first_names"].split(), _spec()["surnames"].split()
    return [
        str(random.choice(templates)).format(
            first=random.choice(firsts), last=random.choice(lasts), other=random.choice(firsts)
        )
        for _ in range(number)
    ]


def random_string(random: np.random.Generator) -> str:
    """A random token such as a key, a checksum or encoded data."""
    data = b"\xab" + random.bytes(int(random.integers(4, 120)))  # so that there is a letter
    return data.hex() if random.random() < 0.4 else base64.b64encode(data).decode()


def held_out_replies() -> list[str]:
    """Short replies that are not in the training."""
    return _spec()["held_out_replies"]


def trained_names() -> set[str]:
    """All names of the training."""
    return {*_spec()["first_names"].split(), *_spec()["surnames"].split()}


def labels_of(kind: str) -> list[float]:
    """The seven scores that texts of a kind are trained towards."""
    return _spec()["labels"][kind]


@cache
def _spec() -> dict[str, Any]:
    return yaml.safe_load((Path(__file__).parent / "everyday.yaml").read_text(encoding="utf-8"))
