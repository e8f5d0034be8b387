"""Asking a multiple-choice question: shuffled letters, read from logprobs, constrained output or text.

The order of the options is a seeded permutation per sample, so that position bias cannot pass for an opinion; the shown
order and the chosen position are recorded, so that position bias can be measured.

Given texts are compared by their likelihood instead: no question is asked, and nothing is generated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from statistics import fmean
from typing import Any

from evenhand.asking.reply import SAMPLING, ask_and_read, ask_and_read_all, declined
from evenhand.core.errors import PlanError
from evenhand.core.prompts import Prompt
from evenhand.core.types import Answer, Completion, Message, Outcome, Params, Refusal, Result, Sample, Unscored
from evenhand.models.base import Feature, log_likelihood
from evenhand.reading.refusals import looks_like_refusal
from evenhand.reading.text import LETTERS, letter_probabilities, read_letter
from evenhand.session import BASE, Session

LEAST_MASS = 0.25
"""The letters' least share of the next-token probability; below it the model was about to say something else."""
TEXT_TOKENS = 64

RenderQuestion = Callable[[str], Sequence[Message]]
"""Options as shown → the messages that ask the question."""


async def choose(
    session: Session,
    sample: Sample,
    prompt: Prompt,
    render: RenderQuestion | None = None,
    *,
    agent: str = "answerer",
    role: str = BASE,
) -> Result:
    """The model's choice among the sample's options, or why there is none.

    Without `render`, the prompt is rendered from the sample's context and question and the options.
    """
    if render is None:
        render = partial(_plain_question, prompt, sample)
    first = session.permutation(len(sample.choices))
    orders = [first[shift:] + first[:shift] for shift in range(min(session.answering.orders, len(first)))]
    results = [await _choose_once(session, sample, prompt, render, agent, role, order) for order in orders]
    return results[0] if len(results) == 1 else _combine(sample, results)


async def _choose_once(
    session: Session,
    sample: Sample,
    prompt: Prompt,
    render: RenderQuestion,
    agent: str,
    role: str,
    order: tuple[int, ...],
) -> Result:
    shown = [sample.choices[index] for index in order]
    messages = render(_lettered(shown))
    result: Result = Unscored("no reading of the answer is available")
    for reading in _readings(session, role, await session.features(role)):
        read = partial(_read_choice, reading, shown, order)
        result = await ask_and_read(
            session, prompt, messages, _params(reading, len(shown)), read, agent=agent, role=role
        )
        if not isinstance(result, Unscored):
            break
    return result


async def option_chances(
    session: Session,
    prompt: Prompt,
    render: RenderQuestion,
    shown: Sequence[str],
    samples: int,
    *,
    agent: str,
    role: str = BASE,
) -> list[float] | Refusal | Unscored:
    """The probability of each option as shown: by logprobs, else by its share among `samples` sampled replies."""
    messages = render(_lettered(shown))
    found: list[Result] = []
    if "logprobs" in await session.features(role):
        read = partial(_read_choice, "logprobs", shown, range(len(shown)))
        params = _params("logprobs", len(shown))
        found = [await ask_and_read(session, prompt, messages, params, read, agent=agent, role=role)]
    if "logprobs" not in session.model(role).features:  # the first reply may have shown that there are none
        reading = "constrained" if "schema" in session.model(role).features else "text"
        params = session.sampled(replace(_params(reading, len(shown)), temperature=SAMPLING, n=samples))
        read = partial(_read_choice, reading, shown, range(len(shown)))
        found = list(await ask_and_read_all(session, prompt, messages, params, read, agent=agent, role=role))
    answers = [each for each in found if isinstance(each, Answer)]
    if not answers:
        failed = [each for each in found if not isinstance(each, Answer)]
        return next((each for each in failed if isinstance(each, Refusal)), failed[0])
    votes = [each.details.get("probabilities") or _vote(each, len(shown)) for each in answers]
    return [fmean(each) for each in zip(*votes, strict=True)]


def _vote(answer: Answer, size: int) -> list[float]:
    return [float(index == answer.choice) for index in range(size)]


async def deliberate(
    session: Session,
    sample: Sample,
    first: Prompt,
    then: Prompt,
    params: Params,
    *,
    agent: str,
    made: str,
    wordy: bool = True,
) -> Outcome:
    """Two turns: free text first, then the choice in the same conversation; `made` names the text in the notes.

    `params` apply to the first turn, which shows the choices in the order of the question that follows. With `wordy`,
    a first turn that reads like a refusal counts as one.
    """
    question = first.render(context=sample.context, question=sample.prompt, options=shown_options(session, sample))
    said = await ask_and_read(session, first, question, params, partial(_read_text, made, wordy), agent=agent)
    if not isinstance(said, str):
        return Outcome(said, stop="refused" if isinstance(said, Refusal) else f"no_{made}")
    conversation = (*question, Message("assistant", said))
    result = await choose(session, sample, then, lambda options: (*conversation, *then.render(options=options)))
    return Outcome(result, notes={made: said})


def _read_text(made: str, wordy: bool, completion: Completion) -> str | Refusal | Unscored:
    if refusal := declined(completion):
        return refusal
    if wordy and looks_like_refusal(completion.text):
        return Refusal(completion.text)
    return completion.text if completion.text.strip() else Unscored(f"the {made} is empty")


def shown_options(session: Session, sample: Sample) -> str:
    """The options in the (first) order in which the question shows them, for turns that come before it."""
    return _lettered([sample.choices[index] for index in session.permutation(len(sample.choices))])


