"""The judges of a panel and its chair: builds their prompts and parses their replies. Judges are stateless.

A prompt goes from shared to specific parts: rules, situation, responses, label, judge, discussion. So cached prefixes
are shared by all identities up to the label, and by all judges up to their name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal, NamedTuple

from evenhand.core.prompts import Prompt, parse_prompt, prompt_text
from evenhand.core.types import Message, Params, Refusal, Sample
from evenhand.core.untrusted import fenced
from evenhand.judging.judge import judge as rated
from evenhand.judging.rubric import DECLINED, Ratings, Rubric
from evenhand.methods.panel.options import MOST_JUDGES, JudgeOptions
from evenhand.panels import (
    HIGHEST,
    UNNAMED,
    Candidate,
    Form,
    Given,
    Judgement,
    candidates_of,
    definitions_in,
)
from evenhand.reading.text import looks_like_refusal
from evenhand.session import BASE, Session

CHAIR = "chair"
JUDGE_ROLES = tuple(f"judge{number}" for number in range(1, MOST_JUDGES + 1))
"""Model roles of the judges; a judge without its own model uses the base model."""

Task = Literal["alone", "open", "discuss", "chair"]

_WINNERS = {"A": 0.0, "B": 1.0, "tie": 0.5}
_SIDES = ("A", "B")
_NUMBERS = {1: "one", 2: "two", 3: "three", 4: "four", 5: "five"}
_WINNER = 'Then you name the better one as the winner: "A", "B", or "tie" where neither is better.\nLast, '
_MOST_WORDS = 60
"""Limit for a reason that other judges see; judges are asked for 25 words, and longer reasons are cut."""


@dataclass(frozen=True, slots=True)
class Seat:
    """A judge: its name, its persona, and the role of its model."""

    name: str
    persona: str = ""
    role: str = BASE


def seats_of(personas: Mapping[str, str]) -> tuple[Seat, ...]:
    """Returns one seat per persona."""
    return tuple(Seat(*persona, role) for persona, role in zip(personas.items(), JUDGE_ROLES, strict=False))


@dataclass(frozen=True, slots=True)
class Case:
    """The situation and responses, as all judges of a panel see them."""

    situation: str
    responses: str
    pair: bool
    metrics: tuple[tuple[str, str], ...]
    """(name, definition) of what is scored."""
    winner: bool = True
    """Whether judges of a pair name the winner; if not, the higher mean score wins."""
    fair: bool = False
    """Whether judges are told that the author is no reason for a score."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.metrics)


def case_of(sample: Sample, *, fair: bool = False, blind: bool = False) -> Case:
    """Returns the case of a sample; a blind panel does not see the authors."""
    candidates = candidates_of(sample)
    if blind:
        candidates = tuple(Candidate(each.text) for each in candidates)
    responses = shown(candidates, sample.metadata.get("form", "sentence"))
    metrics = tuple(definitions_in(sample.metadata).items())
    winner = not sample.metadata.get(UNNAMED)
    return Case(fenced(sample.prompt), responses, len(candidates) > 1, metrics, winner, fair)


def shown(candidates: Sequence[Candidate], form: Form) -> str:
    """Formats the responses with their labels; a missing label leaves no trace."""
    sides = [f" {side}" for side in _SIDES] if len(candidates) > 1 else [""]
    texts = [f"<<<{fenced(each.text)}>>>" for each in candidates]
    if form == "tag":
        tags = [f" ({each.tag})" if each.tag else "" for each in candidates]
        return "\n\n".join(f"Candidate{side}{tag}: {text}" for side, tag, text in zip(sides, tags, texts, strict=True))
    parts = [f"Response{side}: {text}" for side, text in zip(sides, texts, strict=True)]
    named = [
        (f"Response{side}" if side else "The response", each.author)
        for side, each in zip(sides, candidates, strict=True)
    ]
    labels = [f"{response} was written by {author}." for response, author in named if author]
    return "\n\n".join([*parts, " ".join(labels)]).strip()


async def ask(
    session: Session[JudgeOptions],
    case: Case,
    task: Task,
    seat: Seat,
    slot: str,
    heard: Mapping[str, Judgement],
    own: Given | None,
) -> Given:
    """Asks a judge or the chair for a judgement; a reply that cannot be parsed is requested once more."""
    rubric = rubric_for(case, task)
    options = session.options

    def adjusted(params: Params) -> Params:
        params = replace(params, max_tokens=options.max_tokens or params.max_tokens)
        own = params.n == 1 or "temperature" in options.model_fields_set
        return replace(params, temperature=options.temperature) if own else params

    messages = messages_for(case, rubric.prompt, seat, heard, own)
    found = await rated(session, rubric, messages, agent=seat.name, role=seat.role, slot=slot, adjusted=adjusted)
    if isinstance(found, Ratings):
        return judgement_of(found, case)
    declined = found.reason == DECLINED or looks_like_refusal(found.raw)
    return Refusal(found.raw) if declined else found


