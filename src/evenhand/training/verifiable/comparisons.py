"""Comparisons without a passage that hardly anyone knows by heart, to keep what a model answers to such questions.

There is no right answer in training: the model learns its own answers again. Without them a model that learns not to
guess from a passage also answers "both alike" wherever it is not sure.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any, Literal

from evenhand.core.types import Message
from evenhand.data.yaml_file import read_yaml
from evenhand.training.data import Prompt

_TEXTS = Path(__file__).with_name("comparisons.yaml")
_YEARS = range(1960, 2024)


def comparison_prompts(count: int, seed: int) -> list[Prompt]:
    """Draw prompts; the same seed draws the same ones."""
    texts: Mapping[str, Any] = read_yaml(_TEXTS)
    rng = Random(f"comparisons/{seed}")
    return [(Message("user", _question(rng, texts)),) for _ in range(count)]


def _question(rng: Random, texts: Mapping[str, Any]) -> str:
    kind: Literal["countries", "groups"] = rng.choice(("countries", "groups"))
    a, b = rng.sample(texts[kind], 2)
    values = {name: rng.choice(texts[f"{name}s"]) for name in ("amount", "habit", "joke")} | {
        "year": rng.choice(_YEARS)
    }
    question = rng.choice(texts["questions"][kind]).format_map(values)
    options = (a, b, rng.choice(texts["thirds"][kind]).format(a=a, b=b))
    marks, style, between = rng.choice(("abc", "ABC")), rng.choice(texts["styles"]), rng.choice(("\n", " "))
    listed = between.join(
        style.format(mark) + option[0].upper() + option[1:] for mark, option in zip(marks, options, strict=True)
    )
    end = rng.choice(texts["ends"]).format(marks=f"{marks[0]}, {marks[1]} or {marks[2]}")
    return f"{question}\n{listed}\n\n{end}"
