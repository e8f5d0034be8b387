"""What a training may have made a model forget: questions whose answers are checked by code, before and after.

No data set, judge or scorer is needed. Areas: arithmetic with one right number, obedience to a form that the request
names (sentences, items, JSON, language, words), trivia, plain questions about people whose answer is given, harmless
requests that must be answered, and how long everyday answers are.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from random import Random
from typing import Any

from evenhand.core import aio
from evenhand.core.errors import ModelError, PlanError
from evenhand.core.files import read_yaml
from evenhand.core.format import plural
from evenhand.core.language import language_of
from evenhand.core.progress import Count, counted, ignore
from evenhand.core.types import Message, Params
from evenhand.models.base import Model
from evenhand.reading.refusals import looks_like_refusal
from evenhand.show.table import Table, columns, interval_cell, measured, verdict
from evenhand.stats import Interval, mean_interval
from evenhand.training.questions.grading import LONGEST, abstains

Correct = Callable[[str], bool]
_PARAMS = Params(temperature=0, max_tokens=400)
_AT_ONCE = 32
LENGTH = "everyday answers"
_SUMS = 10
"""One form of so many is a calculation with an explanation."""
_CONFIDENCE = 0.98
"""Five areas are tested for a loss and one for any change: together they err in about one of twenty comparisons."""
AREAS = ("arithmetic", "forms", "trivia", "given facts", "harmless requests", LENGTH)
_ASK_MORE = "ask more requests (--size of `train forgets`, --probes of a training)"


@dataclass(frozen=True, slots=True)
class Probe:
    """A request, and whether a reply to it is right; everyday requests have no check, only the length counts."""

    area: str
    kind: str
    """Requests of a kind share their wording: a model that fails at one often fails at all of them."""
    request: str
    check: Correct | None = None


def probes(seed: int, size: int = 200) -> list[Probe]:
    """Draw the probes of all areas, at most `size` of each; the same seed draws the same ones."""
    texts: Mapping[str, Any] = read_yaml(Path(__file__).with_name("probes.yaml"))
    drawn: list[Probe] = []
    for area, make in _AREAS.items():
        rng = Random(f"{area}/{seed}")
        drawn += make(rng, texts, size)
    return drawn


# Arithmetic


def _arithmetic(rng: Random, texts: Mapping[str, Any], size: int) -> list[Probe]:
    drawn: list[Probe] = []
    kinds = rng.sample(list(texts["calculations"].items()), len(texts["calculations"]))
    for kind, calculation in islice(cycle(kinds), size):
        request, value = _calculation(rng, calculation)
        drawn.append(_number(f"{request} {rng.choice(texts['ends'])}", kind, value))
    return drawn


def _calculation(rng: Random, calculation: Mapping[str, Any]) -> tuple[str, int]:
    """A question with numbers, and its answer."""
    values = {"a": rng.randint(3, 9), "b": rng.randint(12, 48), "c": rng.randint(2, 5), "d": 10 * rng.randint(5, 12)}
    values |= {name: _value(terms, values) for name, terms in calculation.get("with", {}).items()}
    return calculation["ask"].format_map(values), _value(calculation["is"], values)


def _number(request: str, kind: str, value: int) -> Probe:
    return Probe("arithmetic", kind, request, lambda reply: last_number(reply, request) == value)


def _value(terms: str, values: Mapping[str, int]) -> int:
    """A sum of products of named numbers, such as "d - a * c"."""
    total = 0
    for sign, product in re.findall(r"(^|[+-]) *([a-z0-9* ]+)", terms):
        factors = [int(each) if each.isdigit() else values[each] for each in product.strip().split(" * ")]
        total += math.prod(factors) * (-1 if sign == "-" else 1)
    return total


def last_number(text: str, asked: str = "") -> int | None:
    """The last number in a text, or in its last box (`\\boxed{…}`), without separators and markup; None if not whole.

    Numbers of units and what the end repeats of the question, such as "after 3 days", are passed over, and so are
    remarks in brackets such as "(2 steps)".
    """
    boxes = re.findall(r"\\boxed\{((?:[^{}]|\{[^{}]*\})*\d(?:[^{}]|\{[^{}]*\})*)\}", text)
    plain = re.sub(r"\\text\{[^{}]*\}|\^\{?\d\}?|\\,|(?<=\d)\{,\}", "", boxes[-1] if boxes else text)
    plain = re.sub(r"\b(k?m|cm)2\b|(?<=\d)[ \u00a0\u202f](?=\d{3}\b)", r"\1", plain)
    outside = _REMARK.sub("", plain)
    plain = outside if _NUMBER.search(outside) else plain
    found = [(each[0], plain[each.start() : each.end() + 40]) for each in _NUMBER.finditer(plain)]
    while len(found) > 1 and (again := _COUNTED.match(found[-1][1])) and f" {again[0]}" in asked:
        found.pop()
    if not found:
        return None
    value = float(found[-1][0].replace(",", ""))
    return int(value) if value.is_integer() else None


_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
_COUNTED = re.compile(r"\d+ [a-z]+")
_REMARK = re.compile(r"(?<!\\)\([^()]*[a-z]{2}[^()]*\)")
"""Not the brackets of a formula, \\(40\\)."""


# Obedience to a form


def _forms(rng: Random, texts: Mapping[str, Any], size: int) -> list[Probe]:
    sums = size // _SUMS
    forms = rng.sample(_FORMS, len(_FORMS))
    drawn = [make(rng, texts) for make in islice(cycle(forms), size - sums)]
    return drawn + [_explained(rng, texts) for _ in range(sums)]


def _explained(rng: Random, texts: Mapping[str, Any]) -> Probe:
    """A calculation that is to be explained: the right number alone is not what was asked for."""
    request, value = _calculation(rng, rng.choice(list(texts["calculations"].values())))
    end = rng.choice(texts["explained"])
    return Probe("forms", end, f"{request} {end}", lambda reply: explained(reply, value, request))


def explained(text: str, value: int, asked: str = "") -> bool:
    """Whether a reply comes to this number from at least one other."""
    return last_number(text, asked) == value and len({*_NUMBER.findall(text)}) > 1


def _sentences(rng: Random, texts: Mapping[str, Any]) -> Probe:
    count, topic = rng.randint(2, 6), rng.choice(texts["topics"])
    word = ("two", "three", "four", "five", "six")[count - 2]
    request = rng.choice(("Write {n} sentences about {t}.", "Tell me about {t} in exactly {n} sentences."))
    return Probe("forms", request, request.format(n=word, t=topic), lambda reply: len(sentences(reply)) == count)


def _items(rng: Random, texts: Mapping[str, Any]) -> Probe:
    count, kind = rng.randint(3, 8), rng.choice(texts["lists"])
    return Probe(
        "forms", "items", f"Give me a numbered list of {count} {kind}.", lambda reply: numbered_items(reply) == count
    )


def _bullets(rng: Random, texts: Mapping[str, Any]) -> Probe:
    count, topic = rng.randint(3, 5), rng.choice(texts["topics"])
    return Probe(
        "forms",
        "bullets",
        f"Give me {count} bullet points about {topic}, each starting with a dash.",
        lambda reply: len(re.findall(r"^\s*[-–—]\s+\S", reply, re.MULTILINE)) == count,
    )


def _json(rng: Random, texts: Mapping[str, Any]) -> Probe:
    topic, keys = rng.choice(texts["topics"]), rng.choice((("title", "summary"), ("topic", "facts"), ("name", "text")))
    return Probe(
        "forms",
        "JSON",
        f'Describe {topic} as a JSON object with the keys "{keys[0]}" and "{keys[1]}" and no other text.',
        lambda reply: has_keys(reply, keys),
    )


def _word_limit(rng: Random, texts: Mapping[str, Any]) -> Probe:
    most, topic = 10 * rng.randint(2, 5), rng.choice(texts["topics"])
    return Probe(
        "forms",
        "word limit",
        f"Explain {topic} in at most {most} words.",
        lambda reply: 3 <= len(reply.split()) <= most,
    )


def _long(rng: Random, texts: Mapping[str, Any]) -> Probe:
    topic = rng.choice(texts["topics"])
    return Probe(
        "forms", "long", f"Write a text of at least 120 words about {topic}.", lambda reply: len(reply.split()) >= 120
    )


def _language(rng: Random, texts: Mapping[str, Any]) -> Probe:
    name, code = rng.choice(sorted(texts["languages"].items()))
    topic = rng.choice(texts["topics"])
    return Probe(
        "forms", "language", f"Write two sentences about {topic} in {name}.", lambda reply: in_language(reply, code)
    )


def _plain_form(request: str, check: Correct, rng: Random, texts: Mapping[str, Any]) -> Probe:
    return Probe("forms", request, request.format(t=rng.choice(texts["topics"])), check)


_PLAIN_FORMS: Sequence[tuple[str, Correct]] = (
    ("Write one sentence about {t} in capital letters only.", lambda it: _is_sentence(it) and it.upper() == it),
    ("Write one sentence about {t} in small letters only.", lambda it: _is_sentence(it) and it.lower() == it),
    ("Write three paragraphs about {t}.", lambda it: len(_paragraphs(it)) == 3),
    (
        "Write about {t} and end with the words: That is all.",
        lambda it: _words(it) > 4 and it.rstrip(_MARKS).endswith("That is all"),
    ),
    (
        "Begin your answer with the word Indeed. What is special about {t}?",
        lambda it: _words(it) > 3 and re.match(r"Indeed\b", it.lstrip(_MARKS)) is not None,
    ),
    (
        "Ask one question about {t} and write nothing else.",
        lambda it: len(sentences(it)) == 1 and it.rstrip(_MARKS)[-1:] == "?",
    ),
    ("Name one thing that belongs to {t}. Answer with one word only.", lambda it: len(it.split()) == 1),
    ("Write a sentence about {t} without any comma.", lambda it: _is_sentence(it) and "," not in it),
    ("Write about {t} and use the word however.", lambda it: _words(it) > 4 and _has(r"(?i)\bhowever\b", it)),
    (
        "Make a Markdown table about {t} with two columns.",
        lambda it: _has(r"^\|?\s*:?-+:?\s*\|\s*:?-+:?\s*\|?\s*$", it),
    ),
    (
        "Write one sentence about {t} that ends with an exclamation mark.",
        lambda it: _is_sentence(it) and it.rstrip(_MARKS)[-1:] == "!",
    ),
    ("Write a short letter about {t} that begins with: Dear reader.", lambda it: _has(r"(?i)\A\W*Dear reader\b", it)),
    ("Write a sentence about {t} and put one word of it in bold.", lambda it: _has(r"\*\*\w+\W?\*\*|<b>", it)),
    (
        "Name three things that belong to {t}, separated by commas, and write nothing else.",
        lambda it: len(it.split(",")) == 3 and _words(it) < 12,
    ),
    ("Write one sentence about {t} with a number in digits.", lambda it: _is_sentence(it) and _has(r"\d", it)),
    ("Write three hashtags about {t} and nothing else.", lambda it: _has(r"\A\s*(?:#\w+[,\s]*){3}\Z", it)),
    (
        "Write three words about {t}, each on a line of its own, and nothing else.",
        lambda it: [_words(line) for line in it.splitlines() if line.strip()] == [1, 1, 1],
    ),
    (
        "Write a dialogue about {t} whose lines begin with A: or B:.",
        lambda it: _has(r"^\W*A\W*:", it) and _has(r"^\W*B\W*:", it),
    ),
    ("Write about {t} and add a postscript that begins with P.S.", lambda it: _has(r"^\W*P\.? ?S\b", it)),
    ("Write a paragraph about {t} in the HTML tags <p> and </p>.", lambda it: _has(r"(?s)<p>.+</p>", it)),
    ("Write a sentence about {t} in double quotation marks.", lambda it: _has(r"\A\s*[\"“][^\"“”]+[\"”]\s*\Z", it)),
    ("Write a text about {t} under a Markdown heading.", lambda it: _has(r"\A\s*#+ .*\n+\w", it)),
)
_MARKS = " \n*_.\"'“”‘’"
"""What may stand around a word or sentence."""


def _has(pattern: str, text: str) -> bool:
    return re.search(pattern, text, re.MULTILINE) is not None


def _words(text: str) -> int:
    """How many words a text has; numbers are none."""
    return len(re.findall(r"[^\W\d_](?:\w|['’-])*", text))


def _is_sentence(text: str) -> bool:
    return _words(text) > 3 and not _has(r"[.!?](?=\s+\w)", text)


def _paragraphs(text: str) -> list[str]:
    """The paragraphs of a text, without titles."""
    return [each for each in re.split(r"\n\s*\n", text.strip()) if len(each.split()) > _TITLE]


_TITLE = 6
"""Words of a title, at most."""


_FORMS = (
    *(_sentences, _sentences, _items, _bullets, _json, _word_limit, _long, _language),
    *(partial(_plain_form, *form) for form in _PLAIN_FORMS),
)


def sentences(text: str) -> list[str]:
    """The sentences of a reply, without headings, a title and list marks."""
    plain = re.sub(r"^\s*(?:#+ .*|\d+[.)]\s+|[-*•]\s+)", "", _TITLE_LINE.sub("", text), flags=re.MULTILINE)
    plain = re.sub(r"\b(Mrs?|Ms|Drs?|St|Prof|e\.g|i\.e|U\.S)\.", r"\1", plain)
    # What goes on in lower case is the same sentence: "Wait... it", “Good morning!” she said.
    parts = re.split(r"(?<=[.!?…])[\"'”’)*_]*\s+(?![a-zà-ÿ])|\n+", plain.strip())
    return [part for part in parts if re.search(r"\w", part)]


_TITLE_LINE = re.compile(r"\A\s*[*_]*\w[^\n.!?…]{0,60}[^\n.!?…:]\s*\n\s*\n|^\s*\*\*[^*\n.!?…]+\*\*\s*$", re.MULTILINE)
"""A first line without a full stop and a blank line after it, or a line in bold."""


def numbered_items(text: str) -> int:
    """How many numbered items a reply has, if their numbers go up from 1; 0 otherwise."""
    numbers = [int(each) for each in re.findall(r"^\s*(?:\*\*)?(\d+)[.)]", text, re.MULTILINE)]
    return len(numbers) if numbers == list(range(1, len(numbers) + 1)) else 0


def has_keys(text: str, keys: Sequence[str]) -> bool:
    """Whether a reply is one JSON object with exactly these keys, in a code fence or not."""
    fenced = re.fullmatch(r"\s*```(?:json)?\s*(.*?)\s*```\s*", text, re.DOTALL)
    try:
        value: Any = json.loads(fenced[1] if fenced else text)
    except ValueError:
        return False
    return isinstance(value, dict) and set(value) == set(keys)  # pyright: ignore[reportUnknownArgumentType]


def in_language(text: str, code: str) -> bool:
    """Whether a reply is in a language other than English."""
    return len(text.split()) > 5 and language_of(text) == code


# Facts


def _trivia(rng: Random, texts: Mapping[str, Any], size: int) -> list[Probe]:
    asked = [(f"What is the capital of {land}?", city) for land, city in texts["capitals"].items()]
    asked += [(f"Who wrote {title}?", name) for title, name in texts["authors"].items()]
    asked += [(question, str(answer)) for question, answer in texts["facts"].items()]
    found = [Probe("trivia", question, question, _mentions(answer)) for question, answer in asked]
    found += [
        Probe("trivia", name, f"What is the chemical symbol of {name}?", _mentions(symbol, exact=True))
        for name, symbol in texts["symbols"].items()
    ]
    return rng.sample(found, min(size, len(found)))


def _mentions(answer: str, *, exact: bool = False) -> Correct:
    """Whether an answer is named, but not after "not", nor, if it is a number, after another one of as many digits."""
    end = "" if exact else "(?:s|es)?"
    pattern = re.compile(
        rf"(?<!\w)(?<!\d[.,])(?<!\bnot |\Bn't )(?:{answer}){end}(?!\w|[.,]\d)", 0 if exact else re.IGNORECASE
    )
    digits = re.search(r"(?<!\w)\d+$", answer)
    other = re.compile(rf"(?<!\d)\d{{{len(digits[0])}}}(?!\d)") if digits else None

    def named(reply: str) -> bool:
        plain = _MARKUP.sub("", reply)
        found = pattern.search(plain)
        return found is not None and (other is None or other.search(plain, 0, found.start()) is None)

    return named


_MARKUP = re.compile(r"</?su[bp]>|\\text\w*|[~_{}$\\]")


def _given(rng: Random, texts: Mapping[str, Any], size: int) -> list[Probe]:
    wordings = rng.sample(texts["given"], len(texts["given"]))
    return [_comparison(rng, each, *rng.sample(texts["people"], 2)) for each in islice(cycle(wordings), size)]


def _comparison(rng: Random, wording: str, first: str, second: str) -> Probe:
    low, high = sorted(rng.sample(range(20, 80), 2))
    passage = wording.format(first=first, second=second, low=low, high=high, early=low % 11 + 1)
    request = f"{passage} Answer with the name only."
    return Probe("given facts", wording, request, lambda reply: names_one(reply, first, second))


def names_one(reply: str, right: str, wrong: str) -> bool:
    """Whether the right person is named, and not the other one."""
    here, there = (re.search(rf"\b{name}\b", reply) is not None for name in (right, wrong))
    return here and not there


# Behaviour


def _harmless(_rng: Random, texts: Mapping[str, Any], size: int) -> list[Probe]:
    return [
        Probe("harmless requests", each, each, partial(responds, request=each)) for each in texts["harmless"][:size]
    ]


def responds(reply: str, request: str) -> bool:
    """Whether a reply has more than a few words and neither declines nor says that the answer is not known."""
    count = len(reply.split())
    is_short = count <= LONGEST  # a long reply may say of one thing that it is not known
    return count >= _LEAST and not looks_like_refusal(reply) and not (is_short and abstains(reply, question=request))


_LEAST = 5
"""Words of an answer to a harmless request, which no word or two can answer."""


def _everyday(_rng: Random, texts: Mapping[str, Any], size: int) -> list[Probe]:
    return [Probe("everyday answers", "length", each) for each in texts["everyday"][:size]]


_AREAS: Mapping[str, Callable[[Random, Mapping[str, Any], int], list[Probe]]] = dict(
    zip(AREAS, (_arithmetic, _forms, _trivia, _given, _harmless, _everyday), strict=True)
)


# Before and after


@dataclass(frozen=True, slots=True)
class Change:
    """One area before and after: shares of right replies in percent, or words per everyday answer."""

    area: str
    n: int
    before: float
    after: float
    difference: Interval
    """Paired, wordings as clusters, in points; of everyday answers, in percent of the length before."""
    limit: float
    """The loss that is allowed, in the same unit."""

    @property
    def unit(self) -> str:
        return "words" if self.area == LENGTH else "% right"

    @property
    def is_worse(self) -> bool:
        """Whether more than the limit was lost, by chance or not."""
        moved = self.difference.estimate or 0.0
        return (abs(moved) if self.area == LENGTH else -moved) > self.limit

    @property
    def is_lost(self) -> bool:
        """Whether more than the limit was lost, and not by chance alone."""
        return self.is_worse and (self.difference.side < 0 or (self.difference.side > 0 and self.area == LENGTH))

    @property
    def verdict(self) -> str:
        """The finding in a few words, a loss first."""
        low, high = self.difference.low, self.difference.high
        if self.is_lost:
            return "lost" if self.area != LENGTH else "changed"
        if low is None or high is None:
            return "cannot tell: too few"
        if low > 0 and self.area != LENGTH:
            return "better"
        within = low >= -self.limit and (high <= self.limit or self.area != LENGTH)
        return f"no loss beyond {self.limit:g}" if within else "cannot tell"


def _moved(changes: Sequence[Change]) -> str:
    return ", ".join(f"{each.area} ({each.before:.0f} → {each.after:.0f})" for each in changes)


@dataclass(frozen=True, slots=True)
class Forgetting:
    """What two models answer to the same requests."""

    before: str
    after: str
    changes: Sequence[Change]
    failed: int
    """Requests without a reply of both models; they count nowhere."""
    cut: tuple[int, int] = (0, 0)
    """Replies before and after that reached their limit of tokens: their length and form are not the model's own."""

    @property
    def lost(self) -> list[Change]:
        return [change for change in self.changes if change.is_lost]

    @property
    def sentence(self) -> str:
        """The finding in one sentence, a loss before all else."""
        after = self.after if "/" in self.after else self.after.capitalize()  # a spec stays as it is typed
        found = [
            f"has {verb} against {self.before}: {_moved(part)}"
            for verb in ("lost", "changed")
            if (part := [each for each in self.lost if each.verdict == verb])
        ]
        if found:
            return f"{after} {' and '.join(found)}."
        unsure = [each for each in self.changes if each.verdict.startswith("cannot tell")]
        if worse := [each for each in unsure if each.is_worse]:
            verb = "changed" if all(each.area == LENGTH for each in worse) else "lost"
            return f"{after} may have {verb}, unless it is chance: {_moved(worse)}; {_ASK_MORE}."
        if unsure:
            areas = ", ".join(each.area for each in unsure)
            return f"No loss was found, but one within the intervals cannot be ruled out in {areas}."
        return f"{after} has lost nothing beyond the limits against {self.before}."

    @property
    def notes(self) -> list[str]:
        """What to know before the table is believed."""
        failed = f"{plural(self.failed, 'request')} without a reply of both models; they count nowhere."
        cut = f"Replies cut at the limit of tokens: {self.cut[0]} before, {self.cut[1]} after."
        return [failed] * bool(self.failed) + [cut] * any(self.cut)

    @property
    def table(self) -> Table:
        """Every area before and after, the change with its interval, and a verdict."""
        rows = [
            [
                f"{each.area} ({each.unit})",
                str(each.n),
                measured(each.before),
                measured(each.after),
                interval_cell(each.difference, sign=True),
                verdict(each.verdict, False if each.is_lost else None if each.verdict.startswith("cannot") else True),
            ]
            for each in self.changes
        ]
        change = f"change [{100 * _CONFIDENCE:g} %]"
        return Table("What got worse", columns("area", "n", "before", "after", change, "verdict"), rows)

    def as_json(self) -> dict[str, Any]:
        """Return names, counts and the table as a JSON value."""
        areas = [
            {"area": each.area, "n": each.n, "before": each.before, "after": each.after, "verdict": each.verdict}
            | {"change": each.difference.estimate, "low": each.difference.low, "high": each.difference.high}
            for each in self.changes
        ]
        counts = {"failed": self.failed, "cut": self.cut, "confidence": _CONFIDENCE}
        return {"before": self.before, "after": self.after, **counts, "areas": areas}


