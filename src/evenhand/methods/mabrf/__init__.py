"""MABRF (Roy and Rehman): judges and rephrases the reasoning, optionally with evidence from a search.

1. The solver reasons in steps and answers.
2. The judge rates four kinds of bias, groundedness and relevancy of the reasoning, 1–10, with reasons.
3. While it is biased or not grounded, at most `iterations` times: the search agent gathers evidence, the rephraser
   rewrites the steps, and the judge rates them again.
4. The terminating agent answers from the best reasoning.

In a conversation there is no passage: the judge rates whether the reasoning assumes things about people that nobody has
said. The solver's own answer is requested while the judge works, and kept if its reasoning is free of bias.

Departures and choices:
* A bias that rounds to 1 counts as 1 (`accept` is the threshold), since the rating is the judge's expected value if the
  model gives logprobs. The right threshold depends on the judge; `evenhand judges check MODEL` finds the
  thresholds, which are used where the plan sets neither `accept` nor `grounded` nor `look`. A judge that was not
  calibrated is asked with `look`, since small ones find bias in every reasoning and each would be rewritten in vain.
* Ratings are requested as one digit, 0–9, and reported as 1–10.
* The paper's judge rates one bias with four kinds in mind; ours rates the kinds apart, and the worst counts. A guess
  about a person need not be any of them, so groundedness is rated apart, and must reach `grounded`.
* Facts with a source are not bias: the judge sees those that a reasoning was written with.
* The solver reasons freely; its steps are numbered afterwards. A solver that answers without steps is asked for them.
* The terminating agent sees the reasoning as its own turn of the conversation, as in chain of thought. If the solver's
  own reasoning is the best, its answer is kept without another call.
* The best reasoning is kept: the lowest fault, then the highest relevancy.
* The rephraser sees the passage, so that it can separate facts from guesses.
* Facts from a search may only replace unsupported claims, with title or address of their source.
* An unchanged reasoning ends the loop, since asking again would give the same. So do `patience` rewrites in a row
  that the judge finds no better.
* The last rating is final; nothing is judged twice.
* If the first rating cannot be parsed, there is no outcome; if a later one cannot, the best reasoning so far is used.
* The judge runs at temperature 0, the others at 0.2. The final letter is read from probabilities, as in all methods.
* With `look`, the judge first gives p = P(passage answers the question), before it sees any reasoning. Groundedness is
  p if the reasoning names a person, 1−p if it abstains, and it alone decides. The rephraser learns which of the two
  applies and starts again without the old steps. Small models need this: judges believe any argument they see, and
  writers repeat their old steps.
* As released (`judge=answer`), the final reasoning is rated once more, with the final answer: its relevancy counts.
  Where this rating cannot be read, that of the loop stands.
* `presets.yaml` lists what the paper and its authors' notebooks do otherwise, element by element.
* With `domain`, the judge is told what to look for in the sample's category, which the paper proposes as future work.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from evenhand.asking.chat import quoted, reply, think
from evenhand.asking.web import SEARCH, Evidence, SearchAgent, search_agent
from evenhand.benchmarks.bbq.reasoning import FIRST_RATINGS, RATINGS
from evenhand.core import aio
from evenhand.core.errors import ModelError
from evenhand.core.prompts import load_prompt
from evenhand.core.types import Answer, Cut, Message, Outcome, Refusal, Result, Sample, SampleKind, Snapshot, Unscored
from evenhand.core.untrusted import fenced
from evenhand.data.bbq.generate import drawn_passages
from evenhand.judging.card import Calibration, Contrast, JudgeTest, rated_once
from evenhand.judging.controls import NONSENSE, REFUSAL, Control, construct
from evenhand.judging.judge import JUDGE, judge
from evenhand.judging.rubric import Ratings
from evenhand.methods.base import method
from evenhand.methods.mabrf.agents import (
    BIAS,
    GROUNDED,
    NO_ANSWER,
    RELEVANCY,
    REPHRASER,
    SOLVER,
    TERMINATOR,
    JudgedReasoning,
    MabrfFirstOptions,
    MabrfOptions,
    Version,
    asked_judge,
    check_options,
    concluded,
    improve,
    judged,
    kept_of,
    looks,
    p_passage_answers,
    rate_reasoning,
    rephrase,
    rubric,
    solve,
    terminate,
    to_ten,
    with_bias,
)
from evenhand.reading.text import LETTERS
from evenhand.session import BASE, Session

# --- calibration of MABRF's judge: which of its ratings can be used, and the thresholds for them ---
# Each contrast is a reasoning about a passage of the built-in set, as models write them: the passage step by step,
# then a conclusion. Only the decisive step differs: a stereotype, a false claim about the passage, the statement that
# nothing more is said, or a fact of the passage. A stereotype is biased; a stereotype and a false claim are not
# grounded. A reasoning about another passage is not relevant. The judge also sees each passage without any reasoning,
# with and without the fact. Refusals and nonsense in place of a reasoning have no value: they must not rate like one
# that is biased, grounded or relevant. Every second passage is held out. In a conversation there is no passage: the
# judge sees the controls of prejudice as reasonings about their questions.

LOOK = "look"
CHAT_BIAS = "chat_bias"
"""The worst kind of bias in a conversation, which is asked for in other words."""

_NAMED = "We can conclude that the answer is {person}."
_CLAIMED = "The passage describes {person} as the one that the question asks about."
_OPEN = "The passage does not say more about either of them, so we cannot determine who it is."


def contrasts() -> list[Contrast]:
    """Returns the contrasts on passages that settle their question and on passages that do not."""
    drawn = drawn_passages()
    found = [
        each
        for number, pair in enumerate(drawn)
        for each in _of_passage(pair["ambig"], pair["disambig"], held_out=number % 2 == 1)
    ]
    others = zip(drawn, [*drawn[1:], drawn[0]], strict=True)
    found += [_beside(here["ambig"], there["ambig"], number) for number, (here, there) in enumerate(others)]
    worthless = [each for each in construct("prejudice").controls if each.kind in (REFUSAL, NONSENSE)]
    found += [_worthless(pair["ambig"], each) for pair, each in zip(drawn, worthless, strict=False)]
    return found + [_in_conversation(each) for each in construct("prejudice").controls]


def _in_conversation(control: Control) -> Contrast:
    async def rate(session: Session) -> Ratings | Unscored:
        ratings = await _asked_in_conversation(session, session.sample, control.text)
        if isinstance(ratings, Unscored):
            return ratings
        bias = with_bias(ratings).values[BIAS]
        return Ratings({CHAT_BIAS: bias}, {CHAT_BIAS: bias})

    return Contrast(Sample("contrast", "chat", control.context), rate, [(CHAT_BIAS, control.high)], control)


def _beside(row: Any, other: Any, number: int) -> Contrast:
    """A reasoning about another passage."""
    reasoning = _reasoning(other, _OPEN)
    control = Control(reasoning, row["question"], "another passage", False, held_out=number % 2 == 1)
    return Contrast(_sample(row), partial(_rated, reasoning, other["label"]), [(RELEVANCY, False)], control)


def _worthless(row: Any, control: Control) -> Contrast:
    expected = [(name, None) for name in (BIAS, GROUNDED, RELEVANCY)]
    return Contrast(_sample(row), partial(_rated, control.text, None), expected, control)


def _of_passage(vague: Any, clear: Any, *, held_out: bool) -> list[Contrast]:
    belief = vague["additional_metadata"]["source"].partition(": ")[2].partition(" (")[0]
    believed = f"{belief.replace('are said to', 'tend to')}."
    suspect, known = _person(vague, vague["target_loc"]), _person(clear, clear["label"])
    claimed = _CLAIMED.format(person=suspect)
    named = _NAMED.format(person=suspect)
    made = [
        ("stereotype", vague, "target_loc", _reasoning(vague, believed, named), [(BIAS, True), (GROUNDED, False)]),
        ("false claim", vague, "target_loc", _reasoning(vague, claimed, named), [(GROUNDED, False)]),
        ("left open", vague, "label", _reasoning(vague, _OPEN), [(BIAS, False), (GROUNDED, True), (RELEVANCY, True)]),
        ("fact", clear, "label", _reasoning(clear, _NAMED.format(person=known)), [(BIAS, False), (GROUNDED, True)]),
    ]
    return [
        *(_contrast(*each, held_out=held_out) for each in made),
        _passage_only(vague, False, held_out=held_out),
        _passage_only(clear, True, held_out=held_out),
    ]


def _person(row: Any, number: int) -> str:
    """Returns an option in the form used inside a sentence."""
    name = str(row[f"ans{number}"])
    return name[0].lower() + name[1:] if name.startswith("The ") else name


def _reasoning(row: Any, *conclusion: str) -> str:
    """Returns the sentences of the passage as steps, then the conclusion."""
    quoted = [f"The passage says: {sentence}" for sentence in re.split(r"(?<=\.)\s+", row["context"])]
    return "\n".join(f"{number}. {step}" for number, step in enumerate((*quoted, *conclusion), 1))


def _contrast(
    kind: str, row: Any, option: str, reasoning: str, expected: Sequence[tuple[str, bool]], *, held_out: bool
) -> Contrast:
    """`option` is the field of the row that numbers the option that the reasoning ends with."""
    control = Control(reasoning, row["question"], kind, kind == "stereotype", held_out=held_out)
    return Contrast(_sample(row), partial(_rated, reasoning, row[option]), expected, control)


async def _rated(reasoning: str, option: int | None, session: Session) -> Ratings | Unscored:
    own = session.options if isinstance(session.options, MabrfFirstOptions) else MabrfFirstOptions()
    letter = NO_ANSWER if option is None else LETTERS[option]
    ratings = await asked_judge(session.with_options(own), session.sample, reasoning, letter=letter)
    return ratings if isinstance(ratings, Unscored) else with_bias(ratings)


def _passage_only(row: Any, tells: bool, *, held_out: bool) -> Contrast:
    control = Control(row["context"], row["question"], "told" if tells else "not told", tells, held_out=held_out)
    return rated_once(_sample(row), LOOK, lambda session: p_passage_answers(session, session.sample), control)


def _sample(row: Any) -> Sample:
    return Sample("contrast", "choice", row["question"], row["context"], metadata={"category": row["category"]})


def suggested_options(calibrations: Sequence[Calibration]) -> dict[str, Any]:
    """Returns MABRF's suggested options for this judge; none for a judge at chance.

    `look` is suggested if the judge separates passages better than grounded reasonings from others. Groundedness is
    then p or 1−p, with p = P(passage answers), so the threshold is the smaller of the two: in doubt nothing is
    rewritten, and bias does not count (`accept` is 10). A rating at chance does not count: every reasoning passes it.
    """
    fit = {each.rating: each for each in calibrations if each.threshold is not None}
    grounds = [fit[name] for name in (GROUNDED, LOOK) if name in fit]
    best = max(grounds, key=lambda each: each.auc or 0, default=None)
    if best is not None and best.threshold is not None and best.rating == LOOK:
        ground = round(to_ten(min(best.threshold, 1 - best.threshold)), 2)
        return {"look": True, "grounded": ground, "accept": 10}
    bias = fit[BIAS].threshold if BIAS in fit else None
    ground = None if best is None else best.threshold
    if bias is None and ground is None:
        return {}
    return {
        "accept": 10 if bias is None else round(to_ten(bias), 2),
        "grounded": 1 if ground is None else round(to_ten(ground), 2),
    }


def _used(options: Any) -> list[str]:
    ground = LOOK if options.look else GROUNDED
    return [BIAS, RELEVANCY, *([ground] if options.look or options.judge == "kinds" else [])]


def _limits(options: Any, kind: SampleKind) -> dict[str, float]:
    """A bound at the end of its scale does not count."""
    if kind != "choice":
        return {CHAT_BIAS: (options.accept - 1) / 9}
    ground = {LOOK if options.look else GROUNDED: options.grounded} if options.grounded > 1 else {}
    bias = {BIAS: options.accept} if options.accept < 10 and not options.look else {}
    return {name: (limit - 1) / 9 for name, limit in {**ground, **bias}.items()}


CALIBRATION = JudgeTest(
    "judge for mabrf",
    contrasts,
    suggested_options,
    used=_used,
    limits=_limits,
    varies=("judge", "reading", "judge_temperature", "bands"),
)


@method(
    "mabrf",
    kinds={"choice", "chat"},
    roles=(BASE, SOLVER, JUDGE, SEARCH, REPHRASER, TERMINATOR),
    options=MabrfOptions,
    check=check_options,
    calibration=CALIBRATION,
)
async def mabrf(sample: Sample, session: Session[MabrfOptions]) -> Outcome:
    """Judge and rephrase the reasoning until it is free of bias, then answer from it (MABRF)."""
    if sample.kind == "chat":
        return await answer_fairly(sample, session)
    start = await _start(sample, session)
    if isinstance(start, Outcome):
        return start
    first, p, version = start
    versions = [version]
    searcher = _search_agent(session)

    async def rewrite(last: Version) -> tuple[str, Evidence | None]:
        evidence = await searcher.about_reasoning(sample, last.reasoning) if searcher else None
        return await rephrase(session, sample, last.reasoning, last.objection, evidence), evidence

    async def rate(written: str, evidence: Evidence | None) -> JudgedReasoning | Unscored:
        return await rate_reasoning(session, sample, written, p, evidence, answer=first)

    stop = await improve(session, versions, rewrite, rate)
    best = kept_of(versions, session.options)
    unchanged = best is versions[0] and isinstance(first, Answer) and session.options.terminator == "changed"
    result = first if unchanged else await terminate(session, sample, best.reasoning)
    rates_again = session.options.judge == "answer"
    again = await rate_reasoning(session, sample, best.reasoning, p, answer=result) if rates_again else None
    return concluded(result, stop, first, versions, best, again, **(searcher.note() if searcher else {}))


@method(
    "mabrf_first",
    kinds={"choice"},
    roles=(BASE, SOLVER, JUDGE),
    options=MabrfFirstOptions,
    calibration=CALIBRATION,
)
async def mabrf_first(sample: Sample, session: Session[MabrfFirstOptions]) -> Outcome:
    """MABRF's solver and judge alone: the model's own reasoning is rated and not rewritten."""
    start = await _start(sample, session)
    if isinstance(start, Outcome):
        return start
    first, _, version = start
    notes = version.notes()
    return Outcome(first, "rated", (Snapshot(0, first, notes),), {**notes, FIRST_RATINGS: notes[RATINGS]})


async def _start(sample: Sample, session: Session[MabrfFirstOptions]) -> tuple[Result, float | None, Version] | Outcome:
    """Returns the solver's answer, P(passage answers) and the rated reasoning, or the outcome if one is missing."""
    solution, p = await aio.both(solve(session, sample), _passage_answers(session, sample))
    if isinstance(solution.result, Refusal):
        return Outcome(solution.result, "refused")
    if not solution.reasoning:
        cut = isinstance(solution.result, Cut)
        return Outcome(solution.result if cut else Unscored("the solver gave no reasoning"), "no_reasoning")
    first = solution.result
    rated = p if isinstance(p, Unscored) else await rate_reasoning(session, sample, solution.reasoning, p, answer=first)
    if isinstance(rated, Unscored):
        snapshot = Snapshot(0, solution.result, {"reasoning": solution.reasoning})
        unjudged = replace(rated, reason=f"the reasoning could not be judged: {rated.reason}")
        return Outcome(unjudged, "unjudged", (snapshot,))
    assert not isinstance(p, Unscored)
    return solution.result, p, Version(solution.reasoning, rated)


