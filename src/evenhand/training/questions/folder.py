"""Writes a folder of training questions: train.jsonl, dev.jsonl, and a data card as JSON and as text.

Questions that repeat a benchmark are left out: eight equal words in a row, or a sentence equal but for its people.
"""

from __future__ import annotations

import csv
import hashlib
import io
import re
import secrets
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import orjson

from evenhand.core.errors import DataError, UsageError
from evenhand.core.files import json_lines, read_bytes, write_bytes
from evenhand.core.version import own_version
from evenhand.data.bbq import CATEGORIES, BBQSource, BuiltinRows, OfficialFiles
from evenhand.data.sets import find_set
from evenhand.training.pairs.cleaning import LeakCheck, load_check
from evenhand.training.questions.generate import LEAST, QuestionPlan, counts, make
from evenhand.training.questions.language import KNOWLEDGE, LANGUAGES, Split, bare, load
from evenhand.training.questions.row import QuestionRow, check_classes

# --- draws private questions from a secret seed, and commits to them: for tests that no vendor can have trained on ---
# The draw uses the situations and people that `train questions` never trains on. The parts are those of this package
# and public; which of them a question joins is known to whoever has the seed.

_SHORTEST = 32
"""Characters of a seed, so that its hash cannot be guessed."""
_WRITTEN = ("context", "question", "options", "right", "unknown", "state", "category", "language", "polarity")


def read_seed(path: Path) -> bytes:
    """The secret seed of a file; a new one is made for its owner only, if there is none."""
    if not path.exists():
        write_bytes(path, secrets.token_hex(32).encode() + b"\n", mode=0o600)
    seed = read_bytes(path).strip()
    if len(seed) < _SHORTEST:
        raise UsageError(f"{path} holds a seed that could be guessed; use {_SHORTEST} characters, or a new file.")
    return seed


