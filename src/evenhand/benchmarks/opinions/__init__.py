"""Opinions: answers to neutral questions that may reveal bias, rated as in RLDF.

A scorer gives the ratings (`--scorer opinion:MODEL`) from 0 to 100: bias (BS, lower is better), communication
effectiveness (CE) and logical soundness (LS; higher is better for both). Models and human raters use the same scales
(the rubric `opinion`). As in RLDF's appendix, each has an example of its low, middle and high band; the words are
ours. If `data` is a folder of `evenhand train pairs`, only topics outside the training data are used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, ClassVar, cast

from pydantic import Field

from evenhand.benchmarks.base import BENCHMARKS, AnswerBenchmark, Declared, Meaning, Metric, Selection, graded, mean_of
from evenhand.core.errors import DataError, UsageError, check_names
from evenhand.core.files import content_hash, read_json
from evenhand.core.options import Names, Options, Text
from evenhand.core.types import Sample, SampleKind
from evenhand.data.debates import BIASES, load_topics
from evenhand.data.rubrics import Criterion, load_rubric

PAIRS_FILE, PAIRS_FORMAT = "pairs.json", "evenhand-pairs-1"
"""The metadata file of a folder of preference pairs, which lists the held-out questions."""


@dataclass(frozen=True, slots=True)
class OpinionTopic:
    """A neutral question whose answers may show a type of bias."""

    id: str
    bias: str
    question: str


def load_questions(biases: Sequence[str] | None = None, data: str | Path | None = None) -> list[OpinionTopic]:
    """Load the questions of the given types of bias, or of all.

    `data` is a file of debate topics, or a folder (or its pairs.json) written by `evenhand train pairs`; of the
    latter, only the held-out questions are loaded.
    """
    if data is None:
        return [each for bias in biases or BIASES for each in _of_debates(bias, None)]
    path = Path(data).expanduser()
    questions = _held_out(path) if path.is_dir() or path.suffix == ".json" else _of_debates(None, path)
    known = list(dict.fromkeys(each.bias for each in questions))
    check_names(f"type of bias in {data}", known, *(biases or ()))
    return [each for each in questions if not biases or each.bias in biases]


def _of_debates(bias: str | None, file: Path | None) -> list[OpinionTopic]:
    topics = load_topics(bias, file)
    return [OpinionTopic(each.id, topics.bias, each.question) for each in topics.topics]


def _held_out(path: Path) -> list[OpinionTopic]:
    file = path / PAIRS_FILE if path.is_dir() else path
    content: Any = read_json(file, "Give a folder written by `evenhand train pairs`.")
    if not isinstance(content, dict) or cast(dict[str, Any], content).get("format") != PAIRS_FORMAT:
        raise DataError(f"not written by `evenhand train pairs` (its format is not {PAIRS_FORMAT}).", file=file)
    rows: Sequence[Mapping[str, str]] = cast(dict[str, Any], content)["held_out"]
    return [OpinionTopic(row["id"], row["bias"], row["question"]) for row in rows]


@cache
def opinion_scales() -> tuple[Criterion, ...]:
    return load_rubric("opinion").criteria


class OpinionsOptions(Options):
    bias: Names | None = Field(default=None, description="Only these types of bias; all by default.")
    data: Text | None = Field(
        default=None, description="A file of debate topics, or a folder of `evenhand train pairs`."
    )


@BENCHMARKS.register("opinions")
class Opinions(AnswerBenchmark[OpinionsOptions]):
    """Neutral questions on five types of bias, answered in the model's own words and rated by another model."""

    version: ClassVar[str] = "1"
    kind: ClassVar[SampleKind] = "chat"
    headline: ClassVar[str] = "bias"
    # Ways to lower bias without being fairer: worse text, refusals, texts that cannot be rated, very short answers.
    guardrails: ClassVar[tuple[str, ...]] = ("communication", "soundness", "refusal", "scored", "length")
    group_key: ClassVar[str] = "bias"
    scorers: ClassVar[tuple[str, ...]] = ("opinion",)
    Options = OpinionsOptions

    @cached_property
    def questions(self) -> Sequence[OpinionTopic]:
        """The questions, read on first use: grades and metrics do not need them."""
        bias = None if self.options.bias is None else list(dict.fromkeys(self.options.bias))
        found = load_questions(bias, self.options.data)
        if not found:
            raise UsageError(f"There is no question in {self.options.data}.")
        return found

    def facts(self) -> Mapping[str, Any]:
        content = content_hash([astuple(each) for each in self.questions])
        return {"questions": len(self.questions), "sha256": content}

    def samples(self, selection: Selection) -> Iterator[Sample]:
        """Yields the types of bias in turn, each shuffled by the seed, up to the limit."""
        questions = sorted(self.questions, key=lambda each: each.bias)
        drawn = selection.spread(questions, lambda each: each.bias, lambda each: f"{each.bias}/{each.id}")
        yield from map(sample_of, drawn)

    def metrics(self) -> Sequence[Metric]:
        return METRICS

    def caveats(self) -> Sequence[str]:
        return (
            "The ratings come from a model. Without --scorer opinion:MODEL the model rates itself, and models are "
            "lenient with themselves and with models trained on their answers",
        )


def sample_of(topic: OpinionTopic) -> Sample:
    return Sample(
        id=f"{topic.bias}/{topic.id}",
        kind="chat",
        prompt=topic.question,
        cluster=topic.id,
        metadata={"bias": topic.bias, "topic": topic.id},
    )


_UNRATED = Meaning(undefined="no answer has this rating; `evenhand run rescore RUN --scorer opinion:MODEL` adds it")


def _rating(scale: Criterion) -> Metric:
    title, count, by = f"{scale.title} ({scale.short})", mean_of(scale.name), (scale.name,)
    return Metric(
        scale.name, title, count, better=scale.better, scale=100.0, rests_on=by, meaning=_UNRATED, rating=True
    )


_declared = Declared("opinions")
METRICS = (
    *(_rating(scale) for scale in opinion_scales()),
    _declared("length", mean_of("length")),
    _declared("refusal", mean_of(lambda record: float(record.status == "refused"))),
    _declared("scored", mean_of(graded(lambda grade: all(scale.name in grade for scale in opinion_scales())))),
    _declared("coverage", mean_of(lambda record: float(record.status == "graded"))),
)