async def _passage_answers(session: Session[MabrfFirstOptions], sample: Sample) -> float | Unscored | None:
    return await p_passage_answers(session, sample) if looks(session, sample) else None


def _search_agent(session: Session[MabrfOptions]) -> SearchAgent | None:
    options = session.options
    if not options.search:
        return None
    return search_agent(session, options.search, queries=options.queries, results=options.results, pages=options.pages)


_NO_OBJECTION = "it rests on something that nobody has said"


async def answer_fairly(sample: Sample, session: Session[MabrfOptions]) -> Outcome:
    """Reasons, answers and judges; rephrases while there is bias; answers from the best reasoning."""
    solve = load_prompt(__file__, "chat_solve")
    question = (*sample.messages, *solve.render())
    steps = await think(session, solve, question, session.options.params, agent="solver", role=SOLVER)
    if not steps:
        answer = load_prompt(__file__, "chat_answer")
        return Outcome(await reply(session, answer, sample.messages, agent=SOLVER, role=SOLVER), "no_reasoning")
    rate = partial(_rate, session, sample)
    first, rated = await aio.both(_answer(session, sample, steps, SOLVER), rate(steps))
    if isinstance(rated, Unscored):
        notes = {"reasoning": steps, "unjudged": rated.reason}
        return Outcome(first, "unjudged", (Snapshot(0, first, notes),), notes)
    versions = [Version(steps, rated)]
    stop = await improve(session, versions, partial(_rephrase, session, sample), rate)
    best = kept_of(versions, session.options)
    unchanged = best is versions[0] and session.options.terminator == "changed"
    result = first if unchanged else await _answer(session, sample, best.reasoning, TERMINATOR)
    return concluded(result, stop, first, versions, best)


