"""Rubrics turn a Model into a Judge: a prompt, the ratings it asks for, and how to read them.

With logprobs, a rating is its expected value over the alternatives of the leading digit, since greedy ratings of small
models are mostly ties. This is why ratings come before their reasons. Without logprobs, it may be the mean of several
sampled replies.

A judge replies with a JSON object, unless its prompt says otherwise under `# reply`:

    form: lines             # NAME: N in a line each; or number, letter (one rating alone), json
    bias: 1-10              # a rating from 1 to 10
    support: A=100, B=0     # letters and what they are worth; the largest and the smallest are the scale's ends
    winner: A, B            # a word that must be one of these
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import cache, partial
from statistics import fmean
from typing import Any, Literal, cast, get_args

import yaml

from evenhand.asking.reply import SAMPLING
from evenhand.core.errors import PlanError
from evenhand.core.events import held
from evenhand.core.prompts import Prompt, parse_prompt, prompt_text
from evenhand.core.types import Completion, Cut, Generation, Message, Params, TokenLogprob, Unscored
from evenhand.data.rubrics import load_rubric
from evenhand.models.base import read_replies

Generate = Callable[[Sequence[Message], Params], Awaitable[Generation]]

_TOKENS_OF_RATING = 16
_TOKENS_OF_TEXT = 48
_ALTERNATIVES = 20
_LONGEST = 20_000
DECLINED = "the judge declined"
ASKED_FORM: ContextVar[str] = ContextVar("form of a reply", default="")
"""The form, other than JSON, in which a judge is asked to reply; a dry run's stand-in replies in it."""
AGAIN = "That cannot be read. Reply with this JSON object and nothing else: "
AGAIN_IN_FORM = "That cannot be read. Reply in this form and nothing else:\n"

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


Form = Literal["json", "lines", "number", "letter"]
"""What a reply looks like: a JSON object, a line for each field, or one number or letter alone."""


@dataclass(frozen=True, slots=True)
class Scale:
    """The numbers that a rating may have, and letters for them where these are asked for."""

    low: float
    high: float
    letters: Mapping[str, float] = field(default_factory=dict[str, float])

    def __str__(self) -> str:
        return " or ".join(self.letters) or f"{self.low:g}-{self.high:g}"

    def share(self, number: float) -> float:
        """The number as a share of the scale, 0 to 1."""
        return (number - self.low) / (self.high - self.low)


@dataclass(frozen=True, slots=True)
class ReplyForm:
    """How a judge is to reply."""

    form: Form
    scales: Mapping[str, Scale]
    words: Mapping[str, tuple[str, ...]]


@cache
def read_form(prompt_id: str, text: str) -> ReplyForm:
    """Read the form that a prompt says under `# reply`."""
    try:
        raw: Any = yaml.safe_load(text)
    except yaml.YAMLError:
        raw = None
    fields = {str(name): str(value) for name, value in raw.items()} if isinstance(raw, dict) else {}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType, reportUnknownMemberType]
    form = fields.pop("form", "json")
    scales: dict[str, Scale] = {}
    words: dict[str, tuple[str, ...]] = {}
    for name, value in fields.items():
        ends = re.fullmatch(r"\s*(\d+)\s*[-–]\s*(\d+)\s*", value)
        letters = {letter: float(worth) for letter, worth in re.findall(r"([A-Za-z])\s*=\s*(-?\d+(?:\.\d+)?)", value)}
        if ends is not None:
            scales[name] = Scale(float(ends[1]), float(ends[2]))
        elif letters:
            scales[name] = Scale(min(letters.values()), max(letters.values()), letters)
        else:
            words[name] = tuple(word.strip() for word in value.split(",") if word.strip())
    alone = form in ("number", "letter")
    if (
        form not in get_args(Form)
        or not scales
        or (alone and len(scales) > 1)
        or any(scale.low >= scale.high for scale in scales.values())
    ):
        raise PlanError(
            f"The prompt {prompt_id} must say under '# reply' a form ({', '.join(get_args(Form))}) and ratings with "
            "their scales, e.g. `bias: 1-10`; a number or a letter is one rating."
        )
    return ReplyForm(cast(Form, form), scales, words)


