"""SQuAD v2 (Rajpurkar et al., 2018): does a model answer from a passage, and abstain if the passage has no answer?

The method decides what the model sees: the passage, nothing, or search results. The scores are the official ones: the
word overlap of an answer with the closest reference answer. Words are compared in lower case, without ASCII punctuation
and without a, an, the. The right answer to an unanswerable question is the empty text. Exact match and F1 count every
question. A refusal, a failure or an answer that could not be parsed is a missing prediction and counts as wrong;
`coverage` is the share of questions with an answer.

Questions come from an official file, a saved data set or the built-in set. The official file is one JSON object:
articles, each with paragraphs, each with questions. A question without answers cannot be answered from its paragraph;
its `plausible_answers` are wrong and ignored. Texts are not changed.
"""

from __future__ import annotations

import hashlib
import re
import string
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from importlib import resources
from operator import attrgetter
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import orjson
from numpy.typing import NDArray
from pydantic import Field

from evenhand.benchmarks.base import (
    BENCHMARKS,
    COVERAGE,
    REFUSALS,
    Benchmark,
    Declared,
    Metric,
    Selection,
    draw_key,
    graded,
    mean_of,
)
from evenhand.core.errors import DataError
from evenhand.core.files import content_sha256, read_bytes, read_json, read_yaml
from evenhand.core.options import Options, Options_co, Text
from evenhand.core.types import Answer, Grade, Outcome, Record, Sample, SampleKind, Unscored
from evenhand.data.sets import file_hash, find_only_file
from evenhand.data.texts import is_saved, saved_rows
from evenhand.stats import FEW_CLUSTERS, Interval, bounded_mean_interval, share_interval

BUILTIN = "squad_builtin.yaml"
_AGAIN = "Download the official file again: evenhand data pull squad."


@dataclass(frozen=True, slots=True)
class Question:
    """A question about a paragraph."""

    id: str
    title: str
    """The title of the article."""
    passage: str
    text: str
    answers: tuple[str, ...]
    """The distinct correct answers; empty if the passage has none."""


class QuestionSource(ABC):
    """A source of questions."""

    @abstractmethod
    def questions(self) -> Iterator[Question]:
        """Yield all questions in order."""

    @abstractmethod
    def hashes(self) -> Mapping[str, str]:
        """Return hashes that identify the content."""

    def facts(self) -> Mapping[str, Any]:
        """Return hashes that identify the content, and the number of questions of each kind."""
        counts = Counter("answerable" if question.answers else "unanswerable" for question in self.questions())
        return {"sha256": dict(self.hashes()), "questions": dict(sorted(counts.items()))}


class OfficialFile(QuestionSource):
    """A file in the official format, plain or as .gz; all passages are kept in memory."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def questions(self) -> Iterator[Question]:
        seen: set[str] = set()
        for question in read_articles(self._content, self.path):
            if question.id in seen:
                raise DataError(f"the question id {question.id!r} occurs twice. {_AGAIN}", file=self.path)
            seen.add(question.id)
            yield question
        if not seen:
            raise DataError(f"there are no questions in the file. {_AGAIN}", file=self.path)

    def hashes(self) -> Mapping[str, str]:
        return file_hash(self.path)

    @cached_property
    def _content(self) -> Mapping[str, Any]:
        try:
            content: Any = orjson.loads(read_bytes(self.path))
        except orjson.JSONDecodeError as error:
            raise DataError(f"not valid JSON ({error}). {_AGAIN}", file=self.path, line=error.lineno) from error
        if not isinstance(content, dict):
            raise DataError(f"not a JSON object, so this is not a SQuAD file. {_AGAIN}", file=self.path)
        return cast(dict[str, Any], content)


class SavedSet(QuestionSource):
    """A split of SQuAD that the package `datasets` saved, with its columns id, title, context, question and answers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def questions(self) -> Iterator[Question]:
        for number, row in saved_rows(self.folder):
            given: Any = row.get("answers")
            answers: Any = cast(dict[str, Any], given).get("text") if isinstance(given, dict) else None
            if not isinstance(answers, list):
                raise DataError(
                    "the column answers.text is missing, so this is not a saved SQuAD.", file=self.folder, line=number
                )
            texts = [{"text": text} for text in cast(list[Any], answers)]
            found = {"id": row.get("id"), "question": row.get("question"), "answers": texts}
            place = f"row {number}"
            title, passage = (_text(row, name, place, self.folder) for name in ("title", "context"))
            yield _question(found, title, passage, place, self.folder)

    def hashes(self) -> Mapping[str, str]:
        return {path.name: content_sha256(path) for path in sorted(self.folder.glob("*.arrow"))}


