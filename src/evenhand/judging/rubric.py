"""Rubrics turn a Model into a Judge: a prompt, the ratings it asks for, and how to read them.

With logprobs, a rating is its expected value over the alternatives of the leading digit, since greedy ratings of small
models are mostly ties. This is why ratings come before their reasons. Without logprobs, it may be the mean of several
sampled replies.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import fmean
from typing import Any, Literal

from evenhand.asking.reply import SAMPLING
from evenhand.core.prompts import Prompt
from evenhand.core.types import Completion, Cut, Generation, Message, Params, TokenLogprob, Unscored
from evenhand.models.base import read_replies

Generate = Callable[[Sequence[Message], Params], Awaitable[Generation]]

_TOKENS_OF_RATING = 16
_TOKENS_OF_TEXT = 48
_ALTERNATIVES = 20
_LONGEST = 20_000
DECLINED = "the judge declined"

Reading = Literal["logprobs", "samples", "written"]
"""A rating is an expected value by logprobs, the mean of sampled replies, or the number that the judge wrote."""


@dataclass(frozen=True, slots=True)
class Ratings:
    """The ratings of a judge."""

    values: Mapping[str, float]
    """Rating → its value by the reading; in 0–1."""
    written: Mapping[str, float]
    """Rating → the number written in the (first) reply; in 0–1."""
    texts: Mapping[str, str] = field(default_factory=dict[str, str])
    """Reasons (`NAME_reason`) and other text fields."""
    reading: Reading = "written"


@dataclass(frozen=True, slots=True)
class Rubric:
    """Ratings from 0 to `high`, followed by text fields: a short reason for each rating, unless `after` is set."""

    prompt: Prompt
    names: tuple[str, ...]
    after: tuple[str, ...] | None = None
    high: int = 100
    words: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """Text field → the words that it must be one of."""

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(f"{name}_reason" for name in self.names) if self.after is None else self.after

    def params(self, features: frozenset[Any], samples: int = 1) -> Params:
        """Return the parameters of one greedy request, constrained if the model supports schemas.

        If the model gives no logprobs, `samples` replies are drawn instead.
        """
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
        drawn = 1 if "logprobs" in features else samples
        return Params(
            temperature=0 if drawn == 1 else SAMPLING,
            n=drawn,
            max_tokens=_TOKENS_OF_RATING * (len(self.names) + 1) + _TOKENS_OF_TEXT * len(self.texts),
            schema=schema if "schema" in features else None,
            logprobs=_ALTERNATIVES if "logprobs" in features else 0,
        )

    def form(self) -> str:
        """Return the requested JSON in words, for models without constrained output."""
        ratings = [f'"{name}": 0-{self.high}' for name in self.names]
        texts = [f'"{name}": ' + " or ".join(f'"{word}"' for word in self.words.get(name, "…")) for name in self.texts]
        return "{" + ", ".join([*ratings, *texts]) + "}"

    def read(self, completion: Completion) -> Ratings | Unscored:
        """Parse the ratings; a reply that was cut off after its ratings still counts."""
        if completion.refusal is not None or completion.finish == "filter":
            return Unscored(DECLINED, completion.refusal or completion.text)
        text = completion.text[:_LONGEST]
        values: dict[str, float] = {}
        written: dict[str, float] = {}
        tokens: list[TokenLogprob | None] = []
        for name in self.names:
            # Something must follow the digits: a number at the very end may be cut off.
            match = re.search(rf'"{name}"\s*:\s*"?(-?\d+(?:\.\d+)?)(?=[^\d.eE])', text)
            if match is None:
                return Unscored(f"the judge gave no rating of {name}", text)
            number = float(match[1])
            if not 0 <= number <= self.high:
                return Unscored(f"the judge rated {name} {match[1]}, which is not in 0–{self.high}", text)
            tokens.append(token_at(completion, match.start(1)))
            values[name] = _expected(match[1], tokens[-1], self.high) / self.high
            written[name] = number / self.high
        texts = {name: _text(text, name) for name in self.texts}
        for name, words in self.words.items():
            matching = [word for word in words if word.lower() == texts[name].lower()]
            if not matching:
                return Unscored(f"the judge's {name} is none of {', '.join(words)}", text)
            texts[name] = matching[0]
        return Ratings(values, written, texts, "logprobs" if all(tokens) else "written")


async def rate(generate: Generate, rubric: Rubric, messages: Sequence[Message], params: Params) -> Ratings | Unscored:
    """Return the judge's ratings; an unreadable reply gets one retry with a clearer instruction."""
    ratings = _pooled(await read_replies(partial(generate, messages), params, rubric.read))
    if isinstance(ratings, Ratings | Cut) or ratings.reason == DECLINED:
        return ratings
    reply = Message("assistant", ratings.raw[:2000] or "(nothing)")
    retry = Message("user", f"That cannot be read. Reply with this JSON object and nothing else: {rubric.form()}")
    return _pooled(await read_replies(partial(generate, (*messages, reply, retry)), params, rubric.read))


