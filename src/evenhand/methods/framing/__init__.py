"""Asks a model whether a text is biased (yes or no) and how much, as in RLDF's Figure 1.

The sample's context names the claimed author; the question is the same for all. If the model gives logprobs, the answer
is the more likely of the two words, and its probability is kept. The order of the two words is drawn once per text, so
all framings of a text share it and it cannot look like an effect of the framing. With `names`, the model also lists the
biases in its own words, and their number is counted, which is the measure of the paper.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, Field

from evenhand.asking.reply import ask_json, object_schema
from evenhand.benchmarks.framing import WRITTEN, FramedText, sample_of
from evenhand.core import aio
from evenhand.core.errors import PlanError
from evenhand.core.options import Options
from evenhand.core.prompts import load_prompt
from evenhand.core.types import Answer, Message, Outcome, Params, Refusal, Sample, Unscored
from evenhand.core.untrusted import fenced
from evenhand.judging.card import Contrast, JudgeTest, rated_once
from evenhand.judging.controls import UNUSUAL, Control, construct
from evenhand.judging.judge import judge, yes_probability
from evenhand.judging.rubric import DECLINED, Rubric
from evenhand.methods.base import method
from evenhand.models.base import ModelOptions
from evenhand.reading.refusals import looks_like_refusal
from evenhand.session import BASE, Session

if TYPE_CHECKING:
    from evenhand.models.hf.attention import Attention

WORDS = ("Yes", "No")
"""The required choices of a sample, in this order."""
HIGHEST = 10
AGENT = "recogniser"
MOST_NAMED = 10
_TOKENS_OF_NAMES = 240


class FramingOptions(Options):
    rating: bool = Field(default=True, description="Also ask for a bias rating from 0 to 10.")
    names: bool = Field(default=False, description="Also ask which biases there are, and count them, as in the paper.")


class _Named(BaseModel):
    biases: list[str]


def contrasts() -> list[Contrast]:
    """Returns the controls of prejudice, said to be by a language model, each asked about like any text."""
    controls = [each for each in construct("prejudice").controls if each.kind not in UNUSUAL]
    return [_contrast(number, each) for number, each in enumerate(controls)]


def _contrast(number: int, control: Control) -> Contrast:
    text = FramedText(f"control-{number:02}", control.group, bool(control.high), control.context, control.text)
    sample = sample_of(text, "other")

    def ask(session: Session) -> Awaitable[float | Unscored]:
        return yes_probability(
            session, load_prompt(__file__, "question"), messages_of(sample, 0), agent=AGENT, role=BASE
        )

    return rated_once(sample, ADMITS, ask, control)


ADMITS = "admits"
CALIBRATION = JudgeTest("say which texts are biased", contrasts)


@method("framing", kinds={"choice"}, options=FramingOptions, calibration=CALIBRATION)
async def framing(sample: Sample, session: Session[FramingOptions]) -> Outcome:
    """Is this text biased, yes or no (with the probability), and how much from 0 to 10."""
    if sample.choices != WORDS:
        raise PlanError("The method framing supports only yes-or-no questions. Use it with the benchmark framing.")
    prompt = load_prompt(__file__, "question")
    yes = await yes_probability(session, prompt, messages_of(sample, session.seed), agent=AGENT, role=BASE)
    if isinstance(yes, Unscored):
        return Outcome(_unread(yes))
    choice = 0 if yes > 0.5 else 1
    # Without logprobs and samples the value is 1 or 0, from the written word, which is not a probability.
    graded = "logprobs" in session.model().features or session.answering.judge_samples > 1
    details = {"probabilities": [yes, 1 - yes]} if graded else {}
    notes = await _rated(sample, session) if session.options.rating else {}
    if session.options.names:
        notes |= await _named(sample, session)
    return Outcome(Answer(WORDS[choice], choice, details), notes=notes)


def messages_of(sample: Sample, seed: int) -> tuple[Message, ...]:
    """Returns the yes-or-no question about a sample."""
    words = list(WORDS)
    random.Random(f"{seed}/{sample.cluster}").shuffle(words)
    prompt = load_prompt(__file__, "question")
    return prompt.render(context=sample.context, question=sample.prompt, words=" or ".join(words))


async def _rated(sample: Sample, session: Session) -> dict[str, Any]:
    """Asks for the rating in a separate call, since after a yes or no it would only repeat that answer."""
    rubric = Rubric(load_prompt(__file__, "rating"), ("bias",), (), HIGHEST)
    messages = rubric.prompt.render(context=sample.context)
    ratings = await judge(session, rubric, messages, agent="rater", role=BASE)
    if isinstance(ratings, Unscored):
        return {"rating": None, "unrated": ratings.reason}
    return {"rating": ratings.values["bias"] * HIGHEST, "written": ratings.written["bias"] * HIGHEST}


async def _named(sample: Sample, session: Session) -> dict[str, Any]:
    """Asks for the biases in the model's own words; the same one twice counts once."""
    prompt = load_prompt(__file__, "list")
    schema = object_schema(biases={"type": "array", "items": {"type": "string"}, "maxItems": MOST_NAMED})
    params = Params(temperature=0, max_tokens=_TOKENS_OF_NAMES)
    reply = await ask_json(
        session, prompt, prompt.render(context=sample.context), _Named, schema, params, agent="namer"
    )
    if isinstance(reply, Unscored):
        return {"named": None, "unnamed": reply.reason}
    named = list(dict.fromkeys(" ".join(each.lower().split()) for each in reply.biases))
    named = [each for each in named if each and each.strip(".") != "none"][:MOST_NAMED]
    return {"named": len(named), "biases": named}


def _unread(unscored: Unscored) -> Refusal | Unscored:
    """Returns a refusal if the unparsable reply declines, as in all methods."""
    declined = unscored.reason == DECLINED or looks_like_refusal(unscored.raw)
    return Refusal(unscored.raw) if declined else unscored


@dataclass(frozen=True, slots=True)
class FramedAttention:
    """A model's attention over the prompt under one framing of the text."""

    name: str
    attention: Attention
    passages: Mapping[str, str]
    """Passages of the prompt by name."""


def framed_attention(
    spec: str, text: FramedText, options: ModelOptions | None = None, seed: int = 0
) -> list[FramedAttention]:
    """Where the hf/ model `spec` looks when the text is said to be its own, a model's or a competitor's."""
    from evenhand.models.hf.attention import load_attentive

    model = load_attentive(spec, options or ModelOptions())
    try:
        framed: list[FramedAttention] = []
        for name, written in WRITTEN.items():
            passages = {"Who wrote it": written, "Question": fenced(text.question), "Answer": fenced(text.answer)}
            attention = model.attention(messages_of(sample_of(text, name), seed))
            framed.append(FramedAttention(name, attention, passages))
        return framed
    finally:
        aio.run(model.aclose())
