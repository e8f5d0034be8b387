"""The card of a judge: how its ratings translate into probabilities, fitted by `evenhand calibrate MODEL --as-judge`.

Judges use their scales differently: one rates everything between 60 and 75, another says Yes to half of what is wrong.
The curves of a card make their ratings comparable: 0.5 is where the two kinds of text that it rated meet. Cards are
stored per model and used by its name; their hash is part of the plan.

A judge without a card gets the prior one (`prior_card.json`). Small models say Yes too easily, so an answer counts as
proved from P(Yes) = 0.65 on: where the ratings of a 1.5B model on our own passages part best. The ratings of larger
models lie near 0 and 1, where this changes nothing.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from evenhand.asking.judge import BANDS, JUDGE
from evenhand.core.errors import DataError, PlanError
from evenhand.core.options import Options, Text
from evenhand.core.paths import cache_folder
from evenhand.core.prompts import built_in_prompts, load_prompt
from evenhand.evaluators.calibration import Calibration
from evenhand.session import Session
from evenhand.stats.platt import log_odds, platt, sigmoid

FITTED, PRIOR, NONE = "fitted", "prior", "none"
CALLS = 450
"""About as many calls does it take to make a card."""


class Calibrated(Options):
    """The option that names the card of the judge."""

    calibration: Text = Field(
        default=FITTED,
        description="The judge's card: fitted (its own, else prior), prior, none, a file, or another judge's name.",
    )

    asks_yes_no: ClassVar[bool] = False
    """Whether ratings are also answers of Yes or No, which judges give without examples."""

    @property
    def card(self) -> str:
        """The card for ratings in numbers. A judge's own was made without examples, so it does not fit `bands`."""
        return NONE if self.calibration == FITTED and getattr(self, BANDS, False) else self.calibration

    @property
    def used_card(self) -> str:
        """The card that any rating of the method uses."""
        return self.calibration if self.asks_yes_no else self.card


class Curve(BaseModel):
    """How one rating translates into a probability, and how well the rating parts what it should."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    slope: float
    intercept: float
    auc: float
    rated: int
    """How many texts it was fitted on."""

    def probability(self, rating: float) -> float:
        return sigmoid(self.slope * log_odds(rating) + self.intercept)


class JudgeCard(BaseModel):
    """What is known of a model as a judge."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, protected_namespaces=())
    model: str
    date: str = ""
    curves: dict[str, Curve] = {}
    """Rating → its curve; ratings at chance have none."""
    at_chance: tuple[str, ...] = ()
    options: dict[str, dict[str, Any]] = {}
    """Method → the options that suit this judge."""
    prompts: dict[str, str] = {}
    """The prompts that it was asked with → their hashes."""
    hash: str = Field(default="", exclude=True)

    def probability(self, name: str, rating: float) -> float:
        """The rating as a probability; as it is where the card has no curve for it."""
        return self.curves[name].probability(rating) if name in self.curves else rating


NO_CARD = JudgeCard(model="")


def curve_of(found: Calibration) -> Curve | None:
    """The curve of a rating; None if the judge is at chance."""
    if found.threshold is None or found.auc is None:
        return None
    slope, intercept = platt(found.high, found.low)
    return Curve(
        slope=round(slope, 6),
        intercept=round(intercept, 6),
        auc=round(found.auc, 4),
        rated=len(found.high) + len(found.low),
    )


def card_path(spec: str) -> Path:
    """Where the card of a judge is stored."""
    readable = re.sub(r"[^\w.-]+", "-", spec).strip("-.")[-60:]
    return cache_folder() / "judges" / f"{readable}-{hashlib.sha256(spec.encode()).hexdigest()[:8]}.json"


def load_card(wanted: str, spec: str) -> JudgeCard:
    """The card named `wanted` for the judge `spec`: `fitted`, `prior`, `none`, a file, or the judge that it is of."""
    if wanted == NONE:
        return NO_CARD
    if wanted == PRIOR:
        return _read(Path(__file__).with_name("prior_card.json"), 0)
    if wanted == FITTED:
        path = card_path(spec)
        return _read(path, path.stat().st_mtime_ns) if path.is_file() else load_card(PRIOR, spec)
    path = Path(wanted) if wanted.endswith(".json") else card_path(wanted)
    if not path.is_file():
        raise PlanError(f"There is no card of a judge {wanted!r}; make it with `evenhand calibrate MODEL --as-judge`.")
    return _read(path, path.stat().st_mtime_ns)


def session_card(session: Session, *, yes_no: bool = False) -> JudgeCard:
    """The card of the session's judge for ratings in numbers, or for answers of Yes or No, as its options name it."""
    options = session.options
    if not isinstance(options, Calibrated):
        return NO_CARD
    return load_card(options.calibration if yes_no else options.card, session.model(JUDGE).spec)


def is_outdated(card: JudgeCard) -> bool:
    """Whether a prompt that the card was made with has other words now."""
    files = built_in_prompts()
    known = {name: files[name] for name in card.prompts if name in files}
    return any(load_prompt(str(path), path.stem).hash != card.prompts[name] for name, path in known.items())


def card_caveats(method: str, options: Options, judge: str) -> Iterator[str]:
    """Yields what readers must know of the judge of a method, sentences without a full stop."""
    if not isinstance(options, Calibrated) or options.calibration in (PRIOR, NONE):
        return
    if options.card == NONE:
        seen = f"The judge of {method} ({judge}) sees examples when it rates in numbers, which cards are made without"
        yield f"{seen}, so these ratings count as they are"
    card = load_card(options.used_card, judge)
    again = f"`evenhand calibrate {judge} --as-judge`"
    if card.model == PRIOR:
        yield (
            f"The judge of {method} ({judge}) was not calibrated, so its thresholds are those of another model; "
            f"{again} fits them in about {CALLS} short calls"
        )
    elif is_outdated(card):
        yield f"The card of the judge {judge} was made with other prompts; make it again with {again}"


def save_card(card: JudgeCard, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(orjson.dumps(card.model_dump(), option=orjson.OPT_INDENT_2))


@lru_cache(maxsize=64)
def _read(path: Path, _changed: int) -> JudgeCard:
    content = path.read_bytes()
    try:
        card = JudgeCard.model_validate_json(content)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "the file"
        raise DataError(f"this is no card of a judge: {place}: {first['msg'].lower()}.", file=path) from error
    return card.model_copy(update={"hash": hashlib.sha256(content).hexdigest()[:16]})