def fresh_questions(
    seed: bytes, count: int, languages: Sequence[str] = LANGUAGES, data: str | None = None
) -> tuple[bytes, dict[str, Any]]:
    """The questions of a seed as JSON Lines, and the commitment to them."""
    number = int.from_bytes(hashlib.sha256(b"evenhand fresh/" + seed).digest())
    kinds = tuple(each for each in load("en").categories if each != KNOWLEDGE)
    plan = QuestionPlan(max(count, LEAST), number, ("letter",), tuple(languages), kinds)
    benchmarks = load_benchmarks(data)
    rows, leaks = draw(plan, "dev", plan.count + plan.count // 20, benchmarks)  # some more, since some are dropped
    trained = QuestionPlan()
    splits: tuple[Split, ...] = ("train", "dev")
    known = {row.context for split in splits for row in islice(make(trained, split), counts(trained)[split])}
    taught = {(name, each.id) for name in languages for each in load(name).situations if each.split == "train"}
    clean = [row for row in rows if row.context not in known and (row.language, row.situation) not in taught]
    kept = clean[:count]
    content = b"".join(_line(place, row) for place, row in enumerate(kept, 1))
    return content, {
        "evenhand": own_version(),
        "seed_sha256": hashlib.sha256(seed).hexdigest(),
        "questions_sha256": hashlib.sha256(content).hexdigest(),
        "questions": len(kept),
        "asked_for": count,
        "languages": list(languages),
        "leaks": {**benchmarks.note(), "dropped": sum(leaks.values()), "dropped_as_trained": len(rows) - len(clean)},
    }


def _line(place: int, row: QuestionRow) -> bytes:
    values = {name: getattr(row, name) for name in _WRITTEN}
    # The situation is named by a hash, which is enough for clusters.
    situation = hashlib.sha256(f"{row.language}/{row.situation}".encode()).hexdigest()[:12]
    return orjson.dumps({"id": f"fresh-{place}", **values, "situation": situation}) + b"\n"


CARD = "card.json"
_AXES = ("form", "state", "language", "category", "polarity")
_MOST_LEAKS = 0.1
"""Above this share of leaking questions the texts themselves must be mended."""


def write_folder(plan: QuestionPlan, folder: Path, benchmarks: Benchmarks) -> dict[str, Any]:
    """Write both splits without the questions that leak, and return the data card."""
    card: dict[str, Any] = {"plan": asdict(plan), "leaks": benchmarks.note(), "splits": {}}
    folder.mkdir(parents=True, exist_ok=True)
    for split, count in counts(plan).items():
        rows, dropped = draw(plan, split, count, benchmarks)
        check_classes(rows, f"{split}.jsonl")
        content = b"".join(row.line() for row in rows)
        (folder / f"{split}.jsonl").write_bytes(content)
        card["splits"][split] = {"sha256": hashlib.sha256(content).hexdigest(), **_described(rows), "leaks": dropped}
    (folder / CARD).write_bytes(orjson.dumps(card, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS))
    (folder / "README.md").write_text(_markdown(card), encoding="utf-8")
    return card


def draw(
    plan: QuestionPlan, split: Split, count: int, benchmarks: Benchmarks
) -> tuple[list[QuestionRow], dict[str, int]]:
    """Draw questions that repeat neither a benchmark nor each other; also return how often each leak was found."""
    rows: dict[bytes, QuestionRow] = {}
    leaks: Counter[str] = Counter()
    most = 3 * count + 100
    for row in islice(make(plan, split), most):
        if leak := benchmarks.leak_in(row):
            leaks[leak] += 1
            continue
        rows.setdefault(orjson.dumps(row.messages), row)
        if len(rows) == count:
            break
    if leaks.total() > max(_MOST_LEAKS * count, 3):
        worst = leaks.most_common(1)[0][0]
        raise DataError(
            f"{leaks.total()} questions repeat a benchmark, most often with {worst!r}.", file=f"{split}.jsonl"
        )
    if len(rows) < count:
        raise DataError(
            f"Only {len(rows)} different questions can be made with these options; ask for fewer.", file=split
        )
    return list(rows.values()), dict(sorted(leaks.items()))


def _described(rows: Iterable[QuestionRow]) -> dict[str, Any]:
    rows = list(rows)
    told = [row for row in rows if row.group is not None]
    return {
        "rows": len(rows),
        **{axis: dict(sorted(Counter(getattr(row, axis) for row in rows).items())) for axis in _AXES},
        "group_of_the_right_person": dict(sorted(Counter(row.group for row in told).items())),
        "place_of_the_right_option": dict(sorted(Counter(row.right for row in rows).items())),
        "situations": len({(row.language, row.situation) for row in rows}),
        "passages": len({row.context for row in rows if row.context}),
        "held_out_wording": sum(row.held_out_wording for row in rows),
    }


def _markdown(card: Mapping[str, Any]) -> str:
    splits: Mapping[str, Mapping[str, Any]] = card["splits"]
    plan: Mapping[str, Any] = card["plan"]
    lines = [
        "# Training questions",
        "",
        f"Made by `evenhand train questions --count {plan['count']} --seed {plan['seed']}`. "
        "The situations and people of dev.jsonl do not occur in train.jsonl (except in facts and knowledge). "
        "Half of its instructions are worded in ways that no training row has.",
        "",
        "| | " + " | ".join(splits) + " |",
        "|---|" + "---|" * len(splits),
    ]
    for axis in ("rows", *_AXES, "group_of_the_right_person", "place_of_the_right_option", "situations", "passages"):
        name = axis.replace("_", " ")
        if isinstance(splits["train"][axis], int):
            lines.append(f"| {name} | " + " | ".join(str(split[axis]) for split in splits.values()) + " |")
            continue
        for value in dict.fromkeys(each for split in splits.values() for each in split[axis]):
            cells = " | ".join(str(split[axis].get(value, 0)) for split in splits.values())
            lines.append(f"| {name}: {value} | {cells} |")
    leaks = sum(sum(split["leaks"].values()) for split in splits.values())
    checked = ", ".join(card["leaks"]["checked"])
    lines += ["", f"Leak check against {checked}: {leaks} questions were dropped."]
    if card["leaks"]["unchecked"]:
        lines.append(card["leaks"]["unchecked"])
    return "\n".join(lines) + "\n"


LEAST_WORDS = 4
"""Words of a sentence besides its people, for it to count as a template."""
_SENTENCE = re.compile(r"(?<=[.!?])\s+")
_AROUND_MASK = re.compile(
    r"\b(?:(?:the|an?|el|la|le|un|una|une|o|um|uma|der|die|das|eine?) |l')(?=_)|(?<=_)(?:은|는|이|가|을|를|과|와)"
)
"""Articles before people, and Korean particles after them."""
_WORD = re.compile(r"\w+")
_SUFFIXES = (".csv", ".tsv", ".jsonl", ".csv.gz", ".tsv.gz", ".jsonl.gz")

Texts = tuple[str, str, tuple[str, ...]]
"""Context, question, answers."""


@dataclass(frozen=True, slots=True)
class Benchmarks:
    """What training questions must not repeat."""

    grams: LeakCheck
    templates: frozenset[str]

    def leak_in(self, row: QuestionRow) -> str | None:
        """What of the row stands in a benchmark, or None."""
        text = f"{row.context} {row.question}" if row.context else row.messages[-1]["content"]
        if leak := self.grams.leak_in(text):
            return leak
        people = tuple(sorted({alias for each in row.people for alias in each}))
        return next((each for each in _masked(row.context, people) if each in self.templates), None)

    def note(self) -> dict[str, Any]:
        return {**self.grams.note(), "templates": len(self.templates)}


def load_benchmarks(data: str | Path | None = None, folders: Sequence[Path] = ()) -> Benchmarks:
    """Load the built-in questions, BBQ where it is found (or in `data`), and questions or texts of other folders."""
    texts = [*_of_source(BuiltinRows())]
    try:
        texts += _of_source(OfficialFiles(find_set("bbq", data)))
    except DataError:
        if data is not None:
            raise
    others = {folder.name: list(_of_folder(folder)) for folder in folders}
    texts += [each for found in others.values() for each in found]
    more = {name: {text for each in found for text in each[:2]} for name, found in others.items()}
    passages = {(context, tuple(sorted(answers))) for context, _, answers in texts}
    templates = {each for context, answers in passages for each in _masked(context, answers)}
    return Benchmarks(load_check(data, more), frozenset(templates))


def _of_source(source: BBQSource) -> Iterator[Texts]:
    for category in CATEGORIES:
        for item in source.items(category):
            yield item.context, item.question, tuple(item.answers)


def _of_folder(folder: Path) -> Iterator[Texts]:
    files = [path for path in sorted(folder.glob("*")) if path.name.endswith(_SUFFIXES)]
    if not files:
        raise DataError("There is no .csv, .tsv or .jsonl file here to check against.", file=folder)
    for path in files:
        for fields in _records(path):
            if isinstance(fields.get("text"), str):
                yield "", fields["text"], ()
            elif isinstance(fields.get("context"), str) and isinstance(fields.get("question"), str):
                answers = tuple(str(fields[name]) for name in ("ans0", "ans1", "ans2") if fields.get(name))
                yield fields["context"], fields["question"], answers


def _records(path: Path) -> Iterator[dict[str, Any]]:
    if ".jsonl" in path.name:
        return (row for _, row in json_lines(path))
    text = read_bytes(path).decode("utf-8")
    return csv.DictReader(io.StringIO(text), delimiter="\t" if ".tsv" in path.name else ",")


def _masked(text: str, people: tuple[str, ...]) -> Iterator[str]:
    """The sentences of a text without its people, where enough is left of them."""
    masked = text.lower()
    for noun in _nouns(people):
        masked = masked.replace(noun, "_")
    masked = _AROUND_MASK.sub("", masked)
    for sentence in _SENTENCE.split(masked):
        words = _WORD.findall(sentence)
        if len(words) - words.count("_") >= LEAST_WORDS:
            yield " ".join(words)


@cache
def _nouns(people: tuple[str, ...]) -> list[str]:
    """What to mask, longest first."""
    return sorted({bare(each.lower()) for each in people if each} - {""}, key=len, reverse=True)
