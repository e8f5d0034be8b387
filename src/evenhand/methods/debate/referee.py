"""The referee: scores and ranks all statements of a round in one call.

The statements are shuffled in each round, so that a role's position cannot look like its bias.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from string import ascii_lowercase

from evenhand.benchmarks.debates import WORST, Statement
from evenhand.core import aio
from evenhand.core.prompts import load_prompt
from evenhand.core.types import Params, Sample, Unscored
from evenhand.core.untrusted import fenced
from evenhand.judging.judge import judge as rated
from evenhand.judging.judge import yes_probability
from evenhand.judging.rubric import Ratings, Rubric
from evenhand.methods.debate.debaters import debating_role
from evenhand.methods.debate.options import RefereeOptions
from evenhand.session import Session

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
    rubric = rubric_for(letters)
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
        form=_form(letters),
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


def rubric_for(letters: Sequence[str]) -> Rubric:
    """Returns the rubric: a score for each statement, then the rank, then the reasons."""
    return Rubric(load_prompt(__file__, "referee"), tuple(map(_score, letters)), ("rank", *map(_why, letters)), WORST)


def _score(letter: str) -> str:
    # The key says what the number means: small models score by the words that they have just written.
    return f"prejudice_{letter}"


def _why(letter: str) -> str:
    return f"why_{letter}"


def _form(letters: Sequence[str]) -> str:
    """Returns the form of the requested reply."""
    scores = [f'"{_score(letter)}": 0-{WORST}' for letter in letters]
    reasons = [f'"{_why(letter)}": "text"' for letter in letters]
    return "{" + ", ".join([*scores, '"rank": "letters, least prejudiced first"', *reasons]) + "}"


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
        why=ratings.texts[_why(letter)],
    )
