"""The options of debates and of RLAIF, their debaters and their referee. Agents are stateless.

The referee scores and ranks all statements of a round in one call. The statements are shuffled in each round, so that a
role's position cannot look like its bias.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from string import ascii_lowercase
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from evenhand.asking.reply import ask_and_read, declined
from evenhand.benchmarks.debates import WORST, DebateRole, Statement
from evenhand.core import aio
from evenhand.core.errors import PlanError
from evenhand.core.presets import Presets
from evenhand.core.prompts import Prompt, load_prompt
from evenhand.core.types import Completion, Cut, Message, Params, Sample, Unscored
from evenhand.core.untrusted import fenced
from evenhand.judging.judge import BandedReading, yes_probability
from evenhand.judging.judge import judge as rated
from evenhand.judging.rubric import Ratings, Rubric
from evenhand.methods.base import WritingOptions
from evenhand.reading.refusals import looks_like_refusal
from evenhand.session import BASE, Session

Scoring = Literal["numbers", "odds"]
"""A number from 0 to 10 that the referee writes, or the probability that it calls a statement prejudiced."""


class RefereeOptions(WritingOptions, BandedReading):
    max_tokens: int = Field(default=160, ge=16, le=100_000, description="Maximum number of tokens of a statement.")
    referee_tokens: int = Field(
        default=0,
        ge=0,
        le=100_000,
        description="Maximum number of tokens of the referee's reply; 0 allows as many as its form needs.",
    )
    scoring: Scoring = Field(
        default="numbers",
        description="The referee's score: a number from 0 to 10, or the probability that it calls a text prejudiced.",
    )
    reasons: bool = Field(default=True, description="Whether the referee says what it objects to.")


class DebateOptions(RefereeOptions):
    presets: ClassVar = Presets.beside(__file__, "debate")

    rounds: int = Field(default=5, ge=1, le=20, description="Number of rounds; every role speaks once in each.")
    temperature: float = Field(default=0.7, ge=0, le=2, description="The sampling temperature of the debaters.")
    words: int = Field(
        default=80,
        ge=10,
        le=10_000,
        description="Words that a statement should have. A model trained on statements learns their length.",
    )
    calls: Literal["role", "round"] = Field(
        default="role", description="Whether each role speaks in a call of its own, or one call writes the round."
    )
    hears: int = Field(
        default=0, ge=0, le=100, description="Latest statements that a role hears; 0: the latest of every other role."
    )
    beliefs: bool = Field(
        default=True, description="Whether debaters are asked what they believe of people who are not like them."
    )
    examples: bool = Field(
        default=False, description="Whether debaters see four examples of statements, as the paper's do."
    )


class RlaifOptions(RefereeOptions):
    presets: ClassVar = Presets.beside(__file__, "rlaif")

    answers: int = Field(default=4, ge=2, le=26, description="Number of answers that are sampled and scored.")
    temperature: float = Field(default=1.0, ge=0, le=2, description="The sampling temperature of the answers.")

    @model_validator(mode="after")
    def _different(self) -> Self:
        if self.temperature == 0:
            raise PlanError(
                "At temperature 0 all answers are the same, but RLAIF needs different ones to compare. "
                "Set a temperature above 0."
            )
        return self


TEACHER = "teacher"
"""The role of a model that debates instead of the audited one."""

_SENTENCES = re.compile(r".*(?<!^\d)(?<!\s\d)(?<!\s\d\d)[.!?][\"'”’)]?(?=\s|$)", re.DOTALL)
"""Whole sentences; the number of an item of a list is not the end of one."""


@dataclass(frozen=True, slots=True)
class Silence:
    """A turn without a statement that could be judged."""

    reason: str
    text: str = ""
    cut: bool = False
    """Whether the token limit came before the first word."""


def debating_role(session: Session) -> str:
    """Returns the role whose model debates: the teacher if there is one."""
    return TEACHER if TEACHER in session.models else BASE


async def speak(
    session: Session[DebateOptions],
    sample: Sample,
    role: DebateRole,
    number: int,
    heard: Sequence[tuple[str, str]],
    own: Statement | None,
) -> Statement | Silence:
    """Returns a role's statement in a round; `own` is its judged statement of the previous round."""
    first = "open" if session.options.beliefs else "open_position"
    prompt = load_prompt(__file__, first if own is None else "again")
    values = {
        "name": role.name,
        "description": role.description,
        "title": sample.metadata["title"],
        "question": sample.prompt,
        "words": str(session.options.words),
        "heard": "\n".join(f"- {name}: <<<{fenced(text)}>>>" for name, text in heard) or "- nothing yet",
    }
    if own is not None:
        values |= {"own": own.text, "verdict": _verdict(own)}
    messages = _with_examples(session, prompt.render(**values))
    return await stated(session, prompt, messages, role.name, number, slot=str(number))


