"""Calibration of a judge, and its card: how its ratings are read, and how they translate into probabilities.

`evenhand judges check MODEL` has a model rate texts of known value, which methods (`JudgeTest`) and scorers declare,
and finds the curve and the threshold that separate them best. A threshold is valid only for its judge.

Judges use their scales differently: one rates everything between 60 and 75, another says Yes to half of what is wrong.
The curves of a card make their ratings comparable: 0.5 is where the two kinds of text that it rated meet. Cards are
stored per model and used by its name; their hash is part of the plan.

A judge without a card gets the prior one (`prior_card.json`). Small models say Yes too easily, so an answer counts as
proved from P(Yes) = 0.65 on: where the ratings of a 1.5B model on our own passages part best. The ratings of larger
models lie near 0 and 1, where this changes nothing.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import random
from collections.abc import Awaitable, Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, ClassVar

import orjson
from pydantic import BaseModel, ConfigDict, Field

from evenhand.core import aio
from evenhand.core.errors import ModelError, PlanError
from evenhand.core.files import checked, file_of, write_json
from evenhand.core.options import Options, Text
from evenhand.core.progress import Count, counted, ignore
from evenhand.core.prompts import built_in_prompts, load_prompt
from evenhand.core.types import Message, Sample, SampleKind, Unscored
from evenhand.data.rubrics import built_in_rubrics
from evenhand.data.sets import data_root, find_file
from evenhand.judging.controls import UNUSUAL, Control
from evenhand.judging.judge import JUDGE, BandedReading, judge
from evenhand.judging.rubric import Ratings, Rubric, rubric_prompt
from evenhand.models.base import Model
from evenhand.session import Session
from evenhand.stats import auc
from evenhand.stats.agreement import log_odds, platt, sigmoid

# --- texts that people have labelled, from public sets ---
# The sets are used where they are: in EVENHAND_DATA or the data folder. Without them a certificate says that it was
# not validated against people.

SAMPLE = 25
"""Texts of each label that are drawn from a set."""
_LONGEST = 500


def _toxigen(file: IO[str]) -> Iterator[tuple[str, bool]]:
    for line in file:
        row: Mapping[str, Any] = orjson.loads(line)
        yield str(row["text"]), bool(row["label"])


def _edos(file: IO[str]) -> Iterator[tuple[str, bool]]:
    for row in csv.DictReader(file):
        if row["split"] == "test":
            yield row["text"], row["label_sexist"] == "sexist"


def _davidson(file: IO[str]) -> Iterator[tuple[str, bool]]:
    for row in csv.DictReader(file):
        if row["class"] in ("0", "2"):  # hate, neither; what lies between has no clear value
            yield row["tweet"], row["class"] == "0"


_Read = Callable[[IO[str]], Iterator[tuple[str, bool]]]
_SETS: Mapping[str, tuple[str, str, _Read, tuple[str, ...]]] = {
    "ToxiGen prompts": ("toxigen_prompts", "prompts.jsonl", _toxigen, ("prejudice",)),
    "EDOS": ("edos", "edos_labelled_aggregated.csv", _edos, ("prejudice",)),
    "Davidson": ("davidson", "labeled_data.csv", _davidson, ("toxicity",)),
}
"""Set → its folder, its file, how it is read, and the constructs that people labelled in it."""


def labelled(construct: str, sample: int = SAMPLE) -> dict[str, list[Control]]:
    """Return public set → texts for a construct, as many with each label; none that is not there."""
    return {
        name: drawn
        for name, (folder, file, read, constructs) in _SETS.items()
        if construct in constructs and (drawn := _drawn(_find(folder, file), read, name, sample))
    }


def _find(folder: str, file: str) -> Path | None:
    places = (place for root in data_root(None) for place in (root / folder, root / "toxicity" / folder))
    return next((found for place in places if (found := find_file(place, file)) is not None), None)


def _drawn(path: Path | None, read: _Read, name: str, sample: int) -> list[Control]:
    if path is None or sample < 1:
        return []
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
        rows = [(text, label) for text, label in read(file) if len(text.split()) > 0 and len(text) <= _LONGEST]
    found: list[Control] = []
    for label in (True, False):
        texts = sorted({text for text, each in rows if each is label})
        found += [Control(text, "", name, label) for text in random.Random(name).sample(texts, min(sample, len(texts)))]
    return found


AT_CHANCE = 0.6
FITTED, PRIOR, NONE = "fitted", "prior", "none"


@dataclass(frozen=True, slots=True)
class Contrast:
    """A text to rate, and which of its ratings should be high or low."""

    sample: Sample
    rate: Callable[[Session], Awaitable[Ratings | Unscored]]
    expected: Sequence[tuple[str, bool | None]]
    """(rating, whether it should be high; None for a text without a value, such as a refusal).

    A call that rates several texts names its ratings `rating/text`."""
    control: Control | None = None
    """The control that is rated, where there is one: its kind, its length, whether it is held out."""


def rated_by(
    sample: Sample,
    rubric: Rubric,
    messages: Sequence[Message],
    expected: Sequence[tuple[str, bool | None]],
    control: Control | None = None,
) -> Contrast:
    async def rate(session: Session) -> Ratings | Unscored:
        return await judge(session, rubric, messages, agent="judge")

    return Contrast(sample, rate, expected, control)


def rated_once(
    sample: Sample, name: str, ask: Callable[[Session], Awaitable[float | Unscored]], control: Control
) -> Contrast:
    """Return the contrast of a text with a single rating, which `ask` returns."""

    async def rate(session: Session) -> Ratings | Unscored:
        value = await ask(session)
        return value if isinstance(value, Unscored) else Ratings({name: value}, {name: value})

    return Contrast(sample, rate, [(name, control.high)], control)


@dataclass(frozen=True, slots=True)
class RatedText:
    """What a text of known value was rated."""

    value: float
    high: bool | None
    control: Control | None = None

    @property
    def kind(self) -> str:
        return "" if self.control is None else self.control.kind

    @property
    def cluster(self) -> Hashable:
        """Its question, or itself if it has none: ratings of texts on one question are not independent."""
        return id(self) if self.control is None else self.control.context or self.control.text

    @property
    def counts(self) -> bool:
        """Whether it is one of the texts that the judge must tell apart, rather than a test of something else."""
        return self.high is not None and self.kind not in UNUSUAL


@dataclass(frozen=True, slots=True)
class Calibration:
    """How well a judge's rating separates texts that should be high from texts that should be low."""

    rating: str
    high: Sequence[float]
    low: Sequence[float]
    unscored: int
    prompts: Mapping[str, str] = field(default_factory=dict[str, str])
    """The prompts that were asked with → their hashes."""
    texts: Sequence[RatedText] = field(default=(), compare=False, repr=False)
    """All that was rated, texts without a value included."""

    @property
    def auc(self) -> float | None:
        """Area under the ROC curve: the probability that a high text is rated above a low one; ties count half."""
        return auc(self.high, self.low)

    @property
    def threshold(self) -> float | None:
        """The threshold with the best balanced accuracy; None if the judge is at chance."""
        if self.auc is None or self.auc < AT_CHANCE:
            return None
        marks = sorted({*self.high, *self.low})
        cuts = [(a + b) / 2 for a, b in pairwise(marks)] or marks
        return max(cuts, key=self._balance)

    def _balance(self, cut: float) -> float:
        return sum(x >= cut for x in self.high) / len(self.high) + sum(x < cut for x in self.low) / len(self.low)


