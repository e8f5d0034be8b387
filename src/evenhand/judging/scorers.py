"""Scorers that ask a judge with a rubric.

- `judge`: Perspective's seven attributes.
- `quality`: fluency, coherence and relevance of a continuation; less toxicity must not cost quality.
- `refusal`: whether a reply declines its request; rules miss refusals in unusual words.
- `opinion`: bias, communication effectiveness and logical soundness of an answer (RLDF's BS, CE and LS), on the scales
  of the benchmark `opinions`. The judge should be a model that neither wrote the answers nor trained their author.
- `political`: how fully an answer works for a contested position, and whether the other side's reasons are in it.
- `rubric`: the criteria of any rubric in a YAML file (`evenhand.data.rubrics`), of which `opinion` is one.
"""

from __future__ import annotations

import hashlib
import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field

from evenhand.benchmarks.opinions import opinion_scales
from evenhand.core.aio import all_of
from evenhand.core.errors import ModelError
from evenhand.core.options import Options, Text
from evenhand.core.prompts import load_prompt
from evenhand.core.types import Message, Unscored
from evenhand.core.untrusted import fenced
from evenhand.data.rubrics import Rubrics, load_rubric
from evenhand.judging.card import FITTED, NO_CARD, load_card
from evenhand.judging.controls import Controls, rubric_controls
from evenhand.judging.judge import BY_QUESTION, Reading, asked
from evenhand.judging.rubric import Ratings, Rubric, rate, rubric_prompt
from evenhand.models.base import Model
from evenhand.reading.refusals import looks_like_refusal
from evenhand.scorers.base import ATTRIBUTES, SCORERS, Scorer, Scores
from evenhand.scorers.pool import PooledScorer

QUALITIES = load_rubric("quality").names


class ModelScorerOptions(Options):
    model: Text = Field(description="The model to call: PROVIDER/NAME.")


class ModelScorer(Scorer):
    """Calls its model for each text; a failed call leaves the text unscored, a permanent error is raised."""

    Options = ModelScorerOptions
    asks_model: ClassVar[bool] = True
    languages = ()
    answers_only: ClassVar[bool] = False
    """Whether refusals and nonsense are left without a score: they are counted, and a score would say nothing."""

    def left_out(self, text: str) -> str:
        """Say why a text gets no score; empty if it gets one."""
        return no_answer(text) if self.answers_only else ""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.argument = model.spec

    @abstractmethod
    async def ask(self, text: str, context: str) -> Scores | Unscored:
        """Score one non-empty text; `context` is the prompt that it answers or continues, if known."""

    async def score(self, texts: Sequence[str], contexts: Sequence[str] | None = None) -> list[Scores | Unscored]:
        return await all_of(map(self._one, texts, contexts or [""] * len(texts)))

    def fingerprint(self) -> Mapping[str, Any]:
        return {**super().fingerprint(), "model": dict(self.model.fingerprint())}

    async def aclose(self) -> None:
        await self.model.aclose()

    async def _one(self, text: str, context: str) -> Scores | Unscored:
        if not text.strip():
            return Unscored("empty text", text)
        if why := self.left_out(text):
            return Unscored(why, text)
        try:
            return await self.ask(text, context)
        except ModelError as error:
            if error.permanent:
                raise
            return Unscored(str(error))


Read = Literal["fitted", "expected", "written", "odds", "pairwise"]
READ: Any = Field(
    default=FITTED,
    description="How ratings are read: as the judge's card says (fitted; expected without one), or one of these.",
)


class RubricOptions(ModelScorerOptions):
    reading: Read = READ


def controlled(**controls: Controls) -> Mapping[str, Controls]:
    return controls


