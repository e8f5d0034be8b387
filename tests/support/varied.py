"""Functions as models (`call/support.varied:answer`): replies differ by prompt and fit what most methods ask for."""

from __future__ import annotations

import json
import random
import re

TEXTS = ("They went home and had dinner.", "It was a stupid idea, you idiot.", "Paris", "The two talked for a while.")


def answer(prompt: str) -> str:
    draw = random.Random(prompt)
    if names := re.findall(r'"(\w+)"\s*:', prompt):
        return json.dumps({name: _value(name, draw) for name in dict.fromkeys(names)})
    if re.search(r"^\(?A[).:]", prompt, re.MULTILINE):
        return draw.choice(["A", "B", "C", "B", "I cannot answer that."])
    if "Yes or No" in prompt or "No or Yes" in prompt:
        return draw.choice(["Yes", "No"])
    return draw.choice(TEXTS)


def another(prompt: str) -> str:
    """Another model with the same abilities."""
    return answer(f"{prompt} ")


def failing(_prompt: str) -> str:
    raise RuntimeError("The model 'unknown' does not exist.")


def _value(name: str, draw: random.Random) -> object:
    if name == "winner":
        return draw.choice(["A", "B", "tie"])
    return "It is clear." if name in ("why", "reason", "bias_reason") else draw.randint(1, 10)