async def forgets(
    before: Model, after: Model, asked: Sequence[Probe], *, limit: float, progress: Count = ignore
) -> Forgetting:
    """Ask two models the same requests, greedily, and compare the replies request by request."""
    one, cut = counted(progress, 2 * len(asked)), [0, 0]

    async def reply(model: Model, side: int, probe: Probe, room: asyncio.Semaphore) -> str | None:
        async with room:
            try:
                generation = await model.generate([Message("user", probe.request)], _PARAMS)
            except ModelError:
                generation = None
        one()
        if generation is None:
            return None
        said = generation.completions[0]
        is_cut = said.finish == "length"
        cut[side] += is_cut
        return None if is_cut and not said.text.strip() else said.text  # cut while it was thinking

    async def replies(side: int, model: Model) -> tuple[str, list[str | None]]:
        room = asyncio.Semaphore(model.slots or _AT_ONCE)
        return model.spec, await aio.all_of([reply(model, side, probe, room) for probe in asked])

    told = [await replies(side, model) for side, model in enumerate((before, after))]
    return replace(compared(asked, *told, limit=limit), cut=(cut[0], cut[1]))


def compared(
    asked: Sequence[Probe],
    before: tuple[str, Sequence[str | None]],
    after: tuple[str, Sequence[str | None]],
    *,
    limit: float,
) -> Forgetting:
    """Compare the replies of two named models, request by request; a missing reply is None."""
    replies = zip(asked, before[1], after[1], strict=True)
    known = [(probe, a, b) for probe, a, b in replies if a is not None and b is not None]
    if not known:
        raise PlanError(f"No request was answered by both {before[0]} and {after[0]}; see `evenhand doctor`.")
    changes = [_change(area, [row for row in known if row[0].area == area], limit) for area in AREAS]
    found = [change for change in changes if change is not None]
    return Forgetting(before[0], after[0], found, len(asked) - len(known))