async def speak_together(
    session: Session[DebateOptions],
    sample: Sample,
    roles: Sequence[DebateRole],
    number: int,
    before: Sequence[Statement],
) -> tuple[dict[str, Statement | Silence], RoundScores]:
    """Returns what all roles say in a round and the referee's scores, written in one call.

    `before` are the statements of the last round.
    """
    prompt = load_prompt(__file__, "round")
    scored = "\n".join(f"- {each.role}: <<<{fenced(each.text)}>>> {_verdict(each)}" for each in before)
    messages = prompt.render(
        title=sample.metadata["title"],
        question=sample.prompt,
        words=str(session.options.words),
        roles="\n".join(f"- {each.name}: {each.description}" for each in roles),
        before=f"The last round, with the referee's scores:\n{scored}" if scored else "This is the first round.",
        form="\n".join(f"{each.name}: …" for each in roles),
        scores=", ".join(f"{each.name} = 0-{WORST}" for each in roles),
    )
    names = [each.name for each in roles]
    params = replace(session.options.params, max_tokens=session.options.max_tokens * (len(roles) + 1))
    asked = _with_examples(session, messages)
    found = await ask_and_read(
        session, prompt, asked, params, partial(_read_round, names=names), agent="round", role=debating_role(session),
        slot=str(number),
    )  # fmt: skip
    if isinstance(found, Unscored | Silence):
        silence = found if isinstance(found, Silence) else Silence(found.reason, found.raw, isinstance(found, Cut))
        return dict.fromkeys(names, silence), RoundScores(())
    said = {name: Statement(name, number, text) for name in names if (text := found.get(name))}
    turns = {name: said.get(name, Silence("said nothing")) for name in names}
    return turns, _scored_together(list(said.values()), found.get(REFEREE, ""))


def _scored_together(statements: Sequence[Statement], line: str) -> RoundScores:
    """Reads the referee's line: a score after each name, then the names in the order of their rank."""
    written, _, ranked = line.lower().partition("rank")
    names = {each.role: rf"(?<![\w-]){re.escape(each.role.lower())}(?![\w-])" for each in statements}
    places = {role: found.start() for role, name in names.items() if (found := re.search(name, ranked))}
    order = sorted(places, key=places.__getitem__) if len(places) == len(names) else []
    scored: list[Statement] = []
    for each in statements:
        found = re.search(rf"{names[each.role]}\W*?[=:]\s*(\d+(?:\.\d+)?)", written)
        score = float(found[1]) if found and float(found[1]) <= WORST else None
        rank = order.index(each.role) + 1 if order and score is not None else None
        scored.append(replace(each, score=score, written=score, rank=rank))
    missing = any(each.score is None for each in scored)
    return RoundScores(tuple(scored), Unscored("the referee's scores are not in the round", line) if missing else None)


def _read_round(completion: Completion, names: Sequence[str]) -> dict[str, str] | Silence | Unscored:
    """Returns role → statement, of lines that begin with the role's name."""
    if refusal := declined(completion):
        return Silence("declined", refusal.text)
    speakers = (*names, REFEREE)
    marks = "|".join(map(re.escape, speakers))
    pieces = re.split(rf"(?im)^\W*({marks})\W*:[*_\s]*", completion.text)
    known = {name.lower(): name for name in speakers}
    found = {known[mark.lower()]: " ".join(text.split()) for mark, text in zip(pieces[1::2], pieces[2::2], strict=True)}
    if not any(name in found for name in names):
        whole = completion.text.strip()
        return Silence("declined", whole) if looks_like_refusal(whole) else Unscored("no role speaks", completion.text)
    return found


def _with_examples(session: Session[DebateOptions], messages: Sequence[Message]) -> Sequence[Message]:
    """Returns the messages, with examples in the first one where they are wanted."""
    if not session.options.examples:
        return messages
    (shown,) = load_prompt(__file__, "examples").render()
    first, *rest = messages
    return (replace(first, content=f"{first.content}\n\n{shown.content}"), *rest)


async def stated(
    session: Session[RefereeOptions],
    prompt: Prompt,
    messages: Sequence[Message],
    name: str,
    number: int,
    slot: str | None = None,
) -> Statement | Silence:
    """Asks for a statement; one that is cut before its first word is requested once more."""
    said = await ask_and_read(
        session,
        prompt,
        messages,
        session.options.params,
        partial(read_statement, name=name),
        agent=name,
        role=debating_role(session),
        slot=slot,
    )
    if isinstance(said, Unscored):
        return Silence(said.reason, said.raw, isinstance(said, Cut))
    return Statement(name, number, said) if isinstance(said, str) else said


def read_statement(completion: Completion, name: str) -> str | Silence | Unscored:
    """Returns the statement without a leading name or a cut-off last sentence."""
    if refusal := declined(completion):
        return Silence("declined", refusal.text)
    text = completion.text.strip()
    if looks_like_refusal(text):
        return Silence("declined", text)
    text = re.sub(rf"^\W*{re.escape(name)}\W*:[*_\s]*", "", text, flags=re.IGNORECASE)
    if completion.finish == "length" and (whole := _SENTENCES.match(text)):
        text = whole[0]
    text = " ".join(text.split())
    if text[:1] == '"' == text[-1:] and text.count('"') == 2:
        text = text.strip('"').strip()
    return text or Unscored("said nothing", completion.text)