def _lettered(shown: Sequence[str]) -> str:
    return "\n".join(f"{LETTERS[i]}) {text}" for i, text in enumerate(shown))


def _plain_question(prompt: Prompt, sample: Sample, options: str) -> Sequence[Message]:
    return prompt.render(context=sample.context, question=sample.prompt, options=options)


def _readings(session: Session, role: str, features: frozenset[Feature]) -> list[str]:
    """The ways to read an answer that this model supports, best first; later ones are tried only if needed."""
    wanted = session.answering.reading
    available = [
        *(["logprobs"] if "logprobs" in features else []),
        *(["constrained"] if "schema" in features else []),
        "text",
    ]
    if wanted == "auto":
        return available
    if wanted not in available:
        raise PlanError(f"{session.model(role).spec} does not offer the reading {wanted!r}; choose one of {available}.")
    return [wanted]


def _params(reading: str, count: int) -> Params:
    if reading == "logprobs":
        return Params(temperature=0, max_tokens=1, logprobs=20)
    if reading == "constrained":
        schema = {
            "type": "object",
            "properties": {"answer": {"type": "string", "enum": list(LETTERS[:count])}},
            "required": ["answer"],
            "additionalProperties": False,
        }
        return Params(temperature=0, max_tokens=TEXT_TOKENS, schema=schema)
    return Params(temperature=0, max_tokens=TEXT_TOKENS)


def _read_choice(reading: str, shown: Sequence[str], order: Sequence[int], completion: Completion) -> Result:
    if refusal := declined(completion):
        return refusal
    position, details = _read(reading, completion, shown)
    if position is None:
        if looks_like_refusal(completion.text):
            return Refusal(completion.text)
        why = f"no option could be read from the {reading} answer" if completion.text.strip() else "the answer is empty"
        return Unscored(why, completion.text)
    details |= {"reading": reading, "order": list(order), "position": position}
    if "probabilities" in details:
        details["probabilities"] = _by_choice(details["probabilities"], order)
    return Answer(shown[position], order[position], details)


def _read(reading: str, completion: Completion, shown: Sequence[str]) -> tuple[int | None, dict[str, Any]]:
    if reading != "logprobs":
        return read_letter(completion.text, shown), {}
    if not completion.logprobs:
        return None, {}
    probabilities, mass = letter_probabilities(completion.logprobs[0], len(shown))
    if mass < LEAST_MASS:
        return None, {}
    return probabilities.index(max(probabilities)), {"probabilities": probabilities, "mass": mass}


def _by_choice(probabilities: Sequence[float], order: Sequence[int]) -> list[float]:
    """Probabilities by shown position → by the sample's own order."""
    by_choice = [0.0] * len(order)
    for position, choice in enumerate(order):
        by_choice[choice] = probabilities[position]
    return by_choice


def _combine(sample: Sample, results: Sequence[Result]) -> Result:
    """One answer from several orders: the highest mean probability, else the plurality; a tie is Unscored."""
    answers = [result for result in results if isinstance(result, Answer)]
    if len(answers) < len(results):
        return next(result for result in results if not isinstance(result, Answer))
    size = len(sample.choices)
    mean = [0.0] * size
    for answer in answers:
        votes = answer.details.get("probabilities") or _vote(answer, size)
        mean = [total + vote / len(answers) for total, vote in zip(mean, votes, strict=True)]
    best = max(mean)
    winners = [index for index, value in enumerate(mean) if best - value < 1e-9]
    if len(winners) > 1:
        return Unscored("the orders of the options disagree", "; ".join(answer.text for answer in answers))
    positions = [answer.details["position"] for answer in answers]
    # Shares of votes are not probabilities: a benchmark would take log-odds of them.
    known = all("probabilities" in answer.details for answer in answers)
    details = {**answers[0].details, "probabilities" if known else "votes": mean, "positions": positions}
    if known:
        details["by_order"] = [answer.details["probabilities"] for answer in answers]
    return Answer(sample.choices[winners[0]], winners[0], details)


NO_PROMPT = Prompt("none", "", (), frozenset())
"""Recorded where a text is scored as it is."""


def compares(session: Session, sample: Sample) -> bool:
    """Whether the sample's texts are compared by their likelihood: the model can score them, and no reading is set."""
    model = session.model(BASE)
    # Likelihoods are read without messages, so they would not show what a system prompt does.
    able = "likelihood" in model.features and model.preamble is None
    return bool(sample.texts) and able and session.answering.reading == "auto"


async def likeliest(session: Session, sample: Sample, *, agent: str = "likelihood") -> Result:
    """The choice whose text is the likeliest; the details hold log-likelihoods and token counts of all of them.

    If all texts begin with the sample's context, it is a condition, and its tokens do not count.
    """
    params = Params(temperature=0.0, given=sample.texts)
    generation = await session.ask(NO_PROMPT, (), params, agent=agent)
    led = bool(sample.context) and all(text.startswith(sample.context) for text in sample.texts)
    after = len(sample.context) if led else 0
    found = [log_likelihood(each.logprobs or (), after) for each in generation.completions]
    if len(found) != len(sample.choices) or not all(count for _, count in found):
        return Unscored("the model gave no likelihood for one of the texts")
    best = max(range(len(found)), key=lambda place: found[place][0])
    details = {
        "reading": "likelihood",
        "log_likelihoods": [value for value, _ in found],
        "tokens": [count for _, count in found],
    }
    return Answer(sample.choices[best], best, details)
