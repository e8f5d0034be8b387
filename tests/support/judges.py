"""Judges for the controls of `evenhand judges check`: one sees everything, one nothing, others have one fault each."""

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from functools import cache

from evenhand.core.types import Message, Params
from evenhand.data.bbq.generate import builtin_rows
from evenhand.judging.controls import OTHER, REFUSAL, SHUFFLED, Control, construct

Judging = Callable[[Sequence[Message], Params], str]
CONSTRUCTS = ("prejudice", "toxicity", "refusal", "answers", "continuations")


@cache
def controls() -> dict[tuple[str, str], tuple[str, Control]]:
    """(what comes before, text) → the construct, and the control."""
    return {(each.context, each.text.strip()): (name, each) for name in CONSTRUCTS for each in construct(name).controls}


def quoted(messages: Sequence[Message]) -> tuple[str, ...]:
    return tuple(each.strip() for each in re.findall(r"<<<(.*?)>>>", messages[-1].content, re.DOTALL))


def rated(messages: Sequence[Message]) -> tuple[str, Control] | None:
    """The control that a request is about."""
    found = quoted(messages)
    if not found:
        return None
    before, text = (found[0].removeprefix("user: "), found[1]) if len(found) > 1 else ("", found[0])
    exact = controls().get((before, text))
    return exact or next((each for (_, known), each in controls().items() if known == text), None)


@cache
def _proved() -> set[tuple[str, ...]]:
    """Passage, question and the person whom it names."""
    return {
        (row["context"], row["question"], row[f"ans{row['label']}"])
        for row in builtin_rows()
        if row["context_condition"] == "disambig"
    }


def seeing(messages: Sequence[Message], _params: Params) -> str:
    """Ratings of 90 for what should be high and 10 for what should be low, or has no value."""
    text = messages[-1].content
    shown = quoted(messages)
    if "Reasoning:" in text:
        return _reasoned(shown)
    if "Possible answer:" in text:
        asked = tuple(re.findall(r"^(?:Passage|Question|Possible answer): (.*)$", text, re.MULTILINE))
        return "Yes" if asked in _proved() else "No"
    if '"settled"' in text:
        told = _rating(tuple(shown) in _proved())
        return json.dumps({"settled": told, "support": told, "evidence": "none"})
    found = rated(messages)
    if found is not None:
        return judged(text, *found)
    if "Yes or No" in text:
        return "Yes" if ". " in shown[0].rstrip() else "No"
    return json.dumps({"harm": 10})


def judged(request: str, name: str, control: Control) -> str:
    """What a judge that sees all replies to any request about a control."""
    high = bool(control.high)
    for ask in construct(name).asks.values():
        if ask.no in request:
            return "No" if high else "Yes"
    if "Yes or No" in request or "Yes" in request.rsplit("Reply with", 1)[-1]:
        return "Yes" if high else "No"
    names = re.findall(r'"([a-z_]+)": (?:0-100|N)', request)
    return json.dumps({each: _rating(_has(each, name, control, high)) for each in names})


def _has(rating: str, name: str, control: Control, high: bool) -> bool:
    """Whether a text has what is rated; a text in disorder may be relevant, and one from elsewhere fluent."""
    if rating in ("fluency", "coherence", "communication"):
        after_it = rating == "coherence" and name == "continuations"
        return high or (not after_it and control.kind in ("low", REFUSAL, OTHER))
    return high or (rating in ("relevance", "helpfulness") and control.kind == SHUFFLED)


def _reasoned(shown: tuple[str, ...]) -> str:
    if len(shown) == 2:  # in a conversation
        known = controls()[shown[0].removeprefix("user: "), shown[1]][1]
        return reasoning(bool(known.high), grounded=True)
    passage, reasoning_ = shown[0], shown[2]
    if "The passage says:" not in reasoning_:
        return reasoning(False, grounded=False, relevant=False)
    by_belief = any(words in reasoning_ for words in ("tend to", "are said"))
    relevant = passage.split(". ")[0] in reasoning_
    return reasoning(by_belief, grounded=not by_belief and "describes" not in reasoning_, relevant=relevant)


def reasoning(biased: bool, *, grounded: bool, relevant: bool = True) -> str:
    """What MABRF's judge replies."""
    kinds = {"stereotyping": 8 if biased else 1, "demeaning": 0, "generalisation": 0, "framing": 0}
    rest = {"grounded": 8 if grounded else 1, "relevancy": 8 if relevant else 1}
    return json.dumps({**kinds, **rest, "bias_reason": ""})


def _rating(high: bool) -> int:
    return 90 if high else 10


def constant(messages: Sequence[Message], _params: Params) -> str:
    if "Possible answer:" in messages[-1].content:
        return "No"
    names = (*_RATINGS, "harm", "settled", "support", "evidence")
    return json.dumps(dict.fromkeys(names, 70))


_RATINGS = ("fluency", "coherence", "relevance", "helpfulness", "bias", "communication", "soundness", "declined")


def rating_by(value: Callable[[Control], int]) -> Judging:
    """A judge who gives every rating of a control this value."""

    def reply(messages: Sequence[Message], _params: Params) -> str:
        found = rated(messages)
        assert found is not None
        if "Reasoning:" in messages[-1].content:
            return reasoning(value(found[1]) >= 50, grounded=True)
        return json.dumps(dict.fromkeys(_RATINGS, value(found[1])))

    return reply


def _high(control: Control) -> int:
    return 90 if control.high else 10


def _by_chance(control: Control) -> int:
    return hashlib.sha256(control.text.encode()).digest()[0] % 101


FAULTY: dict[str, Judging] = {
    "blind": rating_by(_by_chance),
    "floor": rating_by(lambda control: 6 if control.high else 1),
    "ceiling": rating_by(lambda control: 99 if control.high else 94),
    "nonsense": rating_by(lambda control: 90 if control.kind == "nonsense" else _high(control)),
    "refusals": rating_by(lambda control: 90 if control.kind == REFUSAL else _high(control)),
    "length": rating_by(lambda control: min(100, _high(control) // 9 + control.words)),
}
"""Fault → a judge who has it."""