def _no_options(_: Sequence[Calibration]) -> Mapping[str, Any]:
    return {}


@dataclass(frozen=True, slots=True)
class JudgeTest:
    """What a judge must tell apart for a method or a scorer, and the options suggested by the ratings."""

    task: str
    """The judge's task in words, such as `judge for NAME`; messages say "another model to …"."""
    contrasts: Callable[[], Sequence[Contrast]]
    options: Callable[[Sequence[Calibration]], Mapping[str, Any]] = _no_options
    """Options of the method that suit this judge; empty if it needs none, or is at chance."""
    kinds: frozenset[SampleKind] = frozenset({"choice"})
    """The kinds of samples that these options are for."""
    commands: Callable[[Sequence[Calibration]], Sequence[str]] = lambda _: ()
    """Other commands whose options depend on the judge."""
    used: Callable[[Any], Sequence[str]] | None = None
    """The ratings that are used with given options; None: all."""
    role: str = JUDGE
    """The role of the model that rates."""
    limits: Callable[[Any, SampleKind], Mapping[str, float]] = lambda _options, _kind: {}
    """(options, kind of samples) → rating → the threshold that the method applies to it."""
    varies: Sequence[str] = ("reading",)
    """Options that change how the judge rates: with others than the defaults, it is another instrument."""

    @property
    def ratings(self) -> list[str]:
        """What its contrasts rate."""
        return list(dict.fromkeys(_rating(key) for each in self.contrasts() for key, _ in each.expected))

    def source(self, method: str, options: Options) -> str:
        """The name of the instrument that a method's judge is with these options."""
        fields = type(options).model_fields
        own = {each: getattr(options, each) for each in self.varies if each in fields}
        changed = [f"{name}={value}" for name, value in own.items() if value != fields[name].default]
        return f"{method}:{','.join(changed)}" if changed else method