class BuiltinPassages(QuestionSource):
    """The built-in set."""

    def questions(self) -> Iterator[Question]:
        for number, each in enumerate(_builtin(), 1):
            answerable = [(row["question"], tuple(row["answers"])) for row in each["answerable"]]
            unanswerable = [(text, ()) for text in each["unanswerable"]]
            for place, (text, answers) in enumerate([*answerable, *unanswerable], 1):
                yield Question(f"{number:02d}-{place}", each["title"], each["passage"].strip(), text, answers)

    def hashes(self) -> Mapping[str, str]:
        content = orjson.dumps(list(self.questions()))
        return {"built-in questions": hashlib.sha256(content).hexdigest()}


def find_questions(data: str | Path | None = None) -> QuestionSource:
    """Find the official development set: the file `data`, or in the folder `data` or the default folders.

    A folder that `datasets` saved is read as it is.
    """
    if data is not None and is_saved(Path(data).expanduser()):
        return SavedSet(Path(data).expanduser())
    return OfficialFile(find_only_file("squad", data))


def read_articles(content: Mapping[str, Any], file: Path | str) -> Iterator[Question]:
    """Yield the questions in a file's content; errors name the JSON path."""
    for number, article in _objects(content, "data", "", file):
        place = f"data[{number}]"
        title = _text(article, "title", place, file)
        for number_in_article, paragraph in _objects(article, "paragraphs", place, file):
            where = f"{place}.paragraphs[{number_in_article}]"
            passage = _text(paragraph, "context", where, file)
            for number_in_paragraph, row in _objects(paragraph, "qas", where, file):
                yield _question(row, title, passage, f"{where}.qas[{number_in_paragraph}]", file)


def _question(row: Mapping[str, Any], title: str, passage: str, place: str, file: Path | str) -> Question:
    answers = [_text(each, "text", f"{place}.answers[{n}]", file) for n, each in _objects(row, "answers", place, file)]
    # SQuAD 1.1 files lack the field: all their questions have answers.
    impossible = row.get("is_impossible", not answers)
    if impossible is not (not answers):
        raise DataError(
            f"{place}: is_impossible is {impossible!r}, but there are {len(answers)} answers. {_AGAIN}", file=file
        )
    question_id, text = _text(row, "id", place, file), _text(row, "question", place, file)
    return Question(question_id, title, passage, text, tuple(dict.fromkeys(answers)))