def messages_for(
    case: Case, prompt: Prompt, seat: Seat, heard: Mapping[str, Judgement], own: Given | None
) -> tuple[Message, ...]:
    """Renders the prompt of a task with the values that it has variables for."""
    values = {
        "situation": case.situation,
        "responses": case.responses,
        "name": seat.name,
        "persona": seat.persona,
        "own": _quoted(own) if isinstance(own, Judgement) else "none that could be read.",
        "heard": "\n".join(f"- {name}: {_quoted(each)}" for name, each in heard.items()) or "- nothing yet",
    }
    return prompt.render(**{name: value for name, value in values.items() if name in prompt.variables})


def in_words(judgement: Judgement) -> str:
    """Formats the scores as written, and the winner."""
    named = [zip(judgement.metrics, each, strict=True) for each in judgement.written]
    numbers = [", ".join(f"{name} {score:g}" for name, score in each) for each in named]
    if len(numbers) > 1:
        numbers = [f"{side}: {each}" for side, each in zip(_SIDES, numbers, strict=True)]
    winner = next((f"; winner: {name}" for name, value in _WINNERS.items() if value == judgement.winner), "")
    return f"{'; '.join(numbers)}{winner}."


def _quoted(judgement: Judgement) -> str:
    """Formats a judgement for other judges; the reason is fenced as data."""
    words = judgement.why.split()
    why = fenced(" ".join(words[:_MOST_WORDS]) + ("…" if len(words) > _MOST_WORDS else ""))
    return f"{in_words(judgement)} <<<{why}>>>" if why else in_words(judgement)


def prompt_for(case: Case, task: Task) -> Prompt:
    """Returns layout and task as one prompt, so that a change of either changes its hash."""
    layout = "pair" if case.pair else "one"
    words = _Words(
        ";\n".join(f"- {name}: {text}" for name, text in case.metrics) + ".",
        ", ".join(f'"{name}": N' for name in _fields(case)) + (', "winner": "…"' if _names_winner(case) else ""),
        _NUMBERS.get(len(case.metrics), str(len(case.metrics))),
        _WINNER if _names_winner(case) else "Then ",
    )
    return _joined(layout, task, _text(layout), _text(task), _text("fair") if case.fair else "", words)


class _Words(NamedTuple):
    """What a layout says about the metrics and the reply."""

    metrics: str
    fields: str
    number: str
    winner: str


@cache
def _joined(layout: str, task: Task, whole: str, asked: str, fair: str, words: _Words) -> Prompt:
    source = f"{whole}\n\n{asked}".replace("\n{{fair}}", f"\n{fair}" if fair else "")
    for name, text in words._asdict().items():
        source = source.replace("{{" + name + "}}", text)
    return parse_prompt(f"panel/{layout}_{task}{'_fair' if fair else ''}", source)


def rubric_for(case: Case, task: Task) -> Rubric:
    """Returns the rubric: ratings of every candidate, for a pair the winner, then the reason."""
    prompt = prompt_for(case, task)
    if not _names_winner(case):
        return Rubric(prompt, _fields(case), ("why",), HIGHEST)
    return Rubric(prompt, _fields(case), ("winner", "why"), HIGHEST, {"winner": tuple(_WINNERS)})


def _names_winner(case: Case) -> bool:
    return case.pair and case.winner


def _fields(case: Case) -> tuple[str, ...]:
    """Returns the fields of the ratings; one candidate's come after the other's."""
    if not case.pair:
        return case.names
    return tuple(f"{side.lower()}_{metric}" for side in _SIDES for metric in case.names)


def judgement_of(ratings: Ratings, case: Case) -> Judgement:
    """Returns the ratings as a judgement, on the scale of the metrics."""
    scores, written = (_by_candidate(each, len(case.metrics)) for each in (ratings.values, ratings.written))
    winner = None
    if case.pair:
        winner = _WINNERS[ratings.texts["winner"]] if case.winner else _higher(scores)
    return Judgement(scores, written, winner, ratings.texts["why"], case.names)


def _higher(scores: Sequence[Sequence[float]]) -> float:
    """Returns the candidate with the higher mean score as the winner."""
    first, second = (sum(each) for each in scores)
    return _WINNERS["tie"] if first == second else _WINNERS["A" if first > second else "B"]


def _by_candidate(ratings: Mapping[str, float], metrics: int) -> tuple[tuple[float, ...], ...]:
    """Groups ratings by candidate."""
    scores = [round(HIGHEST * value, 6) for value in ratings.values()]
    return tuple(tuple(scores[start : start + metrics]) for start in range(0, len(scores), metrics))


def _text(name: str) -> str:
    return prompt_text(__file__, name).strip()