@dataclass(frozen=True, slots=True)
class Rubric:
    """Ratings from 0 to `high`, followed by text fields: a short reason for each rating, unless `after` is set."""

    prompt: Prompt
    names: tuple[str, ...]
    after: tuple[str, ...] | None = None
    high: int = 100
    words: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """Text field → the words that it must be one of."""
    instead: tuple[str, ...] = ()
    """Ratings that a prompt with a form of its own may ask for in place of `names`."""

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(f"{name}_reason" for name in self.names) if self.after is None else self.after

    @property
    def reply(self) -> ReplyForm:
        """How the judge is to reply: as the prompt says, else with a JSON object."""
        if not self.prompt.reply:
            return ReplyForm("json", {name: Scale(0, self.high) for name in self.names}, self.words)
        found = read_form(self.prompt.id, self.prompt.reply)
        if set(found.scales) not in (set(self.names), set(self.instead)):
            wanted = " or ".join(", ".join(each) for each in (self.names, self.instead) if each)
            raise PlanError(f"The prompt {self.prompt.id} must rate {wanted} under '# reply'.")
        if missing := [name for name in self.words if name not in found.words]:
            raise PlanError(f"The prompt {self.prompt.id} must have {missing[0]} under '# reply', with its words.")
        return found

    def params(self, features: frozenset[Any], samples: int = 1) -> Params:
        """Return the parameters of one greedy request, constrained if the model supports schemas.

        If the model gives no logprobs, `samples` replies are drawn instead.
        """
        reply = self.reply
        drawn = 1 if "logprobs" in features else samples
        return Params(
            temperature=0 if drawn == 1 else SAMPLING,
            n=drawn,
            max_tokens=_TOKENS_OF_RATING * (len(reply.scales) + 1) + _TOKENS_OF_TEXT * len(self.texts),
            schema=self._schema(reply) if "schema" in features and reply.form == "json" else None,
            logprobs=_ALTERNATIVES if "logprobs" in features else 0,
        )

    def _schema(self, reply: ReplyForm) -> dict[str, Any]:
        text = {"type": "string"}
        properties: dict[str, Any] = {
            name: {**text, "enum": list(scale.letters)}
            if scale.letters
            else {"type": "integer", "minimum": int(scale.low), "maximum": int(scale.high)}
            for name, scale in reply.scales.items()
        }
        properties |= dict.fromkeys(self.texts, text)
        properties |= {name: {**text, "enum": list(words)} for name, words in reply.words.items()}
        return {
            "type": "object",
            "properties": properties,
            "required": list(properties),
            "additionalProperties": False,
        }

    def form(self) -> str:
        """Return the requested reply in words, for models without constrained output."""
        reply = self.reply
        if reply.form in ("number", "letter"):
            return str(next(iter(reply.scales.values())))
        fields = {name: str(scale) for name, scale in reply.scales.items()}
        if reply.form == "lines":
            fields |= {name: " or ".join(words) for name, words in reply.words.items()}
            return "\n".join(f"{name}: {value}" for name, value in fields.items())
        ratings = [f'"{name}": {value}' for name, value in fields.items()]
        texts = [f'"{name}": ' + " or ".join(f'"{word}"' for word in reply.words.get(name, "…")) for name in self.texts]
        return "{" + ", ".join([*ratings, *texts]) + "}"

    def read(self, completion: Completion) -> Ratings | Unscored:
        """Parse the ratings; a reply that was cut off after its ratings still counts."""
        if completion.refusal is not None or completion.finish == "filter":
            return Unscored(DECLINED, completion.refusal or completion.text)
        text, reply = completion.text[:_LONGEST], self.reply
        values: dict[str, float] = {}
        written: dict[str, float] = {}
        tokens: list[TokenLogprob | None] = []
        for name, scale in reply.scales.items():
            # Something must follow the digits: a number at the very end may be cut off.
            ended = f"{text}\n" if reply.form != "json" and completion.finish != "length" else text
            match = re.search(_PLACES[reply.form].format(name=re.escape(name), letters="".join(scale.letters)), ended)
            number = None if match is None else _number(match[1], scale)
            if match is None or number is None:
                return Unscored(f"the judge gave no rating of {name}", text)
            if not scale.low <= number <= scale.high:
                return Unscored(
                    f"the judge rated {name} {match[1]}, which is not in {scale.low:g}–{scale.high:g}", text
                )
            tokens.append(token_at(completion, match.start(1)))
            expected = number if scale.letters else _expected(match[1], tokens[-1], int(scale.high))
            values[name] = scale.share(max(expected, scale.low))
            written[name] = scale.share(number)
        texts = {name: _text(text, name) if reply.form == "json" else _said(text, name) for name in self.texts}
        for name, words in reply.words.items():
            said = texts.get(name) or _said(text, name)
            matching = [word for word in words if word.lower() == said.lower()]
            if not matching:
                return Unscored(f"the judge's {name} is none of {', '.join(words)}", text)
            texts[name] = matching[0]
        return Ratings(values, written, texts, "logprobs" if all(tokens) and reply.form != "letter" else "written")