class RubricScorer(ModelScorer):
    """A judge with a rubric: one constrained call per text, and two short ones for each rating read by a question."""

    Options = RubricOptions
    controls: Mapping[str, Controls] = controlled()
    """Attribute → the controls that show whether the judge sees it."""

    def __init__(self, model: Model, rubric: Rubric, reading: str = FITTED) -> None:
        super().__init__(model)
        self.rubric = rubric
        self._card = load_card(FITTED, model.spec) if reading == FITTED else NO_CARD
        self.readings: dict[str, Reading] = {
            name: self._card.readings.get(f"{self.label}.{name}", "expected") if reading == FITTED else reading
            for name in self.attributes
        }
        if reading != FITTED:
            self.argument = f"{model.spec},reading={reading}"
        self.version = self.with_readings(rubric.prompt.hash)

    def with_readings(self, version: str) -> str:
        """The version, with the readings that are not the usual one."""
        own = [f"{name}={reading}" for name, reading in self.readings.items() if reading != "expected"]
        return "+".join([version, *own])

    @abstractmethod
    def messages(self, text: str, context: str) -> Sequence[Message]:
        """Return the request about one text."""

    async def ask(self, text: str, context: str) -> Scores | Unscored:
        values: dict[str, float] = {}
        if any(each not in BY_QUESTION for each in self.readings.values()):
            ratings = await self.rated(text, context)
            if isinstance(ratings, Unscored):
                return ratings
            written = {name for name, each in self.readings.items() if each == "written"}
            values = {n: ratings.written[n] if n in written else value for n, value in ratings.values.items()}
        for name, reading in self.readings.items():
            if reading in BY_QUESTION and name in self.controls:
                value = await asked(self.model, reading, self.controls[name], text, context)
                if isinstance(value, Unscored):
                    return value
                values[name] = self._card.probability(f"{self.label}.{name}", value)
        return values

    async def rated(self, text: str, context: str) -> Ratings | Unscored:
        params = self.rubric.params(self.model.features)
        return await rate(self.model.generate, self.rubric, self.messages(text, context), params)


@SCORERS.register("judge")
class JudgeScorer(RubricScorer):
    """Any model as a judge of the seven attributes, rated from 0 to 100, in one call per text."""

    attributes = ATTRIBUTES

    controls = rubric_controls(load_rubric("attributes"))

    def __init__(self, model: Model, reading: str = FITTED) -> None:
        super().__init__(model, Rubric(rubric_prompt("attributes"), ATTRIBUTES, after=()), reading)

    def messages(self, text: str, context: str) -> Sequence[Message]:
        del context  # only the text counts
        return self.rubric.prompt.render(text=text)


def quality_rubric(*, reasons: bool = True) -> Rubric:
    """Return the rubric that the evaluator and the metric share; the metric needs no reasons."""
    return Rubric(rubric_prompt("quality"), QUALITIES, after=None if reasons else ())


def quality_messages(context: str, text: str) -> Sequence[Message]:
    return quality_rubric().prompt.render(text=context, continuation=text)


@SCORERS.register("quality")
class QualityScorer(RubricScorer):
    """Fluency, coherence and relevance of a continuation, in one model call."""

    attributes = QUALITIES

    controls = rubric_controls(load_rubric("quality"))
    answers_only = True

    def __init__(self, model: Model, reading: str = FITTED) -> None:
        super().__init__(model, quality_rubric(reasons=False), reading)

    def messages(self, text: str, context: str) -> Sequence[Message]:
        return quality_messages(context, text)


@SCORERS.register("refusal")
class RefusalScorer(RubricScorer):
    """How far a reply declines its request, in one model call: 0 does it, 1 declines."""

    attributes = ("declined",)

    controls = controlled(declined=Controls("refusal", worthless=()))

    def __init__(self, model: Model, reading: str = FITTED) -> None:
        super().__init__(model, Rubric(load_prompt(__file__, "refusal"), self.attributes, after=()), reading)

    def messages(self, text: str, context: str) -> Sequence[Message]:
        return self.rubric.prompt.render(
            request=fenced(context) or "(not known)", reply=fenced(text), form=self.rubric.form()
        )


class FileRubricOptions(Options):
    file: Text = Field(description="The rubric: a .yaml file, or the name of a built-in one.")
    model: Text = Field(description="The model to call: PROVIDER/NAME.")
    reading: Read = READ


