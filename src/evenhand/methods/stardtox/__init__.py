"""StarDTox (Tahmasebi et al.): critique-and-revise agents that clean up the outputs of any black-box model.

1. The response generator answers.
2. Bias and performance evaluators judge the answer, independently and in parallel.
3. The coordinator accepts the answer if it meets every threshold; otherwise it turns the critiques into a revision
   prompt.
4. The generator, which remembers its answers and their critiques, answers again, at most `iterations` times.

Departures and choices:
* The best answer is returned, not the last.
* A revision of a text starts again from all critiques so far, since a model that sees its rejected text repeats it. It
  samples several `candidates` in one call; the scorer, which needs no model call, picks the one to judge.
* A refusal or an empty answer is requested again, like any other fault.
* An evaluator that cannot score is ignored in the decision and named in the trace. If none can score, the loop ends.
* In a conversation, answers that fail an evaluator are revised, refusals are not; revisions start again, as for texts.
  The performance evaluator judges revisions only, helpfulness included: the model's own answer is not ours to improve,
  and a harmless one costs no call of a judge. In a live request this needs a judge of its own.
* A revision that refuses or drops the task is never better than an answer that does it.
* For multiple choice, the bias evaluator judges whether the passage proves the answer, and of an abstention, whether it
  proves none of the others; there is no performance evaluator. `evidence=support` asks for the paper's rating.
* Ratings are read as probabilities by the card of the judge, if `evenhand judges check MODEL` made one.
* Critiques contain no scores.

`presets.yaml` lists what the paper does otherwise, element by element.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Literal

from pydantic import Field

from evenhand.asking.chat import ANSWER, replies, reply
from evenhand.asking.choice import choose
from evenhand.asking.completion import complete
from evenhand.core import aio
from evenhand.core.errors import PlanError
from evenhand.core.options import Names
from evenhand.core.presets import Presets
from evenhand.core.prompts import Prompt, load_prompt
from evenhand.core.types import Answer, Message, Outcome, Refusal, Result, Sample, SampleKind, Snapshot, Unscored
from evenhand.core.untrusted import fenced
from evenhand.data.bbq.generate import drawn_passages
from evenhand.evaluators.base import EVALUATORS, Evaluator, Thresholds, Verdict, evaluator
from evenhand.evaluators.judged import (
    HELPFULNESS,
    SETTLED,
    SUPPORT,
    bias_messages,
    bias_rubric,
    chat_messages,
    chat_rubric,
    find_evaluator,
    p_proved,
    performance,
    support_messages,
    support_rubric,
    supported_messages,
    supported_rubric,
)
from evenhand.evaluators.rules import toxicity
from evenhand.judging.card import Contrast, JudgeTest, rated_by
from evenhand.judging.controls import NONSENSE, OTHER, REFUSAL, SHUFFLED, Control, construct
from evenhand.judging.judge import JUDGE, judge
from evenhand.judging.rubric import Ratings
from evenhand.judging.scorers import QUALITIES, quality_messages, quality_rubric
from evenhand.methods.base import Revision, method
from evenhand.methods.default import plain_prompt, plain_question
from evenhand.reading.refusals import looks_like_refusal
from evenhand.reading.text import abstains
from evenhand.session import Session

# --- the coordinator: a rule that decides when to stop, keeps the best answer and writes the critiques ---
# Brain: rules. Toolbox: the evaluators' verdicts. Memory: the attempts so far. Pure functions, no calls.

NO_ANSWER = "It is no usable reply to the task."
REFUSED = "It declines the task; a harmless reply to it is possible and wanted."


@dataclass(frozen=True, slots=True)
class Attempt:
    """One answer of the generator with the evaluators' verdicts."""

    result: Result
    verdicts: Mapping[str, Verdict | Unscored] = field(default_factory=dict[str, Verdict | Unscored])

    @property
    def judged(self) -> list[Verdict]:
        return [verdict for verdict in self.verdicts.values() if isinstance(verdict, Verdict)]

    @property
    def passed(self) -> bool:
        """Whether the answer passed every evaluator that could judge it, and at least one could."""
        return isinstance(self.result, Answer) and bool(self.judged) and all(each.passed for each in self.judged)

    @property
    def rank(self) -> tuple[Any, ...]:
        """Sort key, lower is better: has an answer, does its task, passed, names somebody, excess harm, quality.

        A text that has dropped its task is never better than one that does it, however harmless it is. An abstention
        that was rejected is no better than a rejected answer that names somebody. Harm below the
        threshold is ignored: otherwise a dull answer would beat a good one. Harm that nobody could judge counts as
        infinite, not as 0.
        """
        excess = [each.excess for each in self.judged if each.harm is not None]
        harm = sum(excess) if excess else float("inf")
        quality = [each.quality for each in self.judged if each.quality is not None]
        mean = sum(quality) / len(quality) if quality else 0.0
        no_answer = not isinstance(self.result, Answer)
        off_task = any(each.off_task for each in self.judged)
        return (no_answer, off_task, not self.passed, self._vainly_abstains, round(harm, 6), round(-mean, 6))

    @property
    def _vainly_abstains(self) -> bool:
        """Whether it chooses the option of not knowing although an evaluator found that the passage tells."""
        answer = self.result
        if not isinstance(answer, Answer) or answer.choice is None:
            return False
        return bool(self.judged) and not self.passed and abstains(answer.text)


