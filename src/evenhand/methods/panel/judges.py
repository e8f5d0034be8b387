"""The options of panels, the judges and their chair, and the consensus. Judges are stateless.

A prompt goes from shared to specific parts: rules, situation, responses, label, judge, discussion. So cached prefixes
are shared by all identities up to the label, and by all judges up to their name. A consensus by rule is computed by
pure functions.
"""

from __future__ import annotations

import random
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, cast

import orjson
from pydantic import BaseModel, ConfigDict, Field

from evenhand.asking.panel import Order, Topology
from evenhand.core.errors import DataError, PlanError
from evenhand.core.files import checked, parse_yaml, read_bytes, read_yaml
from evenhand.core.options import Text
from evenhand.core.presets import Presets
from evenhand.core.prompts import Prompt, parse_prompt, prompt_text
from evenhand.core.types import Answer, Message, Params, Refusal, Result, Sample, SampleKind, Snapshot, Unscored
from evenhand.core.untrusted import fenced
from evenhand.judging.judge import JudgeReading
from evenhand.judging.judge import judge as rated
from evenhand.judging.rubric import DECLINED, Ratings, Rubric
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
from evenhand.reading.refusals import looks_like_refusal
from evenhand.session import BASE, Session

MOST_JUDGES = 8
_BUILTIN = {"judgement": "personas.yaml", "choice": "members.yaml"}
"""Kind of sample → the file of its built-in personas."""
_HINT = "Use a YAML file of names and descriptions."


class JudgeOptions(JudgeReading):
    presets: ClassVar = Presets.beside(__file__)

    temperature: float = Field(default=0.0, ge=0, le=2, description="The sampling temperature.")
    max_tokens: int = Field(
        default=0,
        ge=0,
        le=100_000,
        description="Maximum number of tokens of a reply; 0 allows what the reply needs.",
    )
    ties: bool = Field(default=True, description="Whether a judge may find neither of two responses better.")
    situation: bool = Field(default=True, description="Whether judges see the situation that the responses are to.")


class PanelOptions(JudgeOptions):
    judges: int = Field(default=4, ge=1, le=MOST_JUDGES, description="Number of judges.")
    personas: Text | None = Field(
        default="", description="A YAML file of names and descriptions; built-in ones by default."
    )
    rounds: int = Field(default=2, ge=0, le=20, description="Rounds of discussion after the first scores.")
    order: Order = Field(
        default="round_robin", description="Who speaks when: in turn, shuffled in each round, or all at once."
    )
    topology: Topology = Field(
        default="everyone", description="Who hears whom: everyone, only the one before, or the first."
    )
    consensus: Literal["mean", "median", "chair"] = Field(
        default="mean", description="How the last scores are combined."
    )
    graph: Text | None = Field(
        default="", description="A YAML file of roles, who hears whom, rounds and who decides, in place of the above."
    )
    shuffled: bool = Field(
        default=False, description="The same graph with its roles in other places, drawn by the seed: a control."
    )


def check_options(kind: SampleKind, options: PanelOptions) -> None:
    """Rejects missing or invalid personas or graphs."""
    team_of(options, kind)


def personas_for(options: PanelOptions, kind: SampleKind = "judgement") -> dict[str, str]:
    """Returns the first personas, one per judge: name → description."""
    path = Path(options.personas) if options.personas else Path(__file__).with_name(_BUILTIN[kind])
    found = _read(path, read_bytes(path, _HINT))
    if len(found) < options.judges:
        raise PlanError(
            f"There are {len(found)} personas for {options.judges} judges. Add personas or use fewer judges."
        )
    return dict(list(found.items())[: options.judges])


@cache
def _read(path: Path, content: bytes) -> Mapping[str, str]:
    read: Any = parse_yaml(content, path, _HINT)
    entries: dict[Any, Any] = cast("dict[Any, Any]", read) if isinstance(read, dict) else {}
    personas = {str(name).strip(): " ".join(text.split()) for name, text in entries.items() if isinstance(text, str)}
    if not personas or len(personas) < len(entries) or not all(personas) or not all(personas.values()):
        raise DataError("each persona must be a name and a description, as in `client: asks if it helps`.", file=path)
    return personas


@dataclass(frozen=True, slots=True)
class Team:
    """Who takes part in a panel, who hears whom, how often, and how they come to an end."""

    personas: Mapping[str, str]
    rounds: int
    consensus: str
    hears: Mapping[str, Sequence[str]] | None = None
    decides: str | None = None
    """The member whose last word counts, where the graph names one."""


