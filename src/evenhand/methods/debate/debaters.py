"""The debaters: builds their prompts and parses their statements. Debaters are stateless."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from evenhand.asking.choice import declined
from evenhand.asking.reply import ask_and_read
from evenhand.benchmarks.debates import WORST, DebateRole, Statement
from evenhand.core.prompts import Prompt, load_prompt
from evenhand.core.types import Completion, Cut, Message, Sample, Unscored
from evenhand.core.untrusted import fenced
from evenhand.methods.debate.options import DebateOptions, RefereeOptions
from evenhand.reading.text import looks_like_refusal
from evenhand.session import BASE, Session

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
    heard: Mapping[str, str],
    own: Statement | None,
) -> Statement | Silence:
    """Returns a role's statement in a round; `own` is its judged statement of the previous round."""
    prompt = load_prompt(__file__, "open" if own is None else "again")
    values = {
        "name": role.name,
        "description": role.description,
        "title": sample.metadata["title"],
        "question": sample.prompt,
        "words": str(session.options.words),
        "heard": "\n".join(f"- {name}: <<<{fenced(text)}>>>" for name, text in heard.items()) or "- nothing yet",
    }
    if own is not None:
        values |= {"own": own.text, "verdict": _verdict(own)}
    return await stated(session, prompt, prompt.render(**values), role.name, number, slot=str(number))


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