def decide(attempts: Sequence[Attempt], most: int) -> str:
    """Returns `accepted`, `max_iterations`, `no_evaluation`, or `revise`."""
    last = attempts[-1]
    if last.passed:
        return "accepted"
    if isinstance(last.result, Answer) and not last.judged:
        return "no_evaluation"
    return "max_iterations" if len(attempts) > most else "revise"


def best(attempts: Sequence[Attempt]) -> Attempt:
    """Returns the best attempt so far; on a tie the later one, which has seen more critiques."""
    return min(reversed(attempts), key=lambda attempt: attempt.rank) if len(attempts) > 1 else attempts[0]


def critiques(attempt: Attempt, *, scores: bool = False) -> str:
    """Returns the critiques for the generator from all evaluators that the answer failed, if wanted with scores."""
    if isinstance(attempt.result, Refusal):
        return f"- {REFUSED}"
    if isinstance(attempt.result, Unscored):
        return f"- {NO_ANSWER}"
    failed = [
        f"{verdict.critique} ({verdict.details})" if scores and verdict.details else verdict.critique
        for verdict in attempt.judged
        if not verdict.passed and verdict.critique
    ]
    return "\n".join(f"- {critique}" for critique in dict.fromkeys(failed)) or f"- {NO_ANSWER}"


def notes(attempt: Attempt, decision: str) -> dict[str, Any]:
    said = [
        {"evaluator": name, "unscored": each.reason}
        if isinstance(each, Unscored)
        else {"evaluator": name, "passed": each.passed, "critique": each.critique, "details": each.details}
        for name, each in attempt.verdicts.items()
    ]
    return {"candidate": _shown(attempt.result), "verdicts": said, "decision": decision}


def _shown(result: Result) -> str:
    return result.raw if isinstance(result, Unscored) else result.text


# --- calibration of StarDTox's judges: controls, from which the curves of the judge's card are fitted ---
# The passages are those of `bbq_builtin`, so results on that benchmark are too optimistic. Every second one is held
# out.

RATED_SUPPORT, RATED_SETTLED = "rated_support", "rated_settled"
"""The evidence rated in numbers, which takes the place of a probability with `evidence=rating` or `support`."""
_FLUENT = ("fluency", "coherence")
_LOWERS: Mapping[str, tuple[str, ...]] = {
    SHUFFLED: _FLUENT,
    OTHER: ("relevance", "coherence"),
    NONSENSE: (*_FLUENT, "relevance"),
    REFUSAL: ("relevance",),
}
"""Kind of poor or worthless text → the ratings of a continuation that it lowers."""
_CHAT_LOWERS: Mapping[str, tuple[str, ...]] = {
    SHUFFLED: _FLUENT,
    OTHER: ("relevance", HELPFULNESS),
    NONSENSE: (*_FLUENT, "relevance", HELPFULNESS),
    REFUSAL: (HELPFULNESS,),
}


def contrasts() -> list[Contrast]:
    """Returns the contrasts for all ratings of StarDTox's judges."""
    return [*_proof_jobs(), *_quality_jobs(), *_chat_jobs(), *_harm_jobs()]


def _proof_jobs() -> Iterator[Contrast]:
    """Yields each passage with the fact and without it; the judge is asked about each person in turn."""
    for number, pair in enumerate(drawn_passages()):
        for condition in ("disambig", "ambig"):
            yield from _proof_job(pair[condition], held_out=number % 2 == 1)


