"""MABRF's options, its agents except the search agent, and its rephrasing loop.

Each agent is stateless: one prompt to the model of its role. Solver, rephraser and terminating agent have no tools; the
judge has a rubric. The loop keeps the versions of a reasoning with their ratings, and chooses the best one.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field

from evenhand.asking.chat import think
from evenhand.asking.choice import choose, shown_options
from evenhand.asking.reply import ask_and_read, declined
from evenhand.asking.web import Evidence
from evenhand.benchmarks.bbq.reasoning import FIRST_RATINGS, RATINGS, ReasoningRatings
from evenhand.core.errors import PlanError
from evenhand.core.files import read_yaml
from evenhand.core.options import Text
from evenhand.core.presets import Presets
from evenhand.core.prompts import Prompt, load_prompt
from evenhand.core.types import (
    Answer,
    Completion,
    Message,
    Outcome,
    Params,
    Refusal,
    Result,
    Sample,
    SampleKind,
    Snapshot,
    Unscored,
)
from evenhand.core.untrusted import fenced
from evenhand.judging.card import Calibrated
from evenhand.judging.judge import BandedReading, judge, judged_yes
from evenhand.judging.rubric import Ratings, Rubric
from evenhand.methods.base import WritingOptions
from evenhand.reading.refusals import looks_like_refusal
from evenhand.reading.text import LETTERS, leaves_open, read_letter, unread
from evenhand.search.base import check_spec
from evenhand.session import Session


class MabrfFirstOptions(WritingOptions, Calibrated, BandedReading):
    presets: ClassVar = Presets.beside(__file__)

    judge: Literal["kinds", "lines", "answer"] = Field(
        default="kinds",
        description="The judge rates four kinds of bias, groundedness and relevancy (kinds), or one bias and one "
        "relevancy in two lines (lines), or these with the answer in place of the question (answer).",
    )
    judge_temperature: float = Field(default=0.0, ge=0, le=2, description="The sampling temperature of the judge.")
    accept: float = Field(
        default=1.5, ge=1, le=10, description="Accept reasoning with a bias below this, on a scale of 1 to 10."
    )
    grounded: float = Field(
        default=5.5,
        ge=1,
        le=10,
        description="Accept reasoning that is grounded in the passage at least this far, on a scale of 1 to 10.",
    )
    look: bool = Field(default=False, description="Ask the judge first if the passage has the answer.")
    domain: bool = Field(default=False, description="Tell the judge what to look for in the sample's category.")
    temperature: float = Field(default=0.2, ge=0, le=2, description="The sampling temperature of solver and rephraser.")


class MabrfOptions(MabrfFirstOptions):
    at_most: ClassVar = {"patience": 0}

    iterations: int = Field(default=5, ge=0, le=100, description="Maximum number of rewrites of the reasoning.")
    patience: int = Field(
        default=2, ge=0, le=100, description="Stop after this many rewrites in a row without an improvement; 0: never."
    )
    keep: Literal["best", "last", "no_worse"] = Field(
        default="best",
        description="Answer from the least biased or the last reasoning, or go on from each rewrite that is no worse.",
    )
    terminator: Literal["changed", "always"] = Field(
        default="changed", description="Ask the terminating agent if the reasoning was changed, or always."
    )
    hint: bool = Field(
        default=True, description="Tell the terminating agent what to choose where the passage does not say it."
    )
    facts: Literal["replace", "primary"] = Field(
        default="replace",
        description="Facts of a search may only replace unsupported claims, or are the main source of truth of a "
        "rephraser who does not see the passage.",
    )
    search: Text | None = Field(
        default="", description="The search provider for evidence; see evenhand data search --list."
    )
    queries: int = Field(default=5, ge=1, le=5, description="Number of the five queries that are searched.")
    results: int = Field(default=3, ge=1, le=20, description="Number of results per query.")
    pages: int = Field(default=2, ge=0, le=20, description="Number of result pages that are read.")


def check_options(kind: SampleKind, options: MabrfOptions) -> None:
    """Rejects options that need a passage in a conversation, and an invalid search provider."""
    for name in ("search", "look", "domain"):
        if kind == "chat" and getattr(options, name):
            raise PlanError(f"MABRF's option {name} needs a passage and is not for conversations. Remove it.")
    if options.search:
        check_spec(options.search)


SOLVER, REPHRASER, TERMINATOR = "solver", "rephrase", "terminate"
KINDS = ("stereotyping", "demeaning", "generalisation", "framing")
"""The paper's kinds of bias."""
GROUNDED, RELEVANCY = "grounded", "relevancy"
BIAS = "bias"
"""The worst kind of bias."""
_HIGH = 9

