"""The log-probabilities of a given text from llama.cpp, which reports them for generated tokens only.

The text is generated under a grammar that allows nothing else, with a bias towards the tokens that it consists of. Both
change which token is drawn, and neither changes the reported log-probabilities, which come from the model's own logits.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from evenhand.core.types import TokenLogprob
from evenhand.models.given import START

_WORDS = re.compile(r"\s*\S+|\s+$")
_BIAS = 1_000.0

Ask = Callable[[Mapping[str, Any]], Any]


def score_text(ask: Ask, text: str) -> tuple[TokenLogprob, ...] | None:
    """Return the tokens of a text; None if the model would not read it as the tokens in which it can be generated.

    `ask` sends one request to llama.cpp. If two of the text's tokens fit at one place, all at once may go wrong; then
    it is generated word by word.
    """
    wanted = _count(ask, START + text) - _count(ask, START)
    for pieces in ([text], _WORDS.findall(text)):
        found = list(_pieces(ask, pieces))
        if len(found) == wanted and b"".join(token for token, _ in found) == text.encode():
            # A token may hold a part of a character.
            return tuple(TokenLogprob(token.decode(errors="replace"), value) for token, value in found)
    return None


def _pieces(ask: Ask, pieces: list[str]) -> Iterator[tuple[bytes, float]]:
    before = START
    for piece in pieces:
        yield from _forced(ask, before, piece)
        before += piece


def _forced(ask: Ask, before: str, text: str) -> Iterator[tuple[bytes, float]]:
    """Yield the tokens of `text` after `before`, as bytes, with their log-probabilities."""
    reply = ask(
        {
            "prompt": before,
            "max_tokens": len(text.encode()) + 1,  # a token is at least one byte; the last one ends the text
            "temperature": 0,
            "logprobs": 1,
            "grammar": f"root ::= {json.dumps(text, ensure_ascii=False)}",
            "logit_bias": [[text, _BIAS]],
        }
    )
    left = text.encode()
    for token in reply["choices"][0]["logprobs"]["content"]:
        piece = bytes(token["bytes"])
        if not left or not piece or not left.startswith(piece):
            return
        left = left[len(piece) :]
        yield piece, token["logprob"]


def _count(ask: Ask, prompt: str) -> int:
    return ask({"prompt": prompt, "max_tokens": 1, "temperature": 0})["usage"]["prompt_tokens"]
