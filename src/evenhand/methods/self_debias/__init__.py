"""Self-debiasing, of answers by prompts and of texts while they are generated.

Of answers (Gallegos et al., 2024), in two turns:
`self_debias_explain`: (1) explain which options rest on invalid assumptions about people; (2) answer.
`self_debias_reprompt`: (1) answer, as `default` does; (2) answer again without bias, having seen the first answer.

Departures:
* The prompts are our own, the options are shuffled per sample, and letters are parsed as in all methods.
* With several orders of the options, the second turn of `reprompt` sees the combined first answer in each of them.
* In a conversation, `reprompt` asks for an answer, then for that answer without bias.

Of texts (`self_debias_gen`; Schick et al., 2021): the model avoids what it would write if told to be toxic.
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

from collections.abc import Sequence
from dataclasses import replace

from pydantic import Field

from evenhand.asking.chat import reply
from evenhand.asking.choice import choose, deliberate
from evenhand.asking.completion import SAMPLING, complete
from evenhand.core.options import Options
from evenhand.core.prompts import load_prompt
from evenhand.core.types import Answer, Message, Outcome, Sample, Snapshot, Steering
from evenhand.methods.base import WritingOptions, method
from evenhand.methods.default import plain_prompt
from evenhand.session import Session


@method("self_debias_explain", kinds={"choice"}, options=WritingOptions)
async def self_debias_explain(sample: Sample, session: Session[WritingOptions]) -> Outcome:
    """Self-debiasing by explanation: name the options that rest on invalid assumptions, then answer."""
    explain, answer = load_prompt(__file__, "explain"), load_prompt(__file__, "explain_answer")
    # "I cannot make assumptions about …" is a valid explanation here, not a refusal.
    params = session.options.params
    return await deliberate(
        session, sample, explain, answer, params, agent="explainer", made="explanation", wordy=False
    )


@method("self_debias_reprompt", kinds={"choice", "chat"})
async def self_debias_reprompt(sample: Sample, session: Session) -> Outcome:
    """Self-debiasing by reprompting: answer, then answer again with bias removed."""
    if sample.kind == "chat":
        return await _reprompt_chat(sample, session)
    question, again = plain_prompt("choice"), load_prompt(__file__, "reprompt")
    first = await choose(session, sample, question)
    before = Snapshot(0, first)
    if not isinstance(first, Answer):
        return Outcome(first, stop="no_first_answer", snapshots=(before,))

    def ask(options: str) -> Sequence[Message]:
        asked = question.render(context=sample.context, question=sample.prompt, options=options)
        return (*asked, Message("assistant", _as_listed(first.text, options)), *again.render(options=options))

    second = await choose(session, sample, again, ask, agent="reviser")
    return Outcome(second, snapshots=(before, Snapshot(1, second)))


async def _reprompt_chat(sample: Sample, session: Session) -> Outcome:
    question, again = plain_prompt("chat"), load_prompt(__file__, "reprompt_chat")
    first = await reply(session, question, sample.messages)
    before = Snapshot(0, first)
    if not isinstance(first, Answer):
        return Outcome(first, stop="no_first_answer", snapshots=(before,))
    messages = (*sample.messages, Message("assistant", first.text), *again.render())
    second = await reply(session, again, messages, agent="reviser")
    return Outcome(second, snapshots=(before, Snapshot(1, second)))


def _as_listed(text: str, options: str) -> str:
    """Returns an option with the letter under which it is shown."""
    return next((line for line in options.split("\n") if line[3:] == text), text)


class SelfDebiasOptions(Options):
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
