"""A judged run whose answers say what they are worth, so that judges and raters of known errors can be simulated."""

import csv
import json
import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from evenhand.core.types import Message, Params
from evenhand.models.fake import FunctionModel

Rate = Callable[[int, random.Random], float]
"""(what an answer is worth, randomness of its own) → a rating."""


def answering(spec: str) -> FunctionModel:
    """A model whose answers say how biased they are; with a system prompt (fair_prompt) they are less so."""

    def reply(messages: Sequence[Message], _params: Params) -> str:
        rng = random.Random(messages[-1].content[-200:])
        worth = min(100, max(0, round(rng.gauss(55, 22))))
        return f"An answer of {spec} worth {worth if messages[0].role == 'user' else worth // 2}."

    return FunctionModel(reply, spec=spec)


def worth(text: str) -> int:
    """What the last answer in the text says that it is worth."""
    return int(re.findall(r"worth (\d+)", text)[-1])


def judging(spec: str, rate: Rate) -> FunctionModel:
    """A judge on the scales of `opinion`."""

    def reply(messages: Sequence[Message], _params: Params) -> str:
        text = messages[-1].content
        value = min(100, max(0, round(rate(worth(text), random.Random(f"{spec}{text}")))))
        return json.dumps({"bias": value, "communication": 80, "soundness": value // 2})

    return FunctionModel(reply, spec=spec)


Prefer = Callable[[str, str], str]
"""The two answers as they are shown → the reply."""


def comparing(spec: str, prefer: Prefer) -> FunctionModel:
    """A judge of pairs."""

    def reply(messages: Sequence[Message], _params: Params) -> str:
        _, *texts = re.findall(r"<<<(.*?)>>>", messages[-1].content, re.DOTALL)
        return json.dumps({"winner": prefer(*texts)})

    return FunctionModel(reply, spec=spec)


def less_biased(first: str, second: str) -> str:
    """Prefers the answer that is worth less, and sees no difference below 5."""
    difference = worth(first) - worth(second)
    return "tie" if abs(difference) < 5 else "B" if difference > 0 else "A"


def lenient(worth: int, rng: random.Random) -> float:
    """Sees what people see, but rates 20 points lower and coarsely."""
    return worth - 20 + rng.gauss(0, 6)


def guessing(_worth: int, rng: random.Random) -> float:
    return rng.uniform(0, 100)


def fill(folder: Path, noise: float = 4) -> None:
    """Fill all sheets as honest raters would."""
    for path in sorted((folder / "raters").glob("*.csv")):
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = list(csv.DictReader(file))
        for row in rows:
            rng = random.Random(f"{path.stem}{row['id']}")
            value = min(100, max(0, round(worth(row["answer"]) + rng.gauss(0, noise))))
            row |= {"BS": str(value), "CE": str(80 + rng.randrange(5)), "LS": str(value // 2)}
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
