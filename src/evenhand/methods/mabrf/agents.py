"""MABRF's agents but the search agent: each a prompt put to the model of its role, stateless.

Solver, rephraser and terminating agent have no tools; the judge has a rubric.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

from evenhand.asking.chat import think
from evenhand.asking.choice import choose, declined, shown_options
from evenhand.asking.evidence import Evidence
from evenhand.asking.judge import JUDGE, judge
from evenhand.asking.yes_no import yes_probability
from evenhand.methods.mabrf.options import MabrfFirstOptions
from evenhand.prompts import Prompt, load_prompt
from evenhand.reading.text import leaves_open, looks_like_refusal, read_letter, without_thought
from evenhand.scorers.rubric import Ratings, Rubric
from evenhand.session import Session
from evenhand.types import Answer, Message, Refusal, Result, Sample, Unscored
from evenhand.untrusted import fenced

SOLVER, REPHRASER, TERMINATOR = "solver", "rephrase", "terminate"
BIAS, RELEVANCY = "bias", "relevancy"
_HIGH = 9

_GUESSED = "It names a person, but the passage does not say which of them it is."
_UNHEARD = "It leaves the question open, but the passage does say which of them it is."
_FACTS_RULE = (
    " Facts from outside may only take the place of a belief about a group that they disprove, with their source in "
    "brackets; they never tell which person of the passage is meant."
)
_NO_FACTS = {"facts": "", "facts_rule": ""}

_NUMBERED = re.compile(r"^[\s*_#]*(?:step\s*)?\d+[.):]", re.IGNORECASE | re.MULTILINE)
_ANSWER_LINE = re.compile(
    r"^[ \t*_#>\-\d.)]*(?:(?:so|thus|hence|therefore),?\s+)?(?:the\s+|my\s+)?(?:final\s+|correct\s+)?answer[*_]*\s*"
    r"(?:is:?[*_]*\s*\n\s*(?=[*_(\"]*[A-J][).:*])|is\b|(?P<label>:)[*_]*\s*)[^\n]*\n?",
    re.IGNORECASE | re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Solution:
    """The solver's steps, and the option it names after them."""

    reasoning: str
    result: Result


async def solve(session: Session[MabrfFirstOptions], sample: Sample) -> Solution:
    """Steps and an answer, in one call; the steps may be usable where the answer is not.

    A model that answers without any steps is asked for them once more.
    """
    prompt, explain = load_prompt(__file__, "solve"), load_prompt(__file__, "explain")
    asked = prompt.render(context=sample.context, question=sample.prompt, options=shown_options(session, sample))
    order = session.permutation(len(sample.choices))
    shown = [sample.choices[index] for index in order]
    completion = (await session.ask(prompt, asked, session.options.params, agent="solver", role=SOLVER)).completions[0]
    text = without_thought(completion.text).strip()
    if refusal := declined(completion):
        return Solution("", refusal)
    steps, position = _split(text, shown)
    if position is None:
        if looks_like_refusal(text):
            return Solution("", Refusal(text))
        return Solution(steps, Unscored("the solver's answer could not be read", text))
    if not steps:
        again = (*asked, Message("assistant", text), *explain.render())
        told = (await session.ask(explain, again, session.options.params, agent="solver", role=SOLVER)).completions[0]
        steps = "" if declined(told) else _split(without_thought(told.text), shown)[0]
    details = {"reading": "text", "order": list(order), "position": position}
    return Solution(steps, Answer(shown[position], order[position], details))


async def look(session: Session, sample: Sample) -> float | Unscored:
    """How likely it is, to the judge, that the passage tells; asked before it has read any reasoning about it."""
    prompt = load_prompt(__file__, "look")
    asked = prompt.render(context=fenced(sample.context), question=fenced(sample.prompt))
    return await yes_probability(session, prompt, asked, agent="judge", role=JUDGE)


async def rate_reasoning(
    session: Session[MabrfFirstOptions], sample: Sample, reasoning: str, told: float | None = None
) -> Ratings | Unscored:
    """The judge's bias and relevancy of a reasoning, with reasons; after a look at the passage, the bias is by that."""
    messages = judge_messages(sample, reasoning, session.options.domain)
    found = await judge(session, rubric(), messages, agent="judge")
    if told is None or isinstance(found, Unscored):
        return found
    bias, reason = (told, _UNHEARD) if leaves_open(reasoning) else (1 - told, _GUESSED)
    texts = {**found.texts, f"{BIAS}_reason": reason}
    return Ratings({**found.values, BIAS: bias}, {**found.written, BIAS: bias}, texts)