@SCORERS.register("rubric")
class FileRubricScorer(RubricScorer):
    """A rubric of your own, in a YAML file: its criteria, in one model call."""

    Options = FileRubricOptions
    attributes = ()

    def __init__(self, model: Model, file: str, reading: str = FITTED) -> None:
        self.criteria = load_rubric(file)
        self.attributes = self.criteria.names
        self.controls = rubric_controls(self.criteria)
        # A built-in rubric may have a prompt of its own.
        own = Path(__file__).with_name(f"{file}.md").is_file()
        rubric = Rubric(
            load_prompt(__file__, file if own else "rubric"), self.attributes, after=(), high=self.criteria.scale
        )
        super().__init__(model, rubric, reading)
        if self.name == FileRubricScorer.name:
            self.argument = ",".join([file, f"model={model.spec}", *([f"reading={reading}"] * (reading != FITTED))])
        self._scales = self.criteria.shown
        asked = self._scales if own else f"{self._scales}{self.criteria.rater}{self.criteria.task}{self.rubric.high}"
        digest = hashlib.sha256(f"{rubric.prompt.hash}{asked}".encode()).hexdigest()[:16]
        self.version = self.with_readings(digest)

    @property
    def label(self) -> str:
        return f"{self.name}:{self.criteria.name}" if self.name == FileRubricScorer.name else self.name

    def left_out(self, text: str) -> str:
        why = no_answer(text)
        return why if (_EXCLUDED.get(why) or "") in self.criteria.excluded else ""

    def messages(self, text: str, context: str) -> Sequence[Message]:
        values = {
            "question": _fenced(context) or "(not known)",
            "answer": _fenced(text),
            "scales": self._scales,
            "form": self.rubric.form(),
            "text": _fenced(context if "continuation" in self.rubric.prompt.variables else text),
            "continuation": _fenced(text),
            "rater": self.criteria.rater,
            "task": self.criteria.task,
            "highest": str(self.rubric.high),
        }
        prompt = self.rubric.prompt
        return prompt.render(**{name: value for name, value in values.items() if name in prompt.variables})


def rubric_of(scorer: Scorer) -> Rubrics | None:
    """The rubric in a file by which a scorer rates, whose criteria are metrics of any benchmark on free text."""
    inner = scorer.inner if isinstance(scorer, PooledScorer) else scorer
    return inner.criteria if isinstance(inner, FileRubricScorer) else None


@SCORERS.register("opinion")
class OpinionScorer(FileRubricScorer):
    """Bias, communication effectiveness and logical soundness of an answer, in one model call."""

    Options = RubricOptions
    attributes = tuple(scale.name for scale in opinion_scales())
    controls = rubric_controls(load_rubric("opinion"))

    def __init__(self, model: Model, reading: str = FITTED) -> None:
        super().__init__(model, self.name, reading)


@SCORERS.register("political")
class PoliticalScorer(FileRubricScorer):
    """How fully an answer does what it was asked about a contested position, and whether the other side is heard."""

    Options = RubricOptions
    attributes = load_rubric("political").names
    controls = rubric_controls(load_rubric("political"))

    def __init__(self, model: Model, reading: str = FITTED) -> None:
        super().__init__(model, self.name, reading)


_REFUSED, _REPEATED = "a refusal", "the same words over and over"
_EXCLUDED = {_REFUSED: "refusals", _REPEATED: "nonsense"}
"""Why a text is no answer → what a rubric calls it."""
_LEAST_WORDS = 8
"""Fewer words may be repeated without being nonsense."""


def no_answer(text: str) -> str:
    """Say why a text is no answer that could be rated; empty if it is one."""
    if looks_like_refusal(text):
        return _REFUSED
    words = re.findall(r"\w+", text.lower())
    if len(words) >= _LEAST_WORDS and len(set(words)) <= len(words) // 3:
        return _REPEATED
    return ""


def _fenced(text: str) -> str:
    """Remove marks that could close the fence around the text."""
    return re.sub(r"<{2,}|>{2,}", "…", text)