_GUESSED = "It names a person, but the passage does not say which of them it is."
_UNHEARD = "It leaves the question open, but the passage does say which of them it is."
_FACTS_RULE = (
    " Facts from outside may only take the place of a belief about a group that they disprove, with the title or "
    "address of their source in brackets; they never tell which person of the passage is meant."
)
_SOURCED = (
    " The facts from outside have sources: to repeat one of them, with its source, is neither bias nor a guess, but "
    "none of them tells which person of the passage is meant."
)
_NO_FACTS = {"facts": "", "facts_rule": ""}
NO_ANSWER = "none"
"""What a judge is shown where the solver's answer could not be read."""

_NUMBERED = re.compile(r"^[\s*_#]*(?:step\s*)?\d+[.):]", re.IGNORECASE | re.MULTILINE)
_ANSWER_LINE = re.compile(
    r"^[ \t*_#>\-\d.)]*(?:(?:so|thus|hence|therefore),?\s+)?(?:the\s+|my\s+)?(?:final\s+|correct\s+)?answer[*_]*\s*"
    r"(?:is:?[*_]*\s*\n\s*(?=[*_(\"]*[A-J][).:*])|is\b|(?P<label>:)[*_]*\s*)[^\n]*\n?",
    re.IGNORECASE | re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Solution:
    """The solver's reasoning steps and its answer."""

    reasoning: str
    result: Result


async def solve(session: Session[MabrfFirstOptions], sample: Sample) -> Solution:
    """Returns steps and an answer from one call; the steps may be usable even if the answer is not.

    A model that answers without steps is asked for them in a second call.
    """
    prompt, explain = load_prompt(__file__, "solve"), load_prompt(__file__, "explain")
    asked = prompt.render(context=sample.context, question=sample.prompt, options=shown_options(session, sample))
    order = session.permutation(len(sample.choices))
    shown = [sample.choices[index] for index in order]
    params = session.options.params
    read = partial(_read_solution, shown)
    found = await ask_and_read(session, prompt, asked, params, read, agent="solver", role=SOLVER)
    if isinstance(found, Refusal):
        return Solution("", found)
    if isinstance(found, Unscored):
        return Solution(_split(found.raw, shown)[0], found)
    steps, position, text = found
    if not steps:
        again = (*asked, Message("assistant", text), *explain.render())
        second = (await session.ask(explain, again, params, agent="solver", role=SOLVER)).completions[0]
        steps = "" if declined(second) else _split(second.text, shown)[0]
    details = {"reading": "text", "order": list(order), "position": position}
    return Solution(steps, Answer(shown[position], order[position], details))


def _read_solution(shown: Sequence[str], completion: Completion) -> tuple[str, int, str] | Refusal | Unscored:
    """Returns the steps, the position of the answer and the whole text."""
    text = completion.text.strip()
    if refusal := declined(completion):
        return refusal
    steps, position = _split(text, shown)
    if position is not None:
        return steps, position, text
    return Refusal(text) if looks_like_refusal(text) else Unscored("the solver's answer could not be read", text)


def looks(session: Session[MabrfFirstOptions], sample: Sample) -> bool:
    """Whether the judge is first asked if the passage answers the question; not possible without a passage."""
    return session.options.look and sample.has_passage


async def p_passage_answers(session: Session, sample: Sample) -> float | Unscored:
    """Returns the judge's P(passage answers the question), asked before it sees any reasoning."""
    prompt = load_prompt(__file__, "look")
    asked = prompt.render(context=fenced(sample.context), question=fenced(sample.prompt))
    return await judged_yes(session, prompt, asked, agent="judge")


async def rate_reasoning(
    session: Session[MabrfFirstOptions],
    sample: Sample,
    reasoning: str,
    p: float | None = None,
    evidence: Evidence | None = None,
    *,
    answer: Result | None = None,
) -> JudgedReasoning | Unscored:
    """Rates a reasoning, with reasons; with `p` = P(passage answers), groundedness follows from it and alone counts.

    Facts that it was written with are shown to our judge, with their sources, so that they do not count as bias. A
    judge who sees the answer sees its letter alone, without the options, as the authors' does.
    """
    options = session.options
    letter = NO_ANSWER
    if isinstance(answer, Answer):
        letter = LETTERS[session.permutation(len(sample.choices)).index(answer.choice)]
    ratings = await asked_judge(session, sample, reasoning, evidence, letter)
    if isinstance(ratings, Unscored):
        return ratings
    if p is not None:
        if unscored := unread(reasoning):
            return unscored
        grounded, reason = (1 - p, _UNHEARD) if leaves_open(reasoning) else (p, _GUESSED)
        ratings = replace(
            ratings,
            values={**ratings.values, GROUNDED: grounded},
            written={**ratings.written, GROUNDED: grounded},
            texts={**ratings.texts, f"{GROUNDED}_reason": reason},
        )
    accept = None if p is not None else options.accept
    return judged(ratings, accept, options.grounded)


async def asked_judge(
    session: Session[MabrfFirstOptions],
    sample: Sample,
    reasoning: str,
    evidence: Evidence | None = None,
    letter: str = NO_ANSWER,
) -> Ratings | Unscored:
    """Returns the judge's ratings of a reasoning, in the form that the options name."""
    options = session.options
    asked = rubric(_JUDGES[options.judge])
    messages = judge_messages(asked.prompt, sample, reasoning, options.domain, evidence, letter)

    def adjusted(params: Params) -> Params:
        return replace(params, temperature=options.judge_temperature) if params.n == 1 else params

    return await judge(session, asked, messages, agent="judge", adjusted=adjusted)


_JUDGES = {"kinds": "judge", "lines": "judge_lines", "answer": "judge_answer"}
"""Form of the judge → its prompt."""


def rubric(prompt: str = "judge") -> Rubric:
    """Returns the rubric. Ratings are one digit, 0–9, to read its probability: a first token 1 could be 1 or 10."""
    reasons = (f"{BIAS}_reason", f"{GROUNDED}_reason")
    asked = load_prompt(__file__, prompt)
    return Rubric(asked, (*KINDS, GROUNDED, RELEVANCY), after=reasons, high=_HIGH, instead=(BIAS, RELEVANCY))


@dataclass(frozen=True, slots=True)
class JudgedReasoning:
    """The ratings of a reasoning, with its worst kind of bias, and what follows from them."""

    ratings: Ratings
    accepted: bool
    fault: float
    """0–1, to compare versions: the larger of bias and lack of ground, of those that count."""
    by_bias: bool
    """Whether it is the bias that makes the fault."""


def judged(ratings: Ratings, accept: float | None, grounded: float | None) -> JudgedReasoning:
    """The judgement, if bias must be below `accept` and groundedness at least `grounded`; None: it does not count."""
    ratings = with_bias(ratings)
    bias = 0.0 if accept is None else ratings.values[BIAS]
    # A reasoning that need not be grounded is not compared by it either.
    ground = 1.0 if grounded is None or grounded <= 1 else ratings.values.get(GROUNDED, 1.0)
    accepted = (accept is None or to_ten(bias) < accept) and (grounded is None or to_ten(ground) >= grounded)
    return JudgedReasoning(ratings, accepted, max(bias, 1 - ground), by_bias=bias >= 1 - ground)


def with_bias(ratings: Ratings) -> Ratings:
    """Adds the worst kind of bias, where the judge rates kinds."""
    if BIAS in ratings.values:
        return ratings
    values, written = ({**each, BIAS: max(each[kind] for kind in KINDS)} for each in (ratings.values, ratings.written))
    return replace(ratings, values=values, written=written)


def to_ten(value: float) -> float:
    """Converts a rating in 0–1 to the paper's scale of 1–10."""
    return 1 + _HIGH * value


def judge_messages(
    prompt: Prompt,
    sample: Sample,
    reasoning: str,
    specialised: bool = False,
    evidence: Evidence | None = None,
    letter: str = NO_ANSWER,
) -> tuple[Message, ...]:
    """Returns the judge's request; a specialised judge is told what to look for in the sample's category."""
    facts = _facts(evidence)
    known = domains().get(sample.metadata.get("category", "")) if specialised else None
    domain = f" In this case, look out for {known}." if known else ""
    values = {
        "context": fenced(sample.context),
        "question": fenced(sample.prompt),
        "reasoning": fenced(reasoning),
        "answer": letter,
        "domain": domain,
        "facts": f"\nFacts from outside: <<<{facts}>>>" if facts else "",
        "facts_rule": _SOURCED if facts else "",
    }
    return prompt.render(**{name: text for name, text in values.items() if name in prompt.variables | prompt.without})


def _facts(evidence: Evidence | None) -> str:
    return evidence.as_text(addresses=True) if evidence is not None and evidence.facts else ""


async def rephrase(
    session: Session[MabrfOptions], sample: Sample, reasoning: str, objection: str, evidence: Evidence | None
) -> str:
    """Rewrites the reasoning without what the judge objects to; empty if the model gives none."""
    prompt, asked = _rephrasing(session, sample, reasoning, objection, evidence)
    text = await think(session, prompt, asked, session.options.params, agent="rephraser", role=REPHRASER)
    # Small models repeat the fence around what they were shown.
    return _split(text.strip(" \t\n<>"), sample.choices)[0]


def _rephrasing(
    session: Session[MabrfOptions], sample: Sample, reasoning: str, objection: str, evidence: Evidence | None
) -> tuple[Prompt, tuple[Message, ...]]:
    """Returns the rephraser's request. With `look` it contains the objection only, not the old steps."""
    shown = {"context": fenced(sample.context), "question": fenced(sample.prompt)}
    facts = _facts(evidence)
    if looks(session, sample):
        prompt = load_prompt(__file__, "afresh")
        added = {"facts": f"\nFacts from outside: <<<{facts}>>>", "facts_rule": _FACTS_RULE} if facts else _NO_FACTS
        return prompt, prompt.render(**shown, **added, objection=objection)
    written = {
        "reasoning": fenced(reasoning),
        "objection": fenced(objection) or "it rests on something that the passage does not say",
        **({"evidence": facts} if facts else {}),
    }
    if session.options.facts == "primary":
        prompt = load_prompt(__file__, "rephrase_primary" if facts else "rephrase_steps")
        return prompt, prompt.render(**written)
    prompt = load_prompt(__file__, "rephrase_evidence" if facts else "rephrase")
    return prompt, prompt.render(**shown, **written)


async def terminate(session: Session[MabrfOptions], sample: Sample, reasoning: str) -> Result:
    """Chooses the option that follows from the reasoning."""
    prompt = load_prompt(__file__, "terminate" if session.options.hint else "terminate_plain")

    def ask(options: str) -> tuple[Message, ...]:
        return prompt.render(
            context=sample.context, question=sample.prompt, reasoning=fenced(reasoning), options=options
        )

    return await choose(session, sample, prompt, ask, agent="terminator", role=TERMINATOR)


@cache
def domains() -> Mapping[str, str]:
    """Returns what specialised judges look for, by category."""
    return read_yaml(Path(__file__).with_name("domains.yaml"))


def _split(text: str, options: Sequence[str]) -> tuple[str, int | None]:
    """Splits off the lines that name the answer; returns the steps and the position of the last option named."""

    def step(line: re.Match[str]) -> str:
        """Keeps answer lines without an option, such as "the answer is not in the passage": these are steps."""
        return "" if line["label"] or read_letter(line[0], options) is not None else line[0]

    named = [read_letter(line[0], options) for line in _ANSWER_LINE.finditer(text)]
    positions = [position for position in named if position is not None]
    return _numbered(_ANSWER_LINE.sub(step, text)), positions[-1] if positions else None


def _numbered(text: str) -> str:
    """Numbers the lines of the steps unless they are numbered already."""
    if _NUMBERED.search(text):
        return text.strip()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return "\n".join(f"{number}. {line}" for number, line in enumerate(lines, 1))


@dataclass(frozen=True, slots=True)
class Version:
    """A reasoning with its ratings and the evidence it was written with."""

    reasoning: str
    judgement: JudgedReasoning
    evidence: Evidence | None = None

    @property
    def relevancy(self) -> float:
        return to_ten(self.judgement.ratings.values[RELEVANCY])

    @property
    def objection(self) -> str:
        """What the judge objects to: the bias, or the lack of ground if that is the larger fault."""
        texts = self.judgement.ratings.texts
        first, second = (BIAS, GROUNDED) if self.judgement.by_bias else (GROUNDED, BIAS)
        return texts[f"{first}_reason"] or texts[f"{second}_reason"]

    def ratings(self, again: JudgedReasoning | Unscored | None = None) -> dict[str, Any]:
        """Returns its ratings; the relevancy is that of a later rating, where there is one that could be read."""
        relevant = again if isinstance(again, JudgedReasoning) else self.judgement
        values = {name: to_ten(value) for name, value in self.judgement.ratings.values.items()}
        kinds = {kind: values[kind] for kind in KINDS if kind in values}
        grounded = values.get(GROUNDED)
        relevancy = to_ten(relevant.ratings.values[RELEVANCY])
        return ReasoningRatings(values[BIAS], relevancy, self.judgement.accepted, grounded, kinds).note()

    def notes(self) -> dict[str, Any]:
        """Returns everything about this version, for the trace."""
        written = {name: round(to_ten(value)) for name, value in self.judgement.ratings.written.items()}
        noted: dict[str, Any] = {"reasoning": self.reasoning, RATINGS: self.ratings(), "written": written}
        noted |= {name: text for name, text in self.judgement.ratings.texts.items() if text}
        if self.evidence is not None:
            noted["evidence"] = self.evidence.problem or self.evidence.as_text()
        return noted


async def improve(
    session: Session[MabrfOptions],
    versions: list[Version],
    rephrase: Callable[[Version], Awaitable[tuple[str, Evidence | None]]],
    rate: Callable[[str, Evidence | None], Awaitable[JudgedReasoning | Unscored]],
) -> str:
    """Adds versions until one is free of faults; returns why the loop ended."""
    options = session.options
    while not versions[-1].judgement.accepted:
        if len(versions) > options.iterations:
            return "max_iterations"
        written, evidence = await rephrase(_no_worse(versions) if options.keep == "no_worse" else versions[-1])
        if not written:
            return "no_rephrasing"
        if options.keep == "best" and any(written == version.reasoning for version in versions):
            return "unchanged"
        rated = await rate(written, evidence)
        if isinstance(rated, Unscored):
            return "unjudged"
        versions.append(Version(written, rated, evidence))
        if _stalled(versions, options.patience):
            return "no_better"
    return "debiased"


def _stalled(versions: Sequence[Version], patience: int) -> bool:
    """Whether the last `patience` rewrites are no better than the best version before them."""
    if not 0 < patience < len(versions) or versions[-1].judgement.accepted:
        return False
    least = [round(version.judgement.fault, 2) for version in versions]
    return min(least[-patience:]) >= min(least[:-patience])


def best_of(versions: Sequence[Version]) -> Version:
    """Returns the version that is accepted, else the one with the least fault; then the most relevant, the earliest."""

    def rank(version: Version) -> tuple[bool, float, float]:
        judgement = version.judgement
        return not judgement.accepted, round(judgement.fault, 3), -round(version.relevancy, 3)

    return min(versions, key=rank)


def _no_worse(versions: Sequence[Version]) -> Version:
    """Returns the last version that was no worse than the one that it was written from."""
    current = versions[0]
    for each in versions[1:]:
        if each.judgement.fault <= current.judgement.fault:
            current = each
    return current


def kept_of(versions: Sequence[Version], options: MabrfOptions) -> Version:
    """Returns the version to answer from."""
    if options.keep == "no_worse":
        return _no_worse(versions)
    return versions[-1] if options.keep == "last" else best_of(versions)


def concluded(
    result: Result,
    stop: str,
    first: Result,
    versions: Sequence[Version],
    best: Version,
    again: JudgedReasoning | Unscored | None = None,
    **more: Any,
) -> Outcome:
    """Returns the outcome. All snapshots have the solver's answer, since only the end result is answered anew."""
    snapshots = [Snapshot(k, first, each.notes()) for k, each in enumerate(versions)]
    notes = {
        "reasoning": best.reasoning,
        "version": versions.index(best),
        RATINGS: best.ratings(again),
        FIRST_RATINGS: versions[0].ratings(),
        **more,
    }
    return Outcome(result, stop, tuple(snapshots), notes)
