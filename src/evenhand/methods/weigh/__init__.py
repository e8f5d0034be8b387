"""Weighing the evidence: short questions about the passage decide whether to answer, and whom to name.

1. The model is asked for the letter in several orders of the options, under an instruction to be fair.
2. For each person it is asked whether the passage proves this answer; with more calls, also whether the passage says
   what the answer is, whether one would have to guess, which person the passage gives more reason for, and step 1
   once more with neutral labels in place of the people.
3. Each reply is one token. Its probabilities are combined by a small logistic model, whose weights are fitted to the
   model by `evenhand models calibrate`.
4. If the passage probably does not answer the question, the answer is the option of not knowing; else it is the person
   with the better evidence.

Models rank evidence better than they act on it, so a few weights do what instructions do not. The first snapshot has
the answer that the letters alone would give.

A question without an option of not knowing is answered by step 2 alone. A question without a passage is answered as
`default` does, in several orders of the options: there is no evidence to weigh, and nothing makes it abstain. Answers
in free text are weighed claim by claim (`text.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Literal

from pydantic import Field

from evenhand.asking.chat import reply
from evenhand.asking.choice import choose
from evenhand.core.options import Text
from evenhand.core.prompts import load_prompt
from evenhand.core.types import Answer, Message, Outcome, Refusal, Result, Sample, Snapshot, Unscored
from evenhand.core.untrusted import fenced
from evenhand.data.bbq.generate import drawn_passages
from evenhand.evaluators.claims import (
    CLAIMS,
    Claim,
    claim_support,
    claims_in,
    leaves_open,
    read_claims,
    sentences,
    unsupported,
)
from evenhand.judging.card import Calibrated, Contrast, JudgeTest, rated_once
from evenhand.judging.controls import Control
from evenhand.methods.base import Fitted, method
from evenhand.methods.default import plain_prompt
from evenhand.methods.weigh.signals import FITTED, PRIOR, load_weights, read_evidence
from evenhand.reading.text import abstains, unread
from evenhand.session import Session

# --- weighing an answer in free text: claims about people are compared with what was told ---
# 1. The model answers, as `default` does.
# 2. For each claim about people it is asked whether the conversation proves it, as the evaluator `claims` does.
# 3. It writes an answer with unsupported claims again, without them or with a hedge, and the claims are read once
#   more.
# 4. What is still not supported is taken out. If nothing is left, the answer is that it is not known.
#
# An answer in a form that a request asks for, as JSON, is written again and never cut.
#
# The judge of claims is calibrated on sentences about passages of the built-in set. Each passage comes with the fact
# that answers its question and without it. The same sentence is proved by the first and a guess after the second;
# with the other person, it is wrong after the first.

NOT_TOLD = "From what was told, this is not known."
_BLANKS = re.compile(r"[ \t]{2,}")
_BLANK_LINES = re.compile(r"\n{3,}")


async def weigh_text(sample: Sample, session: Session[WeighOptions]) -> Outcome:
    """The answer to a conversation, without claims about people that nothing in it supports."""
    session = replace(session, answering=replace(session.answering, judge_samples=session.options.samples))
    first = await reply(session, plain_prompt("chat"), sample.messages)
    before = Snapshot(0, first)
    if not isinstance(first, Answer):
        return Outcome(first, stop="refused", snapshots=(before,))
    found = await read_claims(session, sample.messages, first.text)
    if isinstance(found, Unscored):
        return Outcome(first, stop="unjudged", snapshots=(before,))
    weak = unsupported(found, session.options.claims)
    notes = {"claims": [[each.text, each.support] for each in found]}
    if not weak:
        return Outcome(first, stop="supported" if found else "no_claims", snapshots=(before,), notes=notes)
    prompt = load_prompt(__file__, "revise")
    listed = "\n".join(f"- {each.text}" for each in weak)
    asked = (*sample.messages, *prompt.render(reply=fenced(first.text), claims=fenced(listed)))
    kept = await reply(session, prompt, asked, agent="reviser")
    left = await _weak(session, sample, kept)
    if left is None or len(left) >= len(weak):
        kept, left = first, weak
    result = _cut(kept, left, sample.messages) if left and session.response_format is None else kept
    shown = {"unsupported": [each.text for each in weak], "taken out": [each.text for each in left]}
    stop = "cut" if left else "revised"
    return Outcome(result, stop=stop, snapshots=(before, Snapshot(1, result, shown)), notes=notes)


async def _weak(session: Session[WeighOptions], sample: Sample, result: Result) -> list[Claim] | None:
    """The unsupported claims of an answer; None if there is no answer, or it cannot be judged."""
    if not isinstance(result, Answer):
        return None
    found = await read_claims(session, sample.messages, result.text)
    return None if isinstance(found, Unscored) else unsupported(found, session.options.claims)


def _cut(answer: Result, weak: Sequence[Claim], messages: Sequence[Message]) -> Result:
    """The answer without these claims; if none is left, it says that the conversation does not say."""
    if not isinstance(answer, Answer):
        return answer
    text = answer.text
    for sentence in (sentence for each in weak for sentence in sentences(each.text)):
        text = text.replace(sentence, "", 1)
    text = _BLANK_LINES.sub("\n\n", _BLANKS.sub(" ", text)).strip()
    if not claims_in(text, messages) and not any(map(leaves_open, sentences(text))):
        text = f"{text} {NOT_TOLD}".strip()
    return replace(answer, text=text)


def contrasts() -> list[Contrast]:
    """Returns three sentences for each passage, of which one is proved."""
    drawn = drawn_passages("neg", "nonneg")
    return [
        each
        for number, pair in enumerate(drawn)
        for each in _of_passage(pair["ambig"], pair["disambig"], held_out=number % 2 == 1)
    ]


def _of_passage(vague: Mapping[str, Any], clear: Mapping[str, Any], *, held_out: bool) -> Iterator[Contrast]:
    right = clear[f"ans{clear['label']}"]
    people = [clear[f"ans{place}"] for place in range(3) if not abstains(clear[f"ans{place}"])]
    for person in people:
        yield _contrast(clear, person, person == right, held_out=held_out)
    guessed = [vague[f"ans{place}"] for place in range(3) if not abstains(vague[f"ans{place}"])]
    yield _contrast(vague, guessed[0], False, held_out=held_out)


def _contrast(row: Mapping[str, Any], person: str, proved: bool, *, held_out: bool) -> Contrast:
    sentence = f"{person} {row['question'].removeprefix('Who ').rstrip('?')}."
    sample = Sample("contrast", "chat", f"{row['context']} {row['question']}")
    control = Control(sentence, sample.prompt, "proved" if proved else "not proved", proved, held_out=held_out)
    return rated_once(sample, CLAIMS, lambda session: claim_support(session, sample.messages, sentence), control)


CALIBRATION = JudgeTest("judge claims", contrasts, kinds=frozenset({"chat"}))


class WeighOptions(Calibrated):
    calls: Literal[3, 6, 12] = Field(
        default=6, description="Calls per question with two people; more read more signals."
    )
    told: float = Field(
        default=0.5, ge=0, le=1, description="Abstains if the passage answers with a probability below this."
    )
    claims: float = Field(
        default=0.5, ge=0, le=1, description="In free text, a claim about people goes if it is unsupported with this."
    )
    samples: int = Field(default=5, ge=1, le=100, description="Replies sampled per call from a model without logprobs.")
    weights: Text = Field(
        default=FITTED,
        description="fitted (those of this model, else prior), prior, a file, or the model they were fitted on.",
    )


def _fitted(options: WeighOptions, spec: str) -> Fitted:
    weights = load_weights(options.weights, spec, options.calls)
    caveat = (
        f"The weights of weigh were not fitted to {spec}; `evenhand models calibrate {spec}` fits them in about 2,900 "
        f"short calls, or half as many with --calls 6"
        if weights.name == PRIOR and options.weights == FITTED
        else ""
    )
    return Fitted(f"weights of weigh for {spec} ({options.weights})", weights.hash, caveat)


@method(
    "weigh",
    kinds={"choice", "chat"},
    roles=("base", "judge"),
    options=WeighOptions,
    fitted=_fitted,
    calibration=CALIBRATION,
)
async def weigh(sample: Sample, session: Session[WeighOptions]) -> Outcome:
    """Weigh the evidence: short questions about the passage decide whether to answer, and whom to name."""
    options = session.options
    if sample.kind == "chat":
        return await weigh_text(sample, session)
    if not sample.has_passage:
        plain = replace(session, answering=replace(session.answering, orders=min(options.calls, len(sample.choices))))
        return Outcome(await choose(plain, sample, plain_prompt("choice")), stop="no_passage")
    if unscored := unread(f"{sample.context} {sample.prompt}"):
        return Outcome(unscored)
    weights = load_weights(options.weights, session.model().spec, options.calls)
    unknown = _unknown(sample)
    readings = await read_evidence(session, sample, unknown, options.calls, options.samples)
    if isinstance(readings, Refusal):
        return Outcome(readings, stop="refused")
    signals = readings.signals(options.calls)
    who = weights.who(signals)
    told = 1.0 if unknown is None else weights.told(signals)
    chosen = unknown if unknown is not None and told < options.told else readings.people[who.index(max(who))]
    first, result = (
        Answer(sample.choices[index], index, {"reading": "weighed"}) for index in (readings.likeliest, chosen)
    )
    ranked = sorted(zip(who, readings.people, strict=True), reverse=True)
    shown = {
        "told": f"{told:.2f}",
        "who": ", ".join(f"{sample.choices[index]} {chance:.2f}" for chance, index in ranked),
        "weights": weights.name,
    }
    notes = {"told": told, "who": who, "readings": asdict(readings), "weights": [weights.name, weights.hash]}
    return Outcome(result, snapshots=(Snapshot(0, first), Snapshot(1, result, shown)), notes=notes)


def _unknown(sample: Sample) -> int | None:
    """The one option that says that it is not known."""
    found = [index for index, text in enumerate(sample.choices) if abstains(text)]
    return found[0] if len(found) == 1 else None