def _pooled(replies: Sequence[Ratings | Unscored]) -> Ratings | Unscored:
    """Return the mean of the ratings that could be read, with the words of the first."""
    rated = [each for each in replies if isinstance(each, Ratings)]
    if len(replies) == 1 or not rated:
        return replies[0]
    means = {name: fmean(each.values[name] for each in rated) for name in rated[0].values}
    return replace(rated[0], values=means, reading="samples")


def _text(text: str, name: str) -> str:
    """Return a string field, complete or cut off; "" if it is missing."""
    field = re.search(rf'"{name}"\s*:\s*"((?:[^"\\]|\\.)*)', text)
    return "" if field is None else re.sub(r"\\(.)", lambda match: {"n": " "}.get(match[1], match[1]), field[1]).strip()


def token_at(completion: Completion, place: int) -> TokenLogprob | None:
    """Return the token that contains the character at `place`."""
    end = 0
    for token in completion.logprobs or ():
        end += len(token.token)
        if end > place:
            return token
    return None


def _expected(written: str, token: TokenLogprob | None, high: int) -> float:
    """Return the mean of the numbers that the alternatives of the leading token begin, weighted by probability.

    Tokens are whole numbers in some vocabularies and single digits in others. An alternative digit is completed with
    the digits that follow the written one. A single 1 as an alternative to a two-digit number is ignored: it could
    begin 10 or 100. On a scale up to 10, it counts as 10 beside numbers from 5, and is ignored beside smaller ones.
    """
    number = float(written)
    lead = "" if token is None else token.token.strip().strip('"')
    if token is None or not lead.isdigit() or not written.startswith(lead):
        return number
    rest = written[len(lead) :]
    chances: dict[str, float] = {}
    for text, chance in token.chances().items():
        digits = text.strip().strip('"')
        if digits.isascii() and digits.isdigit():
            chances[digits] = chances.get(digits, 0.0) + chance
    whole = any(len(digits) > 1 for digits in chances)
    total = mass = 0.0
    for digits, chance in chances.items():
        if digits == lead:
            value = number
        elif digits == "1" and high == 10 and not whole:
            value = 10.0 if number >= 5 else None
        else:
            value = _completed(digits, rest, high, whole)
        if value is not None:
            total += chance * value
            mass += chance
    return total / mass if mass > 0 else number


def _completed(digits: str, rest: str, high: int, whole: bool) -> float | None:
    """Return the number that the alternative `digits` begin; no number of several digits begins with 0."""
    if whole or digits == "0":
        return float(digits) if float(digits) <= high else None
    if digits == "1" and len(rest) == 1:
        return None
    for length in range(len(rest), -1, -1):
        value = float(digits + rest[:length])
        if value <= high:
            # Beside a written "0", an alternative "8" begins a two-digit number if tokens are single digits.
            return value * 10 + 5 if not rest and high == 100 else value
    return None