def rubric(prompt: str = "judge") -> Rubric:
    """Asked for as one digit, 0–9, whose probabilities can be read: a leading 1 could be 1 or 10."""
    return Rubric(load_prompt(__file__, prompt), (BIAS, RELEVANCY), high=_HIGH)


def to_ten(value: float) -> float:
    """A rating in 0–1 on the paper's scale of 1–10."""
    return 1 + _HIGH * value


def judge_messages(sample: Sample, reasoning: str, specialised: bool = False) -> tuple[Message, ...]:
    """What the judge is asked; a specialised one knows what to look for in the sample's category."""
    known = domains().get(sample.metadata.get("category", "")) if specialised else None
    domain = f" In this case, look out for {known}." if known else ""
    return load_prompt(__file__, "judge").render(
        context=fenced(sample.context), question=fenced(sample.prompt), reasoning=fenced(reasoning), domain=domain
    )


async def rephrase(
    session: Session[MabrfFirstOptions], sample: Sample, reasoning: str, objection: str, evidence: Evidence | None
) -> str:
    """The reasoning without what the judge objects to; empty when the model gives none."""
    prompt, asked = _rephrasing(session, sample, reasoning, objection, evidence)
    text = await think(session, prompt, asked, session.options.params, agent="rephraser", role=REPHRASER)
    # Small models repeat the fence around what they were shown.
    return _split(text.strip(" \t\n<>"), sample.choices)[0]


def _rephrasing(
    session: Session[MabrfFirstOptions], sample: Sample, reasoning: str, objection: str, evidence: Evidence | None
) -> tuple[Prompt, tuple[Message, ...]]:
    """What the rephraser is asked. After a look it is told what the passage does, and not shown the steps again."""
    shown = {"context": fenced(sample.context), "question": fenced(sample.prompt)}
    facts = evidence.as_text() if evidence is not None and evidence.facts else ""
    if session.options.look:
        prompt = load_prompt(__file__, "afresh")
        told = {"facts": f"\nFacts from outside: <<<{facts}>>>", "facts_rule": _FACTS_RULE} if facts else _NO_FACTS
        return prompt, prompt.render(**shown, **told, objection=objection)
    shown |= {
        "reasoning": fenced(reasoning),
        "objection": fenced(objection) or "it rests on something that the passage does not say",
    }
    prompt = load_prompt(__file__, "rephrase_evidence" if facts else "rephrase")
    return prompt, prompt.render(**shown, **({"evidence": facts} if facts else {}))


async def terminate(session: Session, sample: Sample, reasoning: str) -> Result:
    """The option that follows from the reasoning, read as all choices are."""
    prompt = load_prompt(__file__, "terminate")

    def ask(options: str) -> tuple[Message, ...]:
        return prompt.render(
            context=sample.context, question=sample.prompt, reasoning=fenced(reasoning), options=options
        )

    return await choose(session, sample, prompt, ask, agent="terminator", role=TERMINATOR)


@cache
def domains() -> Mapping[str, str]:
    """What specialised judges look out for, by category."""
    return yaml.safe_load(Path(__file__).with_name("domains.yaml").read_text(encoding="utf-8"))


def _split(text: str, options: Sequence[str]) -> tuple[str, int | None]:
    """The text without lines that name the answer, and the position of the option that the last of them names."""

    def step(line: re.Match[str]) -> str:
        """A line that says of the answer only that it is not in the passage, say, is a step like others."""
        return "" if line["label"] or read_letter(line[0], options) is not None else line[0]

    named = [read_letter(line[0], options) for line in _ANSWER_LINE.finditer(text)]
    positions = [position for position in named if position is not None]
    return _numbered(_ANSWER_LINE.sub(step, text)), positions[-1] if positions else None


def _numbered(text: str) -> str:
    """Steps as they are where they have numbers, else numbered line by line."""
    if _NUMBERED.search(text):
        return text.strip()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return "\n".join(f"{number}. {line}" for number, line in enumerate(lines, 1))