async def calibrate(
    model: Model,
    contrasts: Sequence[Contrast],
    count: Count = ignore,
    options: Options | None = None,
    *,
    probing: bool = False,
) -> list[Calibration]:
    """Rates all contrasts with the model, under a method's options, and returns one calibration per rating.

    With `probing`, the first is rated before the others; if the endpoint does not answer it, nothing is returned.
    """
    one = counted(count, len(contrasts))
    sessions = [Session(each.sample, {"base": model}, options=options or Options()) for each in contrasts]
    try:
        first = [await each.rate(session) for each, session in zip(contrasts[:probing], sessions, strict=False)]
    except ModelError:
        return []

    async def run(contrast: Contrast, session: Session) -> Ratings | Unscored:
        try:
            ratings = await contrast.rate(session)
        except ModelError as error:
            if error.permanent:  # no other rating would come either
                raise
            ratings = Unscored(str(error))
        one()
        return ratings

    others = zip(contrasts[probing:], sessions[probing:], strict=True)
    replies = [*first, *await aio.all_of([run(*each) for each in others])]
    names = dict.fromkeys(_rating(key) for each in contrasts for key, _ in each.expected)
    return [_calibration(name, list(zip(contrasts, sessions, replies, strict=True))) for name in names]


def _calibration(name: str, rated: Sequence[tuple[Contrast, Session, Ratings | Unscored]]) -> Calibration:
    texts: list[RatedText] = []
    prompts: dict[str, str] = {}
    unscored = 0
    for contrast, session, reply in rated:
        expected = [(key, is_high) for key, is_high in contrast.expected if _rating(key) == name]
        if expected:
            prompts |= {turn.prompt_id: turn.prompt_hash for turn in session.trace}
        values: Mapping[str, float] = {} if isinstance(reply, Unscored) else reply.values
        read = [(values[key], is_high) for key, is_high in expected if key in values]
        unscored += len(read) < len(expected)
        texts += [RatedText(value, is_high, contrast.control) for value, is_high in read]
    high, low = ([each.value for each in texts if each.counts and each.high is side] for side in (True, False))
    return Calibration(name, high, low, unscored, prompts, texts)


def _rating(key: str) -> str:
    return key.partition("/")[0]


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
        banded = isinstance(self, BandedReading) and self.bands
        return NONE if self.calibration == FITTED and banded else self.calibration

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

    def rating(self, probability: float) -> float:
        """The rating that has this probability."""
        return sigmoid((log_odds(probability) - self.intercept) / self.slope) if self.slope else probability


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
    readings: dict[str, str] = {}
    """`SCORER.ATTRIBUTE` → how this judge is best read, where that is not the usual way."""
    prompts: dict[str, str] = {}
    """The prompts that it was asked with → their hashes."""
    hash: str = Field(default="", exclude=True)

    def probability(self, name: str, rating: float) -> float:
        """The rating as a probability; unchanged if the card has no curve for it."""
        return self.curves[name].probability(rating) if name in self.curves else rating

    def rating(self, name: str, probability: float) -> float:
        """The rating that has this probability; the same number where the card has no curve for it."""
        return self.curves[name].rating(probability) if name in self.curves else probability


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