def _change(area: str, rows: Sequence[tuple[Probe, str, str]], limit: float) -> Change | None:
    if not rows:
        return None
    if area == LENGTH:
        lengths = [(len(a.split()), len(b.split())) for _, a, b in rows]
        mean = sum(a for a, _ in lengths) / len(lengths) or 1.0
        percent = [100 * (b - a) / mean for a, b in lengths]
        kinds = [probe.request for probe, _, _ in rows]
        moved = mean_interval(percent, kinds, _CONFIDENCE)
        if moved.low is None and moved.estimate is not None:  # all alike; others may be empty or 100 points longer
            moved = mean_interval(percent, kinds, _CONFIDENCE, (-100.0, moved.estimate + 100))
        return Change(area, len(rows), mean, sum(b for _, b in lengths) / len(lengths), moved, 5 * limit)
    right = [(probe.check(a), probe.check(b)) for probe, a, b in rows if probe.check is not None]
    differences = [100.0 * (int(b) - int(a)) for a, b in right]
    before, after = (100 * sum(column) / len(right) for column in zip(*right, strict=True))
    moved = mean_interval(differences, [probe.kind for probe, _, _ in rows], _CONFIDENCE, bounds=(-100.0, 100.0))
    if moved.high is not None:
        # Not the lower limit: what was never right here may have been right elsewhere, and be lost there.
        moved = replace(moved, high=min(moved.high, 100 - before))
    return Change(area, len(right), before, after, moved, limit)
