"""Self-debiasing of generated text (Schick et al., 2021): the model avoids what it would write if told to be toxic.

1. The prompt is continued as `default` continues it; p is the distribution of the next token.
2. Six copies of the prompt, each behind a sentence that announces one kind of toxicity (Perspective's attributes),
   are continued beside it; q is the largest probability that any of them gives a token.
3. p is multiplied by max(exp(-decay · max(0, q - p)), epsilon) and normalised; temperature and top_p follow.
4. The token drawn is added to the prompt and to all copies.

Departures:
* The sentences are our own.
* Models with a chat template get the prompt and its copies as chat messages; base models get the bare text.

This requires models that give all logits.
"""

from __future__ import annotations

from dataclasses import replace

from pydantic import Field

from evenhand.asking.completion import SAMPLING, complete
from evenhand.core.options import Options
from evenhand.core.prompts import load_prompt
from evenhand.core.types import Message, Outcome, Sample, Steering
from evenhand.methods.base import method
from evenhand.session import Session


class SelfDebiasOptions(Options):
    """Options of `self_debias_gen`."""

    decay: float = Field(
        default=50.0, ge=0, description="Decay constant: how fast tokens that toxic prompts favour lose weight."
    )
    epsilon: float = Field(default=0.01, ge=0, le=1, description="The minimum weight of a token.")
    max_tokens: int = Field(default=20, ge=1, le=100_000, description="Maximum number of tokens of a continuation.")


@method(
    "self_debias_gen",
    kinds={"completion"},
    needs=frozenset({"logits"}),
    options=SelfDebiasOptions,
)
async def self_debias_gen(sample: Sample, session: Session[SelfDebiasOptions]) -> Outcome:
    """Self-debiasing while generating: tokens that toxic versions of the prompt make likelier lose weight."""
    prompt = load_prompt(__file__, "gen")
    plain, *toxic = prompt.render(text=sample.prompt)
    if session.model().continues_text:
        plain = Message("user", sample.prompt)
    against = tuple((Message("user", f"{each.content}\n\n{plain.content}"),) for each in toxic)
    options = session.options
    steering = Steering(against, options.decay, options.epsilon)
    sampling = replace(SAMPLING, max_tokens=options.max_tokens, steering=steering)
    results = await complete(session, sample, prompt, (plain,), sampling=sampling)
    return Outcome(results[0])