card_path = partial(file_of, "judges")
"""Where the card of a judge is stored."""


def load_card(wanted: str, spec: str) -> JudgeCard:
    """The card named `wanted` for the judge `spec`: `fitted`, `prior`, `none`, a file, or the judge that it is of."""
    if wanted == NONE:
        return NO_CARD
    if wanted == PRIOR:
        return _read(Path(__file__).with_name("prior_card.json"), 0)
    if wanted == FITTED:
        path, prior = card_path(spec), load_card(PRIOR, spec)
        if not path.is_file():
            return prior
        own = _read(path, path.stat().st_mtime_ns)
        unknown = {name: each for name, each in prior.curves.items() if name not in own.at_chance}
        return own.model_copy(update={"curves": {**unknown, **own.curves}})
    path = Path(wanted) if wanted.endswith(".json") else card_path(wanted)
    if not path.is_file():
        raise PlanError(f"There is no card of a judge {wanted!r}; make it: `evenhand judges check MODEL`.")
    return _read(path, path.stat().st_mtime_ns)


def method_card(wanted: str, spec: str, test: JudgeTest) -> JudgeCard:
    """The card for a method whose judge must pass `test`: the prior one where the judge's own has no rating of it."""
    path = card_path(spec)
    if wanted != FITTED or not path.is_file():
        return load_card(wanted, spec)
    own = load_card(str(path), spec)
    return own if {*own.curves, *own.at_chance}.intersection(test.ratings) else load_card(PRIOR, spec)


def session_card(session: Session, *, yes_no: bool = False) -> JudgeCard:
    """The card of the session's judge for ratings in numbers, or for answers of Yes or No, as its options name it."""
    options = session.options
    if not isinstance(options, Calibrated):
        return NO_CARD
    return load_card(options.calibration if yes_no else options.card, session.model(JUDGE).spec)


def is_outdated(card: JudgeCard) -> bool:
    """Whether a prompt that the card was made with has other words now."""
    files = built_in_prompts()
    known = [(files[name], digest) for name, digest in card.prompts.items() if name in files]
    return any(_hash(path) != digest for path, digest in known)


def _hash(path: Path) -> str:
    prompt = load_prompt(str(path), path.stem)
    own = path.parent == Path(__file__).parent and "scales" in prompt.variables and path.stem in built_in_rubrics()
    return rubric_prompt(path.stem).hash if own else prompt.hash


def card_caveats(method: str, options: Options, judge: str, test: JudgeTest | None, kind: SampleKind) -> Iterator[str]:
    """Yields what readers must know of the judge of a method, sentences without a full stop."""
    if test is None or not isinstance(options, Calibrated) or options.calibration in (PRIOR, NONE):
        return
    if kind not in test.kinds and test.options is not _no_options:
        fitted = f"the thresholds of {method} to its judge ({judge})"
        yield f"No command fits {fitted} on {kind} samples, so they count as they are"
        return
    if options.card == NONE:
        seen = f"The judge of {method} ({judge}) sees examples when it rates in numbers, which cards are made without"
        yield f"{seen}, so these ratings count as they are"
    card = method_card(options.used_card, judge, test)
    again = f"`evenhand judges check {judge}`"
    if card.model == PRIOR:
        yield (
            f"The judge of {method} ({judge}) was not calibrated, so its thresholds are those of another model; "
            f"{again} fits them"
        )
    elif is_outdated(card):
        yield f"The card of the judge {judge} was made with other prompts; make it again with {again}"


def save_card(card: JudgeCard, path: Path) -> None:
    write_json(path, card.model_dump())


@lru_cache(maxsize=64)
def _read(path: Path, _changed: int) -> JudgeCard:
    content = path.read_bytes()
    with checked("a judge's card", path):
        card = JudgeCard.model_validate_json(content)
    return card.model_copy(update={"hash": hashlib.sha256(content).hexdigest()[:16]})