def _proof_job(row: Mapping[str, Any], *, held_out: bool) -> Iterator[Contrast]:
    options = tuple(str(row[f"ans{index}"]) for index in range(3))
    right = options[int(row["label"])]
    people = [each for each in options if not abstains(each)]
    sample = Sample("contrast", "choice", row["question"], row["context"], options)

    async def rate(session: Session) -> Ratings | Unscored:
        proved: dict[str, float] = {}
        for person in people:
            p = await p_proved(session, sample, person)
            if isinstance(p, Unscored):
                return p
            proved[f"{SUPPORT}/{person}"] = p
        values = {**proved, SETTLED: max(proved.values())}
        return Ratings(values, values)

    by_person = [(f"{SUPPORT}/{person}", person == right) for person in people]
    told = right in people
    control = Control(row["context"], row["question"], "told" if told else "not told", told, held_out=held_out)
    yield Contrast(sample, rate, [(SETTLED, told), *by_person], control)
    yield _rated_job(sample, right if told else people[0], control)


def _rated_job(sample: Sample, person: str, control: Control) -> Contrast:
    """Rates the evidence for a person in numbers: the right one, or any where the passage does not tell."""

    async def rate(session: Session) -> Ratings | Unscored:
        alone = getattr(session.options, "evidence", "") == "support"
        rubric, messages = (supported_rubric, supported_messages) if alone else (support_rubric, support_messages)
        ratings = await judge(session, rubric(), messages(sample, person), agent="judge")
        if isinstance(ratings, Unscored):
            return ratings
        values = {f"rated_{name}": value for name, value in ratings.values.items()}
        return Ratings(values, values)

    return Contrast(sample, rate, [(RATED_SUPPORT, control.high), (RATED_SETTLED, control.high)], control)


def _quality_jobs() -> Iterator[Contrast]:
    for control in construct("continuations").controls:
        names = QUALITIES if control.high else _LOWERS.get(control.kind, ())
        if names:
            sample = Sample("contrast", "completion", control.context)
            messages = quality_messages(control.context, control.text)
            yield rated_by(sample, quality_rubric(), messages, [(name, control.high) for name in names], control)


def _chat_jobs() -> Iterator[Contrast]:
    for control in construct("answers").controls:
        good = control.kind == "high"
        names = (*QUALITIES, HELPFULNESS) if good else _CHAT_LOWERS.get(control.kind, ())
        if names:
            sample = Sample("contrast", "chat", control.context)
            messages = chat_messages(sample, control.text)
            yield rated_by(sample, chat_rubric(), messages, [(name, control.high) for name in names], control)


def _harm_jobs() -> Iterator[Contrast]:
    for control in construct("toxicity").controls:
        sample = Sample("contrast", "completion", control.context)
        messages = bias_messages(control.context, control.text)
        yield rated_by(sample, bias_rubric(), messages, [("harm", control.high)], control)


def _limits(options: Any, kind: SampleKind) -> dict[str, float]:
    """The thresholds of the evaluators that judge this kind of samples; evidence that is rated has no card."""
    if not options.own_evaluators:
        return {}
    if kind == "choice":
        settled: dict[str, float] = {SETTLED if options.evidence == "proof" else RATED_SETTLED: options.settled}
        names: dict[str, float] = {SUPPORT if options.evidence == "proof" else RATED_SUPPORT: options.support}
        names |= {} if options.evidence == "support" else settled
        return {name: limit / 100 for name, limit in names.items()}
    harm: dict[str, float] = {"harm": options.limit("toxicity")} if options.bias == "llm" else {}
    rated = {"completion": QUALITIES, "chat": (HELPFULNESS,)}.get(kind, ()) if options.performance else ()
    quality: float = options.quality / 100
    return {**harm, **dict.fromkeys(rated, quality)}


CALIBRATION = JudgeTest("judge for stardtox", contrasts, limits=_limits, varies=("reading", "bands", "evidence"))


class StarDToxOptions(Thresholds):
    presets: ClassVar = Presets.beside(__file__)

    iterations: int = Field(default=2, ge=0, description="Maximum number of revisions; 0 only judges.")
    candidates: int = Field(default=4, ge=1, description="Texts sampled per revision; the least toxic one is judged.")
    memory: bool = Field(default=False, description="Whether a revision of a text is shown the texts before it.")
    scores: bool = Field(default=False, description="Whether critiques contain the scores and thresholds.")
    keep: Literal["best", "last"] = Field(default="best", description="Return the best or the last answer.")
    bias: Literal["rule", "llm"] = Field(
        default="rule", description="Measure harm with a scorer (rule) or with a judge (llm)."
    )
    evidence: Literal["proof", "rating", "support"] = Field(
        default="proof",
        description="Questions: the probability that the passage proves the answer (proof), one rating of how well it "
        "supports it (support), or a second one for abstentions besides (rating).",
    )
    hint: bool = Field(
        default=True, description="Questions: whether a revision is told what to choose where the passage does not say."
    )
    performance: bool = Field(
        default=True, description="Whether the performance evaluator judges texts, and revisions in conversations."
    )
    judge_first: bool = Field(
        default=False, description="Conversations: whether the performance evaluator judges the first answer, too."
    )
    evaluators: Names | None = Field(
        default=(),
        description="More evaluators by name, or goal:SENTENCE, e.g. goal:must not give advice; use a+b for several.",
    )
    own_evaluators: bool = Field(
        default=True, description="Whether the method's own evaluators judge too; false leaves those in evaluators."
    )


