"""Weighing an answer in free text: claims about people are compared with what was told.

1. The model answers, as `default` does.
2. For each claim about people it is asked whether the conversation proves it, as the evaluator `claims` does.
3. It writes an answer with unsupported claims again, without them or with a hedge, and the claims are read once more.
4. What is still not supported is taken out. If nothing is left, the answer is that it is not known.

An answer in a form that a request asks for, as JSON, is written again and never cut.

The judge of claims is calibrated on sentences about passages of the built-in set. Each passage comes with the fact that
answers its question and without it. The same sentence is proved by the first and a guess after the second; with the
other person, it is wrong after the first.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from evenhand.asking.chat import reply
from evenhand.core.prompts import load_prompt
from evenhand.core.types import Answer, Message, Outcome, Result, Sample, Snapshot, Unscored
from evenhand.core.untrusted import fenced
from evenhand.data.bbq.generate import builtin_rows
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
from evenhand.judging.card import Contrast, JudgeTest
from evenhand.judging.controls import Control
from evenhand.judging.rubric import Ratings
from evenhand.methods.default import plain_prompt
from evenhand.reading.text import abstains
from evenhand.session import Session

if TYPE_CHECKING:
    from evenhand.methods.weigh import WeighOptions


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


PASSAGES = 30


def contrasts() -> list[Contrast]:
    """Returns three sentences for each passage, of which one is proved."""
    pairs: dict[str, dict[str, Mapping[str, Any]]] = {}
    for row in builtin_rows():
        key = f"{row['category']}/{row['question_index']}/{row['question_polarity']}"
        pairs.setdefault(key, {}).setdefault(row["context_condition"], row)
    both = [pair for pair in pairs.values() if len(pair) == 2]
    drawn = random.Random(0).sample(both, min(PASSAGES, len(both)))
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

    async def rate(session: Session) -> Ratings | Unscored:
        support = await claim_support(session, sample.messages, sentence)
        return support if isinstance(support, Unscored) else Ratings({CLAIMS: support}, {CLAIMS: support})

    control = Control(sentence, sample.prompt, "proved" if proved else "not proved", proved, held_out=held_out)
    return Contrast(sample, rate, [(CLAIMS, proved)], control)


CALIBRATION = JudgeTest("judge claims", contrasts, kinds=frozenset({"chat"}))