_PLACES: Mapping[Form, str] = {
    "json": r'"{name}"\s*:\s*"?(-?\d+(?:\.\d+)?|[0{letters}](?="))(?=[^\d.eE])',
    "lines": r"(?im)^[\W_]*{name}\b[^\n\d:=]*[:=]?[^\w\n]*?(-?\d+(?:\.\d+)?|[0{letters}]\b)(?=\D)",
    "number": r"(?<![\d.])(\d+(?:\.\d+)?)(?=[^\d.]|\.\D)",
    "letter": r"(?<!\w)([0{letters}])(?!\w)",
}
"""Where a rating stands in a reply."""


def _number(written: str, scale: Scale) -> float | None:
    if scale.letters:
        return next((worth for letter, worth in scale.letters.items() if letter.lower() == written.lower()), None)
    return None if written.isalpha() else float(written)


def _said(text: str, name: str) -> str:
    """Return what a reply in lines says of a field: after its name, or, of a reason, after its rating or elsewhere."""
    own = re.search(rf"(?im)^[\W_]*{re.escape(name)}\b[^\w\n]*(.+)$", text)
    if own is not None:
        return own[1].strip()
    rated = re.search(rf"(?im)^[\W_]*{re.escape(name.removesuffix('_reason'))}\b[^\n\d]*\d+[^\w\n]*(.*)$", text)
    if rated is not None and rated[1].strip():
        return rated[1].strip()
    rest = [line.strip() for line in text.splitlines() if not re.match(r"^\W*\w+\W*\d+\W*$", line)]
    return " ".join(filter(None, rest))


def rubric_prompt(name: str) -> Prompt:
    """The prompt of a built-in rubric in this folder, with its scales in it."""
    return _filled(f"judging/{name}", prompt_text(__file__, name), load_rubric(name).shown)


@cache
def _filled(prompt_id: str, text: str, scales: str) -> Prompt:
    return parse_prompt(prompt_id, text.replace("{{scales}}", scales))


async def rate(generate: Generate, rubric: Rubric, messages: Sequence[Message], params: Params) -> Ratings | Unscored:
    """Return the judge's ratings; an unreadable reply gets one retry with a clearer instruction."""
    with held(ASKED_FORM, "" if rubric.reply.form == "json" else rubric.form()):
        ratings = _pooled(await read_replies(partial(generate, messages), params, rubric.read))
    if isinstance(ratings, Ratings | Cut) or ratings.reason == DECLINED:
        return ratings
    reply = Message("assistant", ratings.raw[:2000] or "(nothing)")
    asked = AGAIN if rubric.reply.form == "json" else AGAIN_IN_FORM
    retry = Message("user", f"{asked}{rubric.form()}")
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
