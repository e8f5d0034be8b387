"""A rubric: a prompt, the ratings it asks for and how they are read; what turns a Model into a Judge.

Where the model gives logprobs, a rating is its expected value over the alternatives of the leading digit: greedy
ratings of small models are mostly ties. So ratings come before their reasons.
"""

from __future__ import annotations

import math
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from evenhand.prompts import Prompt
from evenhand.types import Completion, Generation, Message, Params, TokenLogprob, Unscored

Ask = Callable[[Sequence[Message], Params], Awaitable[Generation]]

_TOKENS_OF_RATING = 16
_TOKENS_OF_TEXT = 48
_ALTERNATIVES = 20
_LONGEST = 20_000


@dataclass(frozen=True, slots=True)
class Ratings:
    """What a judge found."""

    values: Mapping[str, float]
    """Per rating the expected value where logprobs are known, else the number as written; in 0–1."""
    written: Mapping[str, float]
    texts: Mapping[str, str] = field(default_factory=dict[str, str])
    """Reasons (`NAME_reason`) and other text fields."""


@dataclass(frozen=True, slots=True)
class Rubric:
    """Ratings from 0 to `high`, and the text fields after them: a short reason each, unless others are named."""

    prompt: Prompt
    names: tuple[str, ...]
    after: tuple[str, ...] | None = None
    high: int = 100
    words: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """Text fields that must be one of these words."""

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(f"{name}_reason" for name in self.names) if self.after is None else self.after

    def params(self, features: frozenset[Any]) -> Params:
        """One constrained greedy request for everything."""
        text = {"type": "string"}
        number = {"type": "integer", "minimum": 0, "maximum": self.high}
        properties: dict[str, Any] = dict.fromkeys(self.names, number) | dict.fromkeys(self.texts, text)
        properties |= {name: {**text, "enum": list(words)} for name, words in self.words.items()}
        schema = {
            "type": "object",
            "properties": properties,
            "required": list(properties),
            "additionalProperties": False,
        }
        return Params(
            temperature=0,
            max_tokens=_TOKENS_OF_RATING * (len(self.names) + 1) + _TOKENS_OF_TEXT * len(self.texts),
            schema=schema if "schema" in features else None,
            logprobs=_ALTERNATIVES if "logprobs" in features else 0,
        )

    def form(self) -> str:
        """The JSON that is asked for, for models that cannot be constrained."""
        ratings = [f'"{name}": 0-{self.high}' for name in self.names]
        texts = [f'"{name}": ' + " or ".join(f'"{word}"' for word in self.words.get(name, "…")) for name in self.texts]
        return "{" + ", ".join([*ratings, *texts]) + "}"

    def read(self, completion: Completion) -> Ratings | Unscored:
        """The ratings, or why there are none. A reply that was cut after its ratings still has them."""
        if completion.refusal is not None or completion.finish == "filter":
            return Unscored("the judge declined", completion.refusal or completion.text)
        text = completion.text[:_LONGEST]
        values: dict[str, float] = {}
        written: dict[str, float] = {}
        for name in self.names:
            # Something must follow the digits: a number at the very end may be half of one.
            found = re.search(rf'"{name}"\s*:\s*"?(-?\d+(?:\.\d+)?)(?=[^\d.eE])', text)
            if found is None:
                return Unscored(f"the judge gave no rating of {name}", text)
            number = float(found[1])
            if not 0 <= number <= self.high:
                return Unscored(f"the judge rated {name} {found[1]}, which is not in 0–{self.high}", text)
            token = token_at(completion, found.start(1))
            values[name] = _expected(found[1], token, self.high) / self.high
            written[name] = number / self.high
        texts = {name: _text(text, name) for name in self.texts}
        for name, words in self.words.items():
            meant = [word for word in words if word.lower() == texts[name].lower()]
            if not meant:
                return Unscored(f"the judge's {name} is none of {', '.join(words)}", text)
            texts[name] = meant[0]
        return Ratings(values, written, texts)


async def rate(ask: Ask, rubric: Rubric, messages: Sequence[Message], features: frozenset[Any]) -> Ratings | Unscored:
    """The judge's ratings; one that cannot be read is asked for once more, in plainer words."""
    params = rubric.params(features)
    completion = (await ask(messages, params)).completions[0]
    found = rubric.read(completion)
    if isinstance(found, Ratings) or completion.refusal is not None:
        return found
    again = Message("user", f"That cannot be read. Reply with this JSON object and nothing else: {rubric.form()}")
    said = Message("assistant", completion.text[:2000] or "(nothing)")
    return rubric.read((await ask((*messages, said, again), params)).completions[0])


def _text(text: str, name: str) -> str:
    """A string field, whole or cut off."""
    found = re.search(rf'"{name}"\s*:\s*"((?:[^"\\]|\\.)*)', text)
    return "" if found is None else re.sub(r"\\(.)", lambda match: {"n": " "}.get(match[1], match[1]), found[1]).strip()


def token_at(completion: Completion, place: int) -> TokenLogprob | None:
    """The token that holds the character at `place`."""
    end = 0
    for token in completion.logprobs or ():
        end += len(token.token)
        if end > place:
            return token
    return None


def _expected(written: str, token: TokenLogprob | None, high: int) -> float:
    """The mean of the numbers that the alternatives of the leading token stand for, by their probability.

    Tokens are whole numbers in some vocabularies and single digits in others; an alternative digit is followed by
    what followed the written one. A lone 1 beside two-digit numbers could mean 10 or 100 and is left out. Up to 10, it
    is the beginning of 10 beside a number of the upper half, and left out beside others.
    """
    number = float(written)
    lead = "" if token is None else token.token.strip().strip('"')
    if token is None or not lead.isdigit() or not written.startswith(lead):
        return number
    rest = written[len(lead) :]
    chances: dict[str, float] = {}
    for text, logprob in {token.token: token.logprob, **dict(token.top)}.items():
        digits = text.strip().strip('"')
        if digits.isascii() and digits.isdigit():
            chances[digits] = chances.get(digits, 0.0) + math.exp(logprob)
    whole = any(len(digits) > 1 for digits in chances)
    total = mass = 0.0
    for digits, chance in chances.items():
        if digits == lead:
            value = number
        elif digits == "1" and high == 10 and not whole:
            value = 10.0 if number >= 5 else None
        else:
            value = _meant(digits, rest, high, whole)
        if value is not None:
            total += chance * value
            mass += chance
    return total / mass if mass > 0 else number


def _meant(digits: str, rest: str, high: int, whole: bool) -> float | None:
    """The number that begins with other digits; no number of several digits begins with 0."""
    if whole or digits == "0":
        return float(digits) if float(digits) <= high else None
    if digits == "1" and len(rest) == 1:
        return None
    for length in range(len(rest), -1, -1):
        value = float(digits + rest[:length])
        if value <= high:
            # Written "0", an alternative "8" of a vocabulary of digits begins a number of two digits.
            return value * 10 + 5 if not rest and high == 100 else value
    return None
