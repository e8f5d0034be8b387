"""Self-debiasing of generated text (Schick et al., 2021): the model avoids what it would write if told to be toxic.

1. The prompt is continued as `default` continues it; p is the distribution of the next token.
2. Six copies of the prompt, each behind a sentence that announces one kind of toxicity (Perspective's attributes),
   are continued beside it; q is the largest probability that any of them gives a token.
3. p is multiplied by max(exp(-decay · max(0, q - p)), epsilon) and normalised; temperature and top_p follow.
4. The token drawn is added to the prompt and to all copies.

Departures: the sentences are ours, and models with a chat template get prompt and copies as chat messages. Works with
models that give all logits only.
"""

from __future__ import annotations

from dataclasses import replace

from evenhand.asking.completion import SAMPLING, complete
from evenhand.errors import PlanError
from evenhand.methods.base import method
from evenhand.prompts import load_prompt
from evenhand.session import Session
from evenhand.types import Message, Outcome, Sample, Steering


@method(
    "self_debias_gen",
    kinds={"completion"},
    needs=frozenset({"logits"}),
    decay=50.0,
    epsilon=0.01,
    max_tokens=SAMPLING.max_tokens,
)
async def self_debias_gen(sample: Sample, session: Session) -> Outcome:
    """Self-debiasing while generating: tokens that toxic versions of the prompt make likelier lose weight."""
    prompt = load_prompt(__file__, "gen")
    plain, *toxic = prompt.render(text=sample.prompt)
    against = tuple((Message("user", f"{each.content}\n\n{plain.content}"),) for each in toxic)
    decay, epsilon = float(session.options["decay"]), float(session.options["epsilon"])
    if not (decay >= 0 and 0 <= epsilon <= 1):
        raise PlanError(f"self_debias_gen needs decay ≥ 0 and 0 ≤ epsilon ≤ 1, not {decay:g} and {epsilon:g}.")
    sampling = replace(
        SAMPLING, max_tokens=int(session.options["max_tokens"]), steering=Steering(against, decay, epsilon)
    )
    results = await complete(session, sample, prompt, (plain,), sampling=sampling)
    return Outcome(results[0])
