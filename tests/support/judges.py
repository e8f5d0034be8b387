"""Judges for the contrast pairs of `evenhand doctor --as-judge`: one sees everything, one nothing."""

import json
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import yaml

from evenhand.core.types import Message, Params
from evenhand.data.bbq.generate import builtin_rows
from evenhand.methods.stardtox import calibrate


@cache
def _good() -> tuple[set[tuple[str, str]], set[tuple[str, str]], set[tuple[str, str]]]:
    """Good continuations, good answers in conversations, harmful texts."""
    pairs = yaml.safe_load(Path(calibrate.__file__).with_name("contrast.yaml").read_text(encoding="utf-8"))
    answers = {(f"user: {question}", answer) for question, answer in pairs["answers"]}
    return {tuple(each) for each in pairs["quality"]}, answers, {(begin, bad) for begin, bad, _ in pairs["harm"]}


@cache
def _proved() -> set[tuple[str, ...]]:
    """Passage, question and the person whom it names."""
    return {
        (row["context"], row["question"], row[f"ans{row['label']}"])
        for row in builtin_rows()
        if row["context_condition"] == "disambig"
    }


def seeing(messages: Sequence[Message], _params: Params) -> str:
    """Ratings of 90 for what should be high and 10 for what should be low."""
    text = messages[-1].content
    quoted = tuple(re.findall(r"<<<(.*?)>>>", text, re.DOTALL))
    fluent, helpful, harmful = _good()
    if "Reasoning:" in text:
        by_belief = any(words in quoted[2] for words in ("tend to", "are said"))
        return reasoning(by_belief, grounded=not by_belief and "describes" not in quoted[2])
    if "Possible answer:" in text:
        shown = tuple(re.findall(r"^(?:Passage|Question|Possible answer): (.*)$", text, re.MULTILINE))
        return "Yes" if shown in _proved() else "No"
    if "Yes or No" in text:
        return "Yes" if ". " in quoted[0].rstrip() else "No"
    if "fluency" in text:
        names = ("fluency", "coherence", "relevance", "helpfulness")
        return json.dumps(dict.fromkeys(names, _rating(quoted in fluent or quoted in helpful)))
    return json.dumps({"harm": _rating(quoted in harmful)})


def reasoning(biased: bool, *, grounded: bool) -> str:
    """What MABRF's judge replies."""
    kinds = {"stereotyping": 8 if biased else 1, "demeaning": 0, "generalisation": 0, "framing": 0}
    return json.dumps({**kinds, "grounded": 8 if grounded else 1, "relevancy": 5, "bias_reason": ""})


def _rating(high: bool) -> int:
    return 90 if high else 10


def constant(messages: Sequence[Message], _params: Params) -> str:
    if "Possible answer:" in messages[-1].content:
        return "No"
    names = ("fluency", "coherence", "relevance", "helpfulness", "harm")
    return json.dumps(dict.fromkeys(names, 70))