def _verdict(own: Statement) -> str:
    if own.written is None:
        return "What the referee thinks of it could not be read."
    objection = f" The objection: <<<{fenced(own.why)}>>>" if own.why else ""
    return f"The referee gives it a bias score of {own.written:g} out of {WORST}, where 0 is best.{objection}"


REFEREE = "referee"
"""The referee's name, and the role of its model."""


@dataclass(frozen=True, slots=True)
class RoundScores:
    """The scored statements of a round; `problem` says why scores are missing."""

    statements: tuple[Statement, ...]
    problem: Unscored | None = None


async def judge(
    session: Session[RefereeOptions], sample: Sample, number: int, statements: Sequence[Statement]
) -> RoundScores:
    """Scores and ranks the statements of a round; returns them unscored if the referee's reply cannot be parsed."""
    if not statements:
        return RoundScores(())
    shown = list(statements)
    session.random(f"{REFEREE}/{number}").shuffle(shown)
    letters = ascii_lowercase[: len(shown)]
    reasons = session.options.reasons
    rubric = rubric_for(letters, reasons=reasons)
    role = REFEREE if REFEREE in session.models else debating_role(session)

    def adjusted(params: Params) -> Params:
        return replace(params, max_tokens=session.options.referee_tokens or params.max_tokens)

    messages = rubric.prompt.render(
        about=sample.metadata["about"],
        question=sample.prompt,
        statements="\n\n".join(
            f"Statement {letter.upper()}, by {each.role}: <<<{fenced(each.text)}>>>"
            for letter, each in zip(letters, shown, strict=True)
        ),
        form=_form(letters, reasons=reasons),
    )
    ratings = await rated(session, rubric, messages, agent=REFEREE, role=role, slot=str(number), adjusted=adjusted)
    problem = ratings if isinstance(ratings, Unscored) else None
    if isinstance(ratings, Ratings):
        rank = read_rank(ratings.texts["rank"], letters)
        shown = [_judged(each, letter, ratings, rank) for letter, each in zip(letters, shown, strict=True)]
    judged = {each.role: each for each in shown}
    scored = [judged[each.role] for each in statements]
    if session.options.scoring == "odds":
        odds = await aio.all_of([odds_of(session, sample, each.text, role) for each in scored])
        scored = [_by_odds(each, probability) for each, probability in zip(scored, odds, strict=True)]
        problem = problem or next((each for each in odds if isinstance(each, Unscored)), None)
    return RoundScores(tuple(scored), problem)


async def odds_of(session: Session, sample: Sample, text: str, role: str) -> float | Unscored:
    """Returns the probability that the referee calls a statement prejudiced, in a yes-or-no question."""
    prompt = load_prompt(__file__, "odds")
    messages = prompt.render(question=sample.prompt, statement=fenced(text))
    return await yes_probability(session, prompt, messages, agent=REFEREE, role=role)


def _by_odds(statement: Statement, odds: float | Unscored) -> Statement:
    if isinstance(odds, Unscored):
        return replace(statement, score=None, written=None)
    return replace(statement, score=round(WORST * odds, 6), written=round(WORST * odds))


def rubric_for(letters: Sequence[str], *, reasons: bool = True) -> Rubric:
    """Returns the rubric: a score for each statement, then the rank, then the reasons where they are wanted."""
    prompt = load_prompt(__file__, "referee" if reasons else "referee_plain")
    said = map(_why, letters) if reasons else ()
    return Rubric(prompt, tuple(map(_score, letters)), ("rank", *said), WORST)


def _score(letter: str) -> str:
    # The key says what the number means: small models score by the words that they have just written.
    return f"prejudice_{letter}"


def _why(letter: str) -> str:
    return f"why_{letter}"


def _form(letters: Sequence[str], *, reasons: bool) -> str:
    scores = [f'"{_score(letter)}": 0-{WORST}' for letter in letters]
    said = [f'"{_why(letter)}": "text"' for letter in letters] if reasons else []
    return "{" + ", ".join([*scores, '"rank": "letters, least prejudiced first"', *said]) + "}"


def read_rank(text: str, letters: Sequence[str]) -> tuple[str, ...] | None:
    """Parses the ranked letters, separate or in one word; None unless each is named exactly once."""
    apart = re.findall(r"(?<![A-Za-z])[A-Za-z](?![A-Za-z])", text)
    named = tuple("".join(apart or re.findall(r"[A-Za-z]", text)).lower())
    return named if sorted(named) == sorted(letters) else None


def _judged(statement: Statement, letter: str, ratings: Ratings, rank: Sequence[str] | None) -> Statement:
    return replace(
        statement,
        score=round(WORST * ratings.values[_score(letter)], 6),
        written=round(WORST * ratings.written[_score(letter)], 6),
        rank=None if rank is None else rank.index(letter) + 1,
        why=ratings.texts.get(_why(letter), ""),
    )
