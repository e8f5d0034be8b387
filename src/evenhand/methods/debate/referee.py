"""The referee: scores and ranks all statements of a round in one call.

The statements stand in an order drawn for each round, or the place of a role among them would seem to be its bias.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count
from string import ascii_lowercase

from evenhand.agents.debating import WORST, Statement
from evenhand.agents.session import Session
from evenhand.agents.untrusted import fenced
from evenhand.methods.debate.debaters import debating_role
from evenhand.prompts import load_prompt
from evenhand.scorers.rubric import Ratings, Rubric, rate
from evenhand.types import Generation, Message, Params, Sample, Unscored

REFEREE = "referee"
"""The referee's name, and the role of its model."""

PROMPT = load_prompt(__file__, "referee")


@dataclass(frozen=True, slots=True)
class Verdict:
    """The statements of a round with their scores; `problem` says why they have none."""

    statements: tuple[Statement, ...]
    problem: str = ""


async def judge(session: Session, sample: Sample, number: int, statements: Sequence[Statement]) -> Verdict:
    """The statements of a round, scored and ranked; where the referee cannot be read, as they are."""
    if not statements:
        return Verdict(())
    shown = list(statements)
    session.random(f"{REFEREE}/{number}").shuffle(shown)
    rubric = rubric_for(len(shown))
    role = REFEREE if REFEREE in session.models else debating_role(session)
    numbers = count()

    async def put(messages: Sequence[Message], params: Params) -> Generation:
        tokens = int(session.options["referee_tokens"]) or params.max_tokens
        slot = f"{number}/{next(numbers)}"
        params = replace(params, max_tokens=tokens)
        return await session.ask(PROMPT, messages, params, agent=REFEREE, role=role, slot=slot)

    messages = PROMPT.render(
        about=sample.metadata["about"],
        question=sample.prompt,
        statements="\n\n".join(
            f"Statement {letter.upper()}, by {each.role}: <<<{fenced(each.text)}>>>"
            for letter, each in zip(rubric.names, shown, strict=True)
        ),
        form=_form(rubric.names),
    )
    found = await rate(put, rubric, messages, session.model(role).features)
    if isinstance(found, Unscored):
        return Verdict(tuple(statements), found.reason)
    judged = {each.role: _judged(each, letter, found) for letter, each in zip(rubric.names, shown, strict=True)}
    return Verdict(tuple(judged[each.role] for each in statements))


def rubric_for(statements: int) -> Rubric:
    """A score for each letter, then the rank, then the reasons."""
    letters = tuple(ascii_lowercase[:statements])
    return Rubric(PROMPT, letters, ("rank", *(f"{letter}_why" for letter in letters)), WORST)


def _form(letters: Sequence[str]) -> str:
    """The reply as the prompt's example has it."""
    scores = [f'"{letter}": 0-{WORST}' for letter in letters]
    reasons = [f'"{letter}_why": "text"' for letter in letters]
    return "{" + ", ".join([*scores, '"rank": "letters, least prejudiced first"', *reasons]) + "}"


def read_rank(text: str, letters: Sequence[str]) -> tuple[str, ...] | None:
    """The letters in the order in which they are ranked, apart or in one word; None unless each is named once."""
    apart = re.findall(r"(?<![A-Za-z])[A-Za-z](?![A-Za-z])", text)
    named = tuple("".join(apart or re.findall(r"[A-Za-z]", text)).lower())
    return named if sorted(named) == sorted(letters) else None


def _judged(statement: Statement, letter: str, found: Ratings) -> Statement:
    rank = read_rank(found.texts["rank"], tuple(found.values))
    return replace(
        statement,
        score=round(WORST * found.values[letter], 6),
        written=round(WORST * found.written[letter], 6),
        rank=None if rank is None else rank.index(letter) + 1,
        why=found.texts[f"{letter}_why"],
    )