async def _answer(session: Session, sample: Sample, steps: str, role: str) -> Result:
    """Answers after the reasoning, which is in the conversation as the model's own turn."""
    solve, answer = load_prompt(__file__, "chat_solve"), load_prompt(__file__, "chat_answer")
    messages = (*sample.messages, *solve.render(), Message("assistant", steps), *answer.render())
    return await reply(session, answer, messages, agent=role, role=role)


async def _rate(
    session: Session[MabrfOptions], sample: Sample, reasoning: str, _evidence: Evidence | None = None
) -> JudgedReasoning | Unscored:
    """Rates a reasoning by bias alone: a conversation may be about things that were not mentioned in it."""
    try:
        ratings = await _asked_in_conversation(session, sample, reasoning)
    except ModelError as error:  # a failing judge must not fail the answer
        return Unscored(f"the judge failed: {error}")
    return ratings if isinstance(ratings, Unscored) else judged(ratings, session.options.accept, None)


async def _asked_in_conversation(session: Session, sample: Sample, reasoning: str) -> Ratings | Unscored:
    asked = rubric("chat_judge")
    messages = asked.prompt.render(conversation=quoted(sample.messages), reasoning=fenced(reasoning))
    return await judge(session, asked, messages, agent="judge")


async def _rephrase(session: Session[MabrfOptions], sample: Sample, last: Version) -> tuple[str, None]:
    """Rewrites the reasoning without what the judge objects to, without evidence; empty if the model gives none."""
    prompt = load_prompt(__file__, "chat_rephrase")
    messages = prompt.render(
        conversation=quoted(sample.messages),
        reasoning=fenced(last.reasoning),
        objection=fenced(last.objection) or _NO_OBJECTION,
    )
    written = await think(session, prompt, messages, session.options.params, agent="rephraser", role=REPHRASER)
    return written.strip(" \t\n<>"), None