class _Graph(BaseModel):
    model_config = ConfigDict(extra="forbid")
    roles: dict[str, str] = Field(min_length=1, max_length=MOST_JUDGES)
    hears: dict[str, list[str]] = Field(default_factory=dict)
    rounds: int = Field(default=2, ge=0, le=20)
    decides: str = "mean"


def team_of(options: PanelOptions, kind: SampleKind = "judgement", seed: int = 0) -> Team:
    """Returns the team of the options, or of the graph that they name."""
    if not options.graph:
        if options.shuffled:
            raise PlanError("Only a graph can be shuffled; name one with graph=FILE.")
        return Team(personas_for(options, kind), options.rounds, options.consensus)
    path = Path(options.graph).expanduser()
    hint = "It has roles, hears, rounds and decides."
    with checked("a graph", path, hint):
        graph = _Graph.model_validate(read_yaml(path, hint))
    named = {*graph.hears, *(each for heard in graph.hears.values() for each in heard)}
    if unknown := sorted(named - {*graph.roles}):
        raise DataError(f"hears names {unknown[0]!r}, which is none of the roles.", file=path)
    if graph.decides not in (*graph.roles, "mean", "median", CHAIR):
        raise DataError(f"decides is a role, mean, median or chair, not {graph.decides!r}.", file=path)
    moved = dict(zip(graph.roles, _moved(list(graph.roles), seed) if options.shuffled else graph.roles, strict=True))
    hears = {moved[name]: [moved[each] for each in heard] for name, heard in graph.hears.items()}
    decides = moved.get(graph.decides)
    return Team(graph.roles, graph.rounds, "mean" if decides else graph.decides, hears, decides)


def _moved(names: list[str], seed: int) -> list[str]:
    """Returns the names in another order; of two or more, never the same one."""
    order, rng = list(names), random.Random(f"graph/{seed}")
    while order == names and len(names) > 1:
        rng.shuffle(order)
    return order


CHAIR = "chair"
JUDGE_ROLES = tuple(f"judge{number}" for number in range(1, MOST_JUDGES + 1))
"""Model roles of the judges; a judge without its own model uses the base model."""

Task = Literal["alone", "open", "discuss", "chair"]

TIE = "tie"
_WINNERS = {"A": 0.0, "B": 1.0, TIE: 0.5}
_SIDES = ("A", "B")
_NUMBERS = {1: "one", 2: "two", 3: "three", 4: "four", 5: "five"}
_WINNER = 'Then you name the better one as the winner: "A", "B", or "tie" where neither is better.\nLast, '
_CHOSEN = 'Then you name the better one as the winner: "A" or "B". You must choose one.\nLast, '
_SITUATION = re.compile(r"^.*\{\{situation\}\}.*\n+", re.MULTILINE)
_MOST_WORDS = 60
"""Limit for a reason that other judges see; judges are asked for 25 words, and longer reasons are cut."""


@dataclass(frozen=True, slots=True)
class Seat:
    """A judge: its name, its persona, and the role of its model."""

    name: str
    persona: str = ""
    role: str = BASE


def seats_of(personas: Mapping[str, str]) -> tuple[Seat, ...]:
    return tuple(Seat(*persona, role) for persona, role in zip(personas.items(), JUDGE_ROLES, strict=False))


