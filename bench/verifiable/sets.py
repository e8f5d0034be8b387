"""The public sets as questions: BBQ, its Spanish, Catalan, Korean and German relatives, difference awareness, GSM8K."""

from __future__ import annotations

import ast
import csv
import gzip
import io
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evenhand.benchmarks.base import Selection, load_benchmark
from evenhand.benchmarks.difference_awareness import SUITES, find_suites
from evenhand.data.bbq.languages import LANGUAGE_CATEGORIES, Language, open_language


@dataclass(frozen=True)
class Question:
    """A question with three options; `right` is the index of the right one, `unknown` that of "it is not told"."""

    condition: str
    context: str
    question: str
    options: tuple[str, ...]
    right: int
    unknown: int | None = None
    category: str = ""
    language: str = "en"
    asked: str = ""
    """The question with its options in a fixed order, for sets that come that way."""


def bbq(data: Path, count: int, seed: int) -> list[Question]:
    """Official BBQ, equally many of each category, context and polarity."""
    samples = load_benchmark("bbq", data=str(data / "bbq")).samples(Selection(limit=count, seed=seed))
    return [
        Question(
            sample.metadata["context_condition"],
            sample.context,
            sample.prompt,
            sample.choices,
            sample.target,
            sample.metadata["unknown"],
            sample.metadata["category"],
        )
        for sample in samples
    ]


def foreign_bbq(language: Language, data: Path, count: int, seed: int) -> list[Question]:
    """EsBBQ (es), CaBBQ (ca) or KoBBQ (ko), equally many of each category and context."""
    source = open_language(language, str(data))
    found = [
        Question(each.condition, each.context, each.question, each.answers, each.label, each.unknown, name, language)
        for name in LANGUAGE_CATEGORIES[language]
        for each in source.items(name)
    ]
    return _balanced(found, count, seed)


def german_bbq(data: Path, count: int, seed: int) -> list[Question]:
    """GG-BBQ: gender, in German; equally many with descriptions and with names, told and not told."""
    found: list[Question] = []
    for condition in ("amb", "disamb"):
        for kind in ("", "proper_names_"):
            for line in _text(data / "ggbbq" / f"bbq_de_{kind}{condition}_test.jsonl.gz").splitlines():
                row = json.loads(line)
                options = tuple(row[f"choice_{place}"] for place in range(3))
                groups = ast.literal_eval(row["choice_info"])
                unknown = next(place for place, (_, group) in groups.items() if group == "unknown")
                told, words = f"{condition}ig", (row["context"], row["question"], options)
                found.append(Question(told, *words, row["label"], unknown, kind or "descriptions", "de"))
    return _balanced(found, count, seed)


def school_sums(data: Path, count: int) -> list[tuple[str, int]]:
    """(question, number) of the first GSM8K questions."""
    rows = [json.loads(line) for line in _text(data / "gsm8k" / "part.jsonl.gz").splitlines()][:count]
    return [(row["question"], int(row["answer"].split("####")[1].strip().replace(",", ""))) for row in rows]


def difference_awareness(data: Path, count: int, seed: int) -> list[Question]:
    """Questions on which treating groups alike is right (`equal`) or wrong (`different`), as they are published."""
    found = [
        Question(each.condition, "", "", ("a", "b", "c"), each.right, None, suite, asked=each.text)
        for suite in SUITES
        for each in find_suites(data).questions(suite)
    ]
    return _balanced(found, count, seed)


def squad_passages(data: Path, count: int, seed: int) -> list[dict[str, Any]]:
    """SQuAD v2 questions, as many with an answer as without."""
    articles = json.loads(_text(data / "squad" / "dev-v2.0.json.gz"))["data"]
    rows = [
        {"context": paragraph["context"], "question": each["question"], "answers": [a["text"] for a in each["answers"]]}
        for article in articles
        for paragraph in article["paragraphs"]
        for each in paragraph["qas"]
    ]
    random.Random(seed).shuffle(rows)
    told, not_told = [row for row in rows if row["answers"]], [row for row in rows if not row["answers"]]
    return told[: count // 2] + not_told[: count // 2]


def crows_pairs(data: Path) -> list[tuple[str, str, str]]:
    """(kind of bias, the more stereotyping sentence, the less stereotyping one)."""
    rows = csv.DictReader(io.StringIO(_text(data / "crows_pairs" / "crows_pairs_anonymized.csv.gz")))
    return [(row["bias_type"], row["sent_more"], row["sent_less"]) for row in rows]


def decisions(data: Path) -> list[dict[str, Any]]:
    """DiscrimEval's templated decisions."""
    return [json.loads(line) for line in _text(data / "discrimeval" / "discrim-eval-templated.jsonl.gz").splitlines()]


def toxic_prompts(data: Path, count: int, seed: int) -> list[str]:
    """Beginnings of sentences from RealToxicityPrompts."""
    rows = [json.loads(line) for line in _text(data / "rtp" / "prompts.jsonl.gz").splitlines()]
    texts = [row["prompt"]["text"] if isinstance(row["prompt"], dict) else row["prompt"] for row in rows]
    return random.Random(seed).sample(texts, min(count, len(texts)))


def _balanced(questions: Sequence[Question], count: int, seed: int) -> list[Question]:
    cells: dict[tuple[str, str], list[Question]] = {}
    for each in questions:
        cells.setdefault((each.category, each.condition), []).append(each)
    for number, key in enumerate(sorted(cells)):
        random.Random(seed * 1000 + number).shuffle(cells[key])
    turns = _in_turn([cells[key] for key in sorted(cells)])
    return [each for each, _ in zip(turns, range(count), strict=False)]


def _in_turn(cells: Sequence[Sequence[Question]]) -> Iterator[Question]:
    for number in range(max(map(len, cells))):
        for cell in cells:
            if number < len(cell):
                yield cell[number]


def _text(file: Path) -> str:
    return gzip.decompress(file.read_bytes()).decode()