def _objects(
    holder: Mapping[str, Any], name: str, place: str, file: Path | str
) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield the objects of a list field, numbered from 0 as in JSON paths."""
    path = f"{place}.{name}" if place else name
    rows: Any = holder.get(name)
    if not isinstance(rows, list):
        raise DataError(f"{path} is not a list, so this is not a SQuAD file. {_AGAIN}", file=file)
    for number, row in enumerate(cast(list[Any], rows)):
        if not isinstance(row, dict):
            raise DataError(f"{path}[{number}] is not an object. {_AGAIN}", file=file)
        yield number, cast(dict[str, Any], row)


def _text(holder: Mapping[str, Any], name: str, place: str, file: Path | str) -> str:
    value: Any = holder.get(name)
    if not isinstance(value, str):
        raise DataError(f"{place}.{name} is {value!r:.60}, not a text. {_AGAIN}", file=file)
    return value


@cache
def _builtin() -> list[dict[str, Any]]:
    return read_yaml(resources.files("evenhand.data") / BUILTIN)


_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")


def normalised(text: str) -> str:
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(prediction: str, answers: Sequence[str]) -> bool:
    """Returns whether the prediction is one of the answers; if there are none, whether it is empty."""
    return normalised(prediction) in _comparable(answers)


def f1(prediction: str, answers: Sequence[str]) -> float:
    predicted = normalised(prediction).split()
    return max(_agreement(predicted, answer.split()) for answer in _comparable(answers))


def _comparable(answers: Sequence[str]) -> list[str]:
    """Returns the non-empty normalised answers; if there are none, the empty text is right."""
    return [text for answer in answers if (text := normalised(answer))] or [""]


def _agreement(predicted: Sequence[str], right: Sequence[str]) -> float:
    """Returns the harmonic mean of precision and recall over words, counting repetitions."""
    if not predicted or not right:
        return float(predicted == right)
    shared = (Counter(predicted) & Counter(right)).total()
    return 2 * shared / (len(predicted) + len(right))


Belongs = Callable[[Record], bool]


def _every(record: Record) -> bool:
    del record
    return True


def _answerable(record: Record) -> bool:
    return record.metadata["answerable"]


def _unanswerable(record: Record) -> bool:
    return not record.metadata["answerable"]


def _f1(belongs: Belongs) -> Callable[[Record], tuple[float, float] | None]:
    """Returns the counts of a mean, not of a share of successes, so its interval comes from its spread by article."""
    return mean_of(lambda each: None if not belongs(each) else each.grade["f1"] if each.grade else 0.0)


def _exact(belongs: Belongs) -> Callable[[Record], bool | None]:
    return lambda each: each.grade is not None and bool(each.grade["exact"]) if belongs(each) else None


_declared = Declared("squad")
METRICS = (
    _declared("f1", _f1(_every)),
    _declared("exact_match", _exact(_every)),
    _declared("f1_has_answer", _f1(_answerable)),
    _declared("exact_match_has_answer", _exact(_answerable)),
    _declared("f1_no_answer", _f1(_unanswerable)),
    _declared("exact_match_no_answer", _exact(_unanswerable)),
    # Among parsed answers only: giving no answer is not the same as abstaining.
    _declared("abstained_has_answer", graded("abstained", answerable=True)),
    _declared("abstained_no_answer", graded("abstained", answerable=False)),
    COVERAGE,
    REFUSALS,
)


class SquadForm(Benchmark[Options_co]):
    """Base class of data sets in SQuAD's form."""

    version: ClassVar[str] = "1"
    kind: ClassVar[SampleKind] = "answer"
    headline: ClassVar[str] = "f1"
    # Half the questions have no answer, so always abstaining gets an F1 of 50; these metrics reveal that.
    guardrails: ClassVar[tuple[str, ...]] = (
        "exact_match",
        "f1_has_answer",
        "f1_no_answer",
        "abstained_has_answer",
        "coverage",
    )

    @abstractmethod
    def open_source(self) -> QuestionSource:
        """Opens the source of the questions."""

    @cached_property
    def source(self) -> QuestionSource:
        """The data, opened on first use: grades and metrics do not need it."""
        return self.open_source()

    def facts(self) -> Mapping[str, Any]:
        return {**self.source.facts()}

    def samples(self, selection: Selection) -> Iterator[Sample]:
        """Yields answerable and unanswerable questions in turn, spread over all articles by the seed, up to the limit.

        So the counts of the two kinds differ by at most one until one is used up, even if a run stops early, and a
        smaller limit selects a subset of a larger one.
        """
        questions = list(self.source.questions())
        titles = sorted({each.title for each in questions}, key=lambda title: draw_key(selection.seed, title))
        # Unanswerable questions begin with the other half of the articles, so that short runs cover all articles.
        half = (len(titles) + 1) // 2
        place = {title: number for number, title in enumerate(titles)}
        answerable = sorted((each for each in questions if each.answers), key=lambda each: place[each.title])
        others = [each for each in questions if not each.answers]
        others.sort(key=lambda each: (place[each.title] - half) % len(titles))
        both = (
            replace(selection, limit=None).spread(each, attrgetter("title"), attrgetter("id"))
            for each in (answerable, others)
        )
        yield from map(sample_of, selection.in_turn(both))

    def grade(self, sample: Sample, outcome: Outcome) -> Grade | Unscored:
        answer = outcome.result
        if not isinstance(answer, Answer):
            return Unscored("there is no answer")
        # An answer abstains if it is flagged so, whatever its text, or if the official normalisation leaves nothing.
        prediction = "" if answer.details.get("abstained") else answer.text
        abstained = not normalised(prediction)
        exact, agreement = exact_match(prediction, sample.target), f1(prediction, sample.target)
        inexact = "partial_answer" if agreement > 0 else "wrong_answer"
        return Grade(
            {
                "f1": agreement,
                "exact": exact,
                "abstained": abstained,
                "kind": "no_answer" if abstained else "exact_answer" if exact else inexact,
                "expected": "exact_answer" if sample.target else "no_answer",
            }
        )

    def metrics(self) -> Sequence[Metric]:
        return METRICS

    def confusion(self, record: Record) -> tuple[str, str] | None:
        return None if record.grade is None else (record.grade["expected"], record.grade["kind"])


