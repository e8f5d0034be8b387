"""Computes a panel's consensus by rule, and formats its rounds for the trace. Pure functions."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson

from evenhand.core.types import Answer, Refusal, Result, Snapshot, Unscored
from evenhand.methods.panel.judges import in_words
from evenhand.panels import Given, Judgement

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
    """Returns a consensus as one line of JSON."""
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
