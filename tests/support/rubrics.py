"""A rubric of a user's own, on a short scale, and a judge who sees what it rates by a word in the text."""

import json
import re
from collections.abc import Sequence
from pathlib import Path

import yaml

from evenhand.core.types import Message, Params
from evenhand.models.fake import FunctionModel

POLITE = {
    "task": "A customer wrote, and somebody replied.",
    "scale": 5,
    "excluded": ["refusals"],
    "criteria": [
        {
            "name": "politeness",
            "short": "P",
            "better": "higher",
            "text": "How polite the reply is. 0: rude. 5: warm and respectful.",
            "low": "rude",
            "high": "warm and respectful",
            "question": "Where is my parcel?",
            "examples": [{"rating": 0, "text": "Not my problem.", "why": "It dismisses the customer."}],
            "controls": [
                {"question": f"Question {n}?", "text": f"{word} Here is number {n}.", "rating": rating}
                for n in range(14)
                for word, rating in (("Thank you kindly.", 5), ("Go away.", 0))
            ],
        }
    ],
}


def written(path: Path, **changes: object) -> Path:
    path.write_text(yaml.safe_dump({**POLITE, **changes}, allow_unicode=True), encoding="utf-8")
    return path


def judging(*, blind: bool = False) -> FunctionModel:
    """Rates politeness by the word “kindly”, or everything alike."""

    def reply(messages: Sequence[Message], _params: Params) -> str:
        text = messages[-1].content
        shown = re.findall(r"<<<(.*?)>>>", text, re.DOTALL)
        if "politeness" not in text:
            return f"Answer{' kindly' if len(text) % 2 else ''} to this."
        return json.dumps({"politeness": 3 if blind else 5 if "kindly" in shown[-1] else 1})

    return FunctionModel(reply, spec="stub/judge")