@dataclass(frozen=True, slots=True)
class JudgedCase:
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
    ties: bool = True
    """Whether a judge may find neither better."""
    told: bool = True
    """Whether judges see the situation."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.metrics)


def case_of(sample: Sample, *, fair: bool = False, blind: bool = False) -> JudgedCase:
    """Returns the case of a sample; a blind panel does not see the authors."""
    candidates = candidates_of(sample)
    if blind:
        candidates = tuple(Candidate(each.text) for each in candidates)
    responses = shown(candidates, sample.metadata.get("form", "sentence"))
    metrics = tuple(definitions_in(sample.metadata).items())
    winner = not sample.metadata.get(UNNAMED)
    return JudgedCase(fenced(sample.prompt), responses, len(candidates) > 1, metrics, winner, fair)


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
    case: JudgedCase,
    task: Task,
    seat: Seat,
    slot: str,
    heard: Mapping[str, Judgement],
    own: Given | None,
) -> Given:
    """Asks a judge or the chair for a judgement; a reply that cannot be parsed is requested once more."""
    options = session.options
    case = replace(case, ties=options.ties, told=options.situation)
    rubric = rubric_for(case, task)

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
    case: JudgedCase, prompt: Prompt, seat: Seat, heard: Mapping[str, Judgement], own: Given | None
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


def prompt_for(case: JudgedCase, task: Task) -> Prompt:
    """Returns layout and task as one prompt, so that a change of either changes its hash."""
    layout = "pair" if case.pair else "one"
    words = _Words(
        ";\n".join(f"- {name}: {text}" for name, text in case.metrics) + ".",
        ", ".join(f'"{name}": N' for name in _fields(case)) + (', "winner": "…"' if _names_winner(case) else ""),
        _NUMBERS.get(len(case.metrics), str(len(case.metrics))),
        (_WINNER if case.ties else _CHOSEN) if _names_winner(case) else "Then ",
    )
    whole = _text(layout) if case.told else _SITUATION.sub("", _text(layout))
    return _joined(layout, task, whole, _text(task), _text("fair") if case.fair else "", words)


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


def rubric_for(case: JudgedCase, task: Task) -> Rubric:
    """Returns the rubric: ratings of every candidate, for a pair the winner, then the reason."""
    prompt = prompt_for(case, task)
    if not _names_winner(case):
        return Rubric(prompt, _fields(case), ("why",), HIGHEST)
    winners = tuple(each for each in _WINNERS if case.ties or each != TIE)
    return Rubric(prompt, _fields(case), ("winner", "why"), HIGHEST, {"winner": winners})


def _names_winner(case: JudgedCase) -> bool:
    return case.pair and case.winner


def _fields(case: JudgedCase) -> tuple[str, ...]:
    """Returns the fields of the ratings; one candidate's come after the other's."""
    if not case.pair:
        return case.names
    return tuple(f"{side.lower()}_{metric}" for side in _SIDES for metric in case.names)


def judgement_of(ratings: Ratings, case: JudgedCase) -> Judgement:
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
    scores = [round(HIGHEST * value, 6) for value in ratings.values()]
    return tuple(tuple(scores[start : start + metrics]) for start in range(0, len(scores), metrics))


def _text(name: str) -> str:
    return prompt_text(__file__, name).strip()


_RULES: Mapping[str, Callable[[Sequence[float]], float]] = {"mean": statistics.fmean, "median": statistics.median}


def readable(given: Mapping[str, Given]) -> dict[str, Judgement]:
    """Returns the judgements that could be parsed, by judge."""
    return {name: each for name, each in given.items() if isinstance(each, Judgement)}


def pooled(judgements: Sequence[Judgement], rule: str = "mean") -> Judgement:
    """Pools each score by mean or median; the winner is always a mean, that is, a share of the panel."""
    winners = [each.winner for each in judgements if each.winner is not None]
    scores = tuple(
        tuple(_RULES[rule](scores) for scores in zip(*candidate, strict=True))
        for candidate in zip(*(each.scores for each in judgements), strict=True)
    )
    return Judgement(scores, winner=statistics.fmean(winners) if winners else None, metrics=judgements[0].metrics)


def failure(given: Mapping[str, Given]) -> Refusal | Unscored:
    """Returns the result if there is no judgement: a refusal if all judges refused."""
    refusals = [each for each in given.values() if isinstance(each, Refusal)]
    if len(refusals) == len(given):
        return refusals[0]
    unread = next(each for each in given.values() if isinstance(each, Unscored))
    return replace(unread, reason=f"no judgement of the last round could be parsed: {unread.reason}")


def as_json(judgement: Judgement) -> str:
    scores: list[dict[str, Any]] = [
        {name: round(score, 2) for name, score in zip(judgement.metrics, each, strict=True)}
        for each in judgement.scores
    ]
    if len(scores) == 1:
        return orjson.dumps(scores[0]).decode()
    both: dict[str, Any] = dict(zip("AB", scores, strict=True))
    share = None if judgement.winner is None else round(judgement.winner, 2)
    return orjson.dumps({**both, "share_for_b": share}).decode()


def snapshot(number: int, given: Mapping[str, Given]) -> Snapshot:
    """Returns a round's snapshot: the mean of its scores and every judge's statement."""
    judgements = list(readable(given).values())
    result: Result = Answer(as_json(pooled(judgements))) if judgements else failure(given)
    return Snapshot(number, result, {name: _said(each) for name, each in given.items()})


def _said(given: Given) -> str:
    match given:
        case Judgement():
            return f"{in_words(given)} {given.why}".rstrip()
        case Refusal(text):
            return f"declined: {text}"
        case Unscored(reason):
            return f"gave no reply that could be parsed: {reason}"
