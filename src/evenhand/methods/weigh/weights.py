"""The weights that combine the signals: fitted per model by `evenhand models calibrate`, or the prior ones.

Two logistic models for each level of calls. `told` gives the probability that the passage answers the question; `who`
ranks the people. A file of weights is also its own card: what it was fitted on, and how well it separates.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import orjson
from pydantic import BaseModel, ConfigDict, ValidationError

from evenhand.core.errors import DataError, PlanError
from evenhand.core.files import cache_folder
from evenhand.methods.weigh.signals import TOLD, WHO, Signals

FITTED, PRIOR = "fitted", "prior"
BIAS = "bias"
"""The constant term of `told`."""
_LARGEST = 50.0
"""Log-odds beyond this are certain, and would overflow."""


class Level(BaseModel):
    """The weights of one level of calls, by signal."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    told: dict[str, float]
    who: dict[str, float]


class Card(BaseModel):
    """The weights of a model, with what they were fitted on."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, protected_namespaces=())
    model: str
    date: str = ""
    passages: int = 0
    data_sha256: str = ""
    """Of the passages and questions."""
    fit: dict[int, dict[str, float]] = {}
    """Level → cross-validated AUC of `told`, and accuracy in percent on passages that tell and that do not."""
    levels: dict[int, Level]


@dataclass(frozen=True, slots=True)
class Weights:
    """The weights of one level, ready to use."""

    name: str
    hash: str
    level: Level

    def told(self, signals: Signals) -> float:
        """The probability that the passage answers the question."""
        odds = self.level.told.get(BIAS, 0.0) + _sum(self.level.told, signals.told)
        return 1 / (1 + math.exp(-min(max(odds, -_LARGEST), _LARGEST)))

    def who(self, signals: Signals) -> list[float]:
        """The probability of each person, if the passage answers the question."""
        scores = [_sum(self.level.who, each) for each in signals.who]
        shares = [math.exp(each - max(scores)) for each in scores]
        return [each / sum(shares) for each in shares]


def _sum(weights: Mapping[str, float], signals: Mapping[str, float]) -> float:
    return sum(weights.get(name, 0.0) * value for name, value in signals.items())


def card_path(spec: str) -> Path:
    """Where the weights of a model are stored."""
    readable = re.sub(r"[^\w.-]+", "-", spec).strip("-.")[-60:]
    return cache_folder() / "weigh" / f"{readable}-{hashlib.sha256(spec.encode()).hexdigest()[:8]}.json"


def load_weights(wanted: str, spec: str, calls: int) -> Weights:
    """The weights named `wanted` for the model `spec`: `fitted`, `prior`, a file, or the model they were fitted on."""
    if wanted == FITTED:
        path = card_path(spec)
        return _read(path, spec, calls) if path.is_file() else load_weights(PRIOR, spec, calls)
    if wanted == PRIOR:
        return _prior(calls)
    path = Path(wanted) if wanted.endswith(".json") else card_path(wanted)
    if not path.is_file():
        raise PlanError(f"There are no weights {wanted!r}; fit them with `evenhand models calibrate MODEL`.")
    return _read(path, wanted, calls)


def save_card(card: Card, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(orjson.dumps(card.model_dump(), option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS))


def read_card(path: Path) -> Card:
    return _parsed(path.read_bytes(), path)


def _read(path: Path, name: str, calls: int) -> Weights:
    content = path.read_bytes()
    return _weights(name, content, _parsed(content, path), calls)


@cache
def _prior(calls: int) -> Weights:
    path = Path(__file__).with_name("prior.json")
    content = path.read_bytes()
    return _weights(PRIOR, content, _parsed(content, path), calls)


def _weights(name: str, content: bytes, card: Card, calls: int) -> Weights:
    if calls not in card.levels:
        have = " or ".join(map(str, sorted(card.levels)))
        raise PlanError(f"The weights {name!r} were fitted for calls={have}, not {calls}; fit them again.")
    level = card.levels[calls]
    if unknown := (level.told.keys() - {BIAS, *TOLD}) | (level.who.keys() - {*WHO}):
        raise PlanError(
            f"The weights {name!r} are for signals that weigh does not read ({min(unknown)}); fit them again."
        )
    return Weights(name, hashlib.sha256(content).hexdigest()[:16], level)


def _parsed(content: bytes, path: Path) -> Card:
    try:
        return Card.model_validate_json(content)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "the file"
        raise DataError(f"this is no file of weights: {place}: {first['msg'].lower()}.", file=path) from error