_EVIDENCE = {"proof": "proof", "rating": "support", "support": "supported"}
"""Evidence → the evaluator of answers to questions."""


def evaluators_for(kind: SampleKind, options: StarDToxOptions) -> list[Evaluator]:
    """Returns the evaluators for this kind of sample; rejects added evaluators that do not support it."""
    names = [_EVIDENCE[options.evidence]] if kind == "choice" else ["bias" if options.bias == "llm" else "toxicity"]
    if options.performance and kind == "completion":
        names.append("performance")
    if not options.own_evaluators:
        if not options.evaluators:
            raise PlanError("own_evaluators=false leaves no evaluator; name some with evaluators=NAME.")
        names = []
    chosen = [find_evaluator(name) for name in dict.fromkeys((*names, *(options.evaluators or ())))]
    for each in chosen:
        if kind not in each.kinds:
            raise PlanError(f"The evaluator {each.name} does not support {kind!r} samples. Remove it from the options.")
    return chosen


def add_evaluators(options: StarDToxOptions, names: Sequence[str]) -> StarDToxOptions:
    """Returns the options with more evaluators; `bias` without `toxicity` replaces the toxicity evaluator."""
    changed: dict[str, Any] = {"evaluators": tuple(dict.fromkeys((*(options.evaluators or ()), *names)))}
    if "bias" in names and "toxicity" not in names and "bias" not in options.model_fields_set:
        changed["bias"] = "llm"
    return options.model_copy(update=changed)


__all__ = ["EVALUATORS", "Evaluator", "Verdict", "evaluator", "stardtox"]


_REVISION = Revision(
    evaluators=evaluators_for,
    add_evaluators=add_evaluators,
    most=lambda options: options.iterations,
    prompt=lambda: load_prompt(__file__, "revise_chat"),
    accepts_first=lambda options: not options.judge_first,
)


@method(
    "stardtox",
    kinds={"choice", "completion", "chat"},
    roles=("base", "judge"),
    options=StarDToxOptions,
    check=evaluators_for,
    streams=plain_question,
    revision=_REVISION,
    calibration=CALIBRATION,
)
async def stardtox(sample: Sample, session: Session[StarDToxOptions]) -> Outcome:
    """Critique and revise: a generator, independent evaluators and a coordinator (StarDTox)."""
    chosen = evaluators_for(sample.kind, session.options)
    attempts: list[Attempt] = []
    snapshots: list[Snapshot] = []
    decision = "revise"
    while decision == "revise":
        attempts.append(await _attempt(sample, session, chosen, attempts))
        decision = decide(attempts, session.options.iterations)
        kept = attempts[-1] if session.options.keep == "last" else best(attempts)
        trace_notes = notes(attempts[-1], _decision_text(decision, attempts[-1]))
        snapshots.append(Snapshot(len(attempts) - 1, kept.result, trace_notes))
    return Outcome(snapshots[-1].result, decision, tuple(snapshots))


async def _attempt(
    sample: Sample, session: Session[StarDToxOptions], chosen: Sequence[Evaluator], attempts: Sequence[Attempt]
) -> Attempt:
    """Returns the next answer with its verdicts; a repeated answer is not judged again."""
    result = await _pick(sample, session, chosen, await _answers(sample, session, attempts))
    if not isinstance(result, Answer):
        return Attempt(result)
    for earlier in attempts:
        if isinstance(earlier.result, Answer) and earlier.result.text == result.text:
            return Attempt(result, earlier.verdicts)
    if sample.kind == "chat" and (attempts or session.options.judge_first) and _judges_revisions(session):
        chosen = list(dict.fromkeys((*chosen, performance)))
    said = await aio.all_of(each.judge(sample, result, session) for each in chosen)
    return Attempt(result, {each.name: verdict for each, verdict in zip(chosen, said, strict=True)})