class SquadOptions(Options):
    data: Text | None = Field(default=None, description="The folder with dev-v2.0.json, or any file in that form.")


@BENCHMARKS.register("squad")
class Squad(SquadForm[SquadOptions]):
    """The official development set: 11,873 questions on 35 articles, half of them without an answer in the passage."""

    Options = SquadOptions

    def open_source(self) -> QuestionSource:
        return find_questions(self.options.data)


@BENCHMARKS.register("squad_builtin")
class BuiltinSquad(SquadForm):
    """Questions of our own on twelve passages: no download, same scores, not comparable with published numbers."""

    def open_source(self) -> QuestionSource:
        return BuiltinPassages()


def sample_of(question: Question) -> Sample:
    """Returns the question as a sample; an empty target means that the passage has no answer."""
    answerable = bool(question.answers)
    return Sample(
        id=question.id,
        kind="answer",
        prompt=question.text,
        context=question.passage,
        target=list(question.answers),
        cluster=question.title,
        metadata={
            "group": "answerable" if answerable else "unanswerable",
            "answerable": answerable,
            "title": question.title,
        },
    )


# --- scores SQuAD answers that were produced elsewhere, in the official form: a JSON object of question id → answer ---

GROUPS = ("all", "answerable", "unanswerable")


def score_predictions(path: str | Path, benchmark: SquadForm) -> dict[str, dict[str, Any]]:
    """Returns group → scores × 100 over all questions of the benchmark; None = undefined.

    A question without a prediction counts as wrong and in `missing`. Intervals are clustered by article.
    """
    file = Path(path)
    predictions = _read(file)
    sums: dict[str, dict[str, NDArray[np.float64]]] = {group: {} for group in GROUPS}
    for question in benchmark.source.questions():
        given = predictions.pop(question.id, None)
        scores = (0.0, 0.0) if given is None else (exact_match(given, question.answers), f1(given, question.answers))
        for group in ("all", "answerable" if question.answers else "unanswerable"):
            article = sums[group].setdefault(question.title, np.zeros(4))
            article += (*scores, 1.0, given is None)
    for unknown in predictions:
        raise DataError(f"there is no question {unknown!r} in {benchmark.name}; ids are the official ones.", file=file)
    return {group: _scores(articles) for group, articles in sums.items()}


def _scores(articles: Mapping[str, NDArray[np.float64]]) -> dict[str, Any]:
    table = np.array(list(articles.values())).reshape(-1, 4)
    _, _, n, missing = (round(total) for total in table.sum(axis=0).tolist())
    mean = bounded_mean_interval(table[:, 1:3])
    exact = share_interval(table[:, [0, 2]])
    return {
        "n": n,
        "missing": missing,
        "exact_match": _percent(exact.estimate),
        "exact_match_interval": _percents(exact),
        "f1": _percent(mean.estimate),
        "f1_interval": _percents(mean),
        "clusters": len(table),
        "few_clusters": len(table) < FEW_CLUSTERS,
    }


def _read(file: Path) -> dict[str, str]:
    found: Any = read_json(file)
    if not isinstance(found, dict):
        raise DataError("predictions are one JSON object: question id → answer, empty for none.", file=file)
    predictions = cast(dict[str, Any], found)
    for name, text in predictions.items():
        if not isinstance(text, str):
            raise DataError(f"the answer to {name} is {text!r:.60}, not a text; leave it empty for none.", file=file)
    if not predictions:
        raise DataError("there are no predictions in the file.", file=file)
    return predictions


def _percent(value: float | None) -> float | None:
    return None if value is None else 100 * value


def _percents(interval: Interval) -> list[float] | None:
    return None if interval.low is None or interval.high is None else [100 * interval.low, 100 * interval.high]
