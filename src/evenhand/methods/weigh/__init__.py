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

from dataclasses import asdict, replace
from typing import Literal

from pydantic import Field

from evenhand.asking.choice import choose
from evenhand.core.options import Text
from evenhand.core.types import Answer, Outcome, Refusal, Sample, Snapshot
from evenhand.judging.card import Calibrated
from evenhand.methods.base import Fitted, method
from evenhand.methods.default import plain_prompt
from evenhand.methods.weigh.signals import FITTED, PRIOR, load_weights, read_evidence
from evenhand.methods.weigh.text import CALIBRATION, weigh_text
from evenhand.reading.text import abstains, unread
from evenhand.session import Session


class WeighOptions(Calibrated):
    """Options of `weigh`."""

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