def _judges_revisions(session: Session[StarDToxOptions]) -> bool:
    """Whether revisions are judged: in a live request only by a judge of its own, not by the client's model."""
    wanted = session.options.performance and session.options.own_evaluators
    return wanted and (ANSWER not in session.models or JUDGE in session.models)


async def _answers(sample: Sample, session: Session[StarDToxOptions], attempts: Sequence[Attempt]) -> list[Result]:
    """The generator. Brain: the base model. Toolbox: none. Memory: its answers so far, with their critiques."""
    if sample.kind == "choice":
        prompt = plain_prompt("choice")
        if not attempts:
            return [await choose(session, sample, prompt)]
        revise = load_prompt(__file__, "revise_choice" if session.options.hint else "revise_choice_plain")
        asked = partial(_asked_again, sample, prompt, revise, attempts, session.options.scores)
        return [await choose(session, sample, revise, asked)]
    if not attempts:
        if sample.kind == "chat":
            return [await reply(session, plain_prompt("chat"), sample.messages)]
        return await complete(session, sample, plain_prompt("completion"), plain=True)
    if session.options.memory:
        return await _remembering(sample, session, attempts)
    scores, candidates = session.options.scores, session.options.candidates
    said = [line for attempt in attempts for line in critiques(attempt, scores=scores).splitlines()]
    all_critiques = "\n".join(dict.fromkeys(said))
    if sample.kind == "chat":
        revise = load_prompt(__file__, "revise_chat")
        messages = (*sample.messages, *revise.render(critiques=fenced(all_critiques)))
        written = await replies(session, revise, messages, candidates, agent="reviser")
        results = [_refusal_or(each) for each in written]
    else:
        revise = load_prompt(__file__, "revise_completion")
        messages = revise.render(text=sample.prompt, critiques=all_critiques)
        results = await complete(session, sample, revise, messages, candidates=candidates)
    given = {_said(attempt.result) for attempt in attempts}
    return [result for result in results if _said(result) not in given] or results


async def _remembering(sample: Sample, session: Session[StarDToxOptions], attempts: Sequence[Attempt]) -> list[Result]:
    """Asks for a text again, in a conversation that shows all earlier texts with the critiques of each."""
    live = sample.kind == "chat"
    revise = load_prompt(__file__, "revise_chat" if live else "revise_memory")
    messages = [*(sample.messages if live else plain_prompt("completion").render(text=sample.prompt))]
    for attempt in attempts:
        said = critiques(attempt, scores=session.options.scores)
        messages += [Message("assistant", _said(attempt.result))]
        messages += revise.render(critiques=fenced(said) if live else said)
    candidates = session.options.candidates
    if live:
        written = await replies(session, revise, messages, candidates, agent="reviser")
        return [_refusal_or(each) for each in written]
    return await complete(session, sample, revise, messages, candidates=candidates)


def _refusal_or(result: Result) -> Result:
    """Live answers are not trimmed; a revision that declines still counts as a refusal."""
    return Refusal(result.text) if isinstance(result, Answer) and looks_like_refusal(result.text) else result


def _asked_again(
    sample: Sample, prompt: Prompt, revise: Prompt, attempts: Sequence[Attempt], scores: bool, options: str
) -> list[Message]:
    """Returns the question, then the answers so far with the critiques of each."""
    messages = [*prompt.render(context=sample.context, question=sample.prompt, options=options)]
    for attempt in attempts:
        messages += [
            Message("assistant", _said(attempt.result)),
            *revise.render(critiques=critiques(attempt, scores=scores)),
        ]
    return messages


def _said(result: Result) -> str:
    return (result.raw if isinstance(result, Unscored) else result.text) or "(nothing)"


async def _pick(
    sample: Sample, session: Session[StarDToxOptions], chosen: Sequence[Evaluator], results: Sequence[Result]
) -> Result:
    """Returns the candidate with the lowest toxicity score, so that judge calls are spent on one candidate only."""
    answers = [result for result in results if isinstance(result, Answer)]
    if len(answers) < 2 or toxicity not in chosen:
        return answers[0] if answers else results[0]
    said = await aio.all_of(toxicity.judge(sample, answer, session) for answer in answers)
    harms = [verdict.harm if isinstance(verdict, Verdict) else None for verdict in said]
    return min(zip(answers, harms, strict=True), key=lambda pair: float("inf") if pair[1] is None else pair[1])[0]


def _decision_text(decision: str, attempt: Attempt) -> str:
    if decision != "revise":
        return decision
    unhappy = [name for name, each in attempt.verdicts.items() if isinstance(each, Verdict) and not each.passed]
    return f"revise: {', '.join(unhappy) or 'no usable answer'}"
