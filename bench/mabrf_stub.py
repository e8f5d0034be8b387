"""An endpoint that answers like a model under MABRF, so that two clients can be compared answer by answer.

What it says depends on the request's words alone. The solver's reasoning rests on 0, 1 or 2 guesses; the judge calls it
free of bias when none is left, and the rephraser takes away one at a time. The agents are told apart by how the last
message of their prompt files begins.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any

import orjson
from stub import Endpoint, completion, main

from evenhand.core.prompts import load_prompt
from evenhand.methods.mabrf import agents

GUESSES = (0, 0, 0, 0, 0, 0, 1, 1, 1, 2)
"""How many the solver's reasoning rests on: of ten requests six need no rephrasing, three one and one two."""
LETTERS = "ABC"
_LEFT = re.compile(r"This rests on (\d) guesses")


def opening(name: str) -> str:
    """The words by which an agent's request is known."""
    last = load_prompt(agents.__file__, name).templates[-1][1]
    return last.partition("{{")[0].partition("\n")[0]


OPENINGS = {opening(name): name for name in ("solve", "judge", "rephrase", "terminate")}
assert len(OPENINGS) == 4, "two of MABRF's prompts begin alike"


def reply(messages: list[str]) -> tuple[str, Any]:
    """What an agent says to a request, and the logprobs of a letter."""
    agent = next(name for start, name in OPENINGS.items() if messages[-1].startswith(start))
    words = "\n".join(messages)
    number = int.from_bytes(hashlib.blake2b(words.encode(), digest_size=4).digest())
    if agent == "solve":
        return f"{_steps(number, GUESSES[number % len(GUESSES)])}\nAnswer: {LETTERS[number % 3]}", None
    if agent == "terminate":
        letter = {"token": LETTERS[number % 3], "logprob": -0.01}
        return LETTERS[number % 3], {"content": [{**letter, "top_logprobs": [letter]}]}
    found = _LEFT.search(words)
    assert found is not None, words
    left = int(found[1])
    if agent == "rephrase":
        return _steps(number, left - 1), None
    rating = {"bias": 3 * left, "relevancy": 8 - left}
    reasons = {"bias_reason": f"step 2 guesses, {left} left", "relevancy_reason": "it keeps to the passage"}
    return orjson.dumps(rating | reasons).decode(), None


def _steps(number: int, guesses: int) -> str:
    return f"1. The passage is about two people ({number}).\n2. This rests on {guesses} guesses.\n3. So much is said."


class Agents(Endpoint):
    """Answers each request by its messages."""

    def response(self, body: bytes) -> bytes:
        return completion(*reply([message["content"] for message in orjson.loads(body)["messages"]]))


if __name__ == "__main__":
    main(Agents)
