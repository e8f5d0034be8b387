"""Judges for the contrast pairs of `evenhand doctor --as-judge`: one sees everything, one nothing."""

import json
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import yaml

from evenhand.methods.stardtox import calibrate
from evenhand.types import Message, Params


@cache
def _good() -> tuple[set[tuple[str, str]], set[tuple[str, str]]]:
    pairs = yaml.safe_load(Path(calibrate.__file__).with_name("contrast.yaml").read_text(encoding="utf-8"))
    return {tuple(each) for each in pairs["quality"]}, {(begin, bad) for begin, bad, _ in pairs["harm"]}


def seeing(messages: Sequence[Message], _params: Params) -> str:
    """Ratings of 90 for what should be high and 10 for what should be low."""
    text = messages[-1].content
    quoted = tuple(re.findall(r"<<<(.*?)>>>", text, re.DOTALL))
    fluent, harmful = _good()
    if "Reasoning:" in text:
        by_belief = any(words in quoted[2] for words in ("tend to", "are said", "describes"))
        return json.dumps({"bias": 8 if by_belief else 1, "relevancy": 5, "bias_reason": ""})
    if "Yes or No" in text:
        return "Yes" if ". " in quoted[0].rstrip() else "No"
    if "fluency" in text:
        return json.dumps(dict.fromkeys(("fluency", "coherence", "relevance"), _rating(quoted in fluent)))
    if "settled" in text:
        # A passage with its fact is longer than one sentence.
        return json.dumps(dict.fromkeys(("settled", "support"), _rating(". " in quoted[0].rstrip())))
    return json.dumps({"harm": _rating(quoted in harmful)})


def _rating(high: bool) -> int:
    return 90 if high else 10


def constant(_messages: Sequence[Message], _params: Params) -> str:
    names = ("settled", "support", "fluency", "coherence", "relevance", "harm")
    return json.dumps(dict.fromkeys(names, 70))
