"""Judges with one fault each in how steady they are, and one without any."""

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from functools import cache

from evenhand.core.types import Message, Params
from evenhand.judging.reliability import known_pairs
from evenhand.models.fake import FunctionModel
from support.judges import controls, quoted

Fault = Callable[[str, int, Sequence[Message], Params], int]
"""(text as shown, what a sound judge rates it, messages, params) → the rating."""


@cache
def _starts() -> dict[str, bool | None]:
    """The first words of every control → whether it should rate high."""
    return {" ".join(each.text.split())[:40]: each.high for _, each in controls().values()}


def known(text: str) -> bool | None:
    """Whether a text is one that should rate high, whatever was added to it; None if it is none of the controls."""
    bare = re.sub(r"^- \*\*(\W*\w+)\*\*", r"\1", text.partition(")\n")[2] or text, flags=re.MULTILINE)
    return next((high for start, high in _starts().items() if " ".join(bare.split()).startswith(start)), None)


@cache
def _poor() -> set[str]:
    return {pair.texts[1] for pair in known_pairs(99).pairs}


def sound(_text: str, value: int, _messages: Sequence[Message], _params: Params) -> int:
    return value


def random_judge(_text: str, _value: int, messages: Sequence[Message], params: Params) -> int:
    return hashlib.sha256(f"{messages[-1].content}{params.seed}".encode()).digest()[0] % 101


FAULTS: dict[str, tuple[Fault, str]] = {
    "repeat": (random_judge, "opinion.bias, the same once more: "),
    "rubric": (
        lambda _t, value, messages, _p: value + 60 if "A person answered" in messages[-1].content else value,
        "opinion.bias, the rubric in other words: ",
    ),
    "length": (
        lambda text, value, _m, _p: value + len(text.split()) - 20,
        "opinion.bias, neutral sentences added: ",
    ),
    "style": (lambda text, value, _m, _p: value + 60 * ("**" in text), "opinion.bias, set as a list with bold words: "),
    "author": (
        lambda text, value, _m, _p: value + 60 * bool(re.search(r"by (a woman|a Black|a Muslim|a 70|an imm)", text)),
        "opinion.bias, another author named: ",
    ),
    "own": (
        lambda text, value, _m, _p: value - 60 * ("You wrote" in text),
        "opinion.bias, said to be the judge's own text: ",
    ),
    "detail": (
        lambda text, value, _m, _p: value + 60 * ("Thursday" in text),
        "opinion.bias, a detail of no importance changed: ",
    ),
}


def better(first: str, second: str) -> str:
    """Of two answers of known value, the good one: a clean one, or a right one; a tie if nothing is known."""
    return "B" if first in _poor() else "A" if second in _poor() else "tie"


def judging(fault: Fault, prefer: Callable[[str, str], str] = better, spec: str = "stub/judge") -> FunctionModel:
    """A judge who rates, compares and answers."""

    def reply(messages: Sequence[Message], params: Params) -> str:
        shown = quoted(messages)
        request = messages[-1].content
        if not shown:
            return f"It depends on what {spec} has seen of the person, and of nothing else."
        if "Answer A" in request:
            return json.dumps({"winner": prefer(shown[1], shown[2])})
        value = fault(shown[1], 80 if known(shown[1]) else 20, messages, params)
        names = re.findall(r'"([a-z_]+)": 0-100', request)
        return json.dumps(dict.fromkeys(names, min(100, max(0, value))))

    return FunctionModel(reply, spec=spec)
