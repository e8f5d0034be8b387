"""The web pages of studies: one for raters and one for the owner, over JSON that needs the token of a link.

A link carries its token after the #, which browsers send neither to the server nor to other sites. The script keeps it
in the browser tab and sends it as a bearer token. Who it belongs to decides what is answered: a rater gets their own
items and ratings, without ids, arms and the study's name; the owner gets progress, agreement and drift.

Tokens, one for each rater and one for the owner, are made from one secret of the study. It is in the owner's folder, so
that links stay valid when the server is started again; a new secret ends them. `evenhand annotate ui` opens studies,
says the links, serves until stopped, and fills the sheets.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import math
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.resources import files
from itertools import combinations, pairwise
from pathlib import Path
from statistics import fmean, median
from typing import Any, Literal
from urllib.parse import urlsplit

import numpy as np
import orjson
from aiohttp import web
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, StrictInt, ValidationError

from evenhand.annotate import journal
from evenhand.annotate.journal import Journal, Rating
from evenhand.annotate.ratings import BANDS, band, fill_sheets, read_key
from evenhand.annotate.sheets import RATERS, planned, read_rows, rubric_in, unquoted
from evenhand.core.errors import DataError, UsageError
from evenhand.core.files import write_bytes
from evenhand.core.types import Unscored
from evenhand.data.rubrics import POINTS
from evenhand.scorers.base import load_scorer
from evenhand.show.markup import plain, tag
from evenhand.stats import (
    FEW_CLUSTERS,
    Interval,
    cohen_interval,
    fleiss_interval,
    krippendorff_alpha,
    mean_interval,
    paired_cluster_jackknife,
    size_for_half_width,
)
from evenhand.web.errors import RequestError
from evenhand.web.keys import KeyConfig, is_loopback, key_of
from evenhand.web.site import Site, html, page, serve, shared_assets

PAUSE_SECONDS = 300.0
"""A longer time between two answers is a break and no working time."""
LEVEL = 0.05
"""Chance that any rater of a study seems to drift who does not."""
MOST_BLOCKS, BLOCK = 10, 5
"""The course of a rater's agreement has at most this many points, each of at least this many ratings."""

Cells = Mapping[tuple[str, str], Mapping[str, Rating]]
"""(scale, item) → rater → rating, without those who cannot tell."""


@dataclass(frozen=True, slots=True)
class RaterProgress:
    """How far a rater is."""

    rater: str
    done: int
    """Answers that are rated on all scales."""
    planned: int
    cannot_tell: int
    seconds: float | None
    """Median working time of an answer."""
    last: float | None
    """When the last rating was given, in seconds since 1970."""


@dataclass(frozen=True, slots=True)
class ScaleAgreement:
    """How far all raters agree on one scale."""

    scale: str
    fleiss: Interval
    """Of the answers that all their planned raters have rated."""
    alpha: Interval
    """Krippendorff's, of all answers with two ratings or more."""


@dataclass(frozen=True, slots=True)
class RaterPair:
    """How far two raters agree, by scale: Cohen's kappa of the bands."""

    raters: tuple[str, str]
    kappa: Mapping[str, Interval]


@dataclass(frozen=True, slots=True)
class Drift:
    """Whether a rater's agreement with the others changes: the second half of their ratings against the first."""

    rater: str
    scale: str
    n: int
    """Ratings of answers that others have rated, too."""
    course: Sequence[float]
    """Share of the others' ratings in the same band, over time."""
    agreement: Interval
    """Its change; limits are corrected for all raters and scales."""
    shift: Interval
    """The change of rating minus the others' mean."""
    verdict: str


@dataclass(frozen=True, slots=True)
class Precision:
    """How precisely an arm is measured so far, and what a wanted precision needs."""

    scale: str
    arm: str
    """Against the baseline; the baseline itself if it is the only arm."""
    questions: int
    half_width: float | None
    """Of the 95 % interval."""
    needed: int | None
    """Questions for the wanted half-width; None if it cannot be said yet."""
    more: int | None
    """Ratings (rows of sheets) that are still missing for it."""
    beyond: int | None
    """How many of them exceed the plan."""


@dataclass(frozen=True, slots=True)
class Standing:
    """All of it."""

    progress: Sequence[RaterProgress]
    agreement: Sequence[ScaleAgreement]
    pairs: Sequence[RaterPair]
    drift: Sequence[Drift]
    precision: Sequence[Precision]


def standing(key: Mapping[str, Any], ratings: Sequence[Rating], wanted: float) -> Standing:
    """Return the state of a study; `wanted` is the half-width of the interval to reach."""
    rubric = rubric_in(key)
    cells: dict[tuple[str, str], dict[str, Rating]] = {}
    for each in ratings:
        if each.value is not None:
            cells.setdefault((each.scale, each.item), {})[each.rater] = replace(each, value=rubric.points(each.value))
    items: Mapping[str, Mapping[str, str]] = key["items"]
    clusters = {name: item["cluster"] or item["sample"] for name, item in items.items()}
    plan = planned(key)
    raters: Sequence[str] = key["raters"]
    return Standing(
        [
            _progress(rater, len(plan[rater]), [each for each in ratings if each.rater == rater], len(rubric.shorts))
            for rater in raters
        ],
        [_agreement(scale, plan, cells, clusters) for scale in rubric.shorts],
        [_pair(one, other, cells, clusters, rubric.shorts) for one, other in combinations(raters, 2)],
        [
            _drift(rater, scale, len(raters) * len(rubric.shorts), cells, clusters)
            for rater in raters
            for scale in rubric.shorts
        ],
        [each for scale in rubric.shorts for each in _precisions(scale, key, plan, cells, clusters, wanted)],
    )


def _progress(rater: str, count: int, own: Sequence[Rating], scales: int) -> RaterProgress:
    by_item: dict[str, list[Rating]] = {}
    for each in own:
        by_item.setdefault(each.item, []).append(each)
    ends = sorted(max(each.at for each in cells) for cells in by_item.values() if len(cells) == scales)
    steps = [later - earlier for earlier, later in pairwise(ends) if later - earlier < PAUSE_SECONDS]
    return RaterProgress(
        rater,
        len(ends),
        count,
        sum(each.value is None for each in own),
        median(steps) if steps else None,
        max((each.at for each in own), default=None),
    )


def _agreement(
    scale: str, plan: Mapping[str, Sequence[str]], cells: Cells, clusters: Mapping[str, str]
) -> ScaleAgreement:
    times: dict[str, int] = {}
    for own in plan.values():
        for name in own:
            times[name] = times.get(name, 0) + 1
    given = {name: [_value(each) for each in cells.get((scale, name), {}).values()] for name in clusters}
    complete = [name for name, values in given.items() if values and len(values) == times.get(name)]
    table = [
        [[band(value) for value in given[name]].count(each) for each in range(len(BANDS) + 1)] for name in complete
    ]
    fleiss = fleiss_interval(table, [clusters[name] for name in complete]) if table else Interval()
    alpha = krippendorff_alpha(list(given.values()), "interval", [clusters[name] for name in given])
    return ScaleAgreement(scale, fleiss, alpha)


def _pair(one: str, other: str, cells: Cells, clusters: Mapping[str, str], scales: Sequence[str]) -> RaterPair:
    kappa: dict[str, Interval] = {}
    for scale in scales:
        both = {name: given for (on, name), given in cells.items() if on == scale and one in given and other in given}
        first, second = ([band(_value(given[rater])) for given in both.values()] for rater in (one, other))
        kappa[scale] = cohen_interval(first, second, [clusters[name] for name in both])
    return RaterPair((one, other), kappa)


def _drift(rater: str, scale: str, tests: int, cells: Cells, clusters: Mapping[str, str]) -> Drift:
    shared: list[tuple[float, str, float, float]] = []
    for (on, name), given in cells.items():
        if on == scale and rater in given and len(given) > 1:
            own = _value(given[rater])
            others = [_value(each) for who, each in given.items() if who != rater]
            same = fmean(band(value) == band(own) for value in others)
            shared.append((given[rater].at, clusters[name], same, own - fmean(others)))
    shared.sort()
    labels = [label for _, label, _, _ in shared]
    agreed, apart = [same for _, _, same, _ in shared], [each for _, _, _, each in shared]
    confidence = 1 - LEVEL / (tests * 2)
    agreement = _change(agreed, labels, (-1.0, 1.0), confidence)
    shift = _change(apart, labels, (-2.0 * POINTS, 2.0 * POINTS), confidence)
    points = min(MOST_BLOCKS, len(shared) // BLOCK)
    course = [float(block.mean()) for block in np.array_split(np.asarray(agreed), points)] if points else []
    return Drift(rater, scale, len(shared), course, agreement, shift, _verdict(len(set(labels)), agreement, shift))


def _change(values: Sequence[float], labels: Sequence[str], bounds: tuple[float, float], confidence: float) -> Interval:
    """Return the mean of the second half minus that of the first; `values` are in the order of time."""
    middle, places = len(values) // 2, {label: place for place, label in enumerate(dict.fromkeys(labels))}
    tables = np.zeros((2, len(places), 2))
    for number, (value, label) in enumerate(zip(values, labels, strict=True)):
        tables[int(number >= middle), places[label]] += (value, 1)

    def mean(sums: NDArray[np.float64]) -> NDArray[np.float64]:
        return sums[..., 0] / sums[..., 1]

    found = paired_cluster_jackknife(tables[0], tables[1], mean, confidence=confidence, bounds=bounds).interval
    return Interval(found.estimate, found.low, found.high, len(values))


def _verdict(questions: int, agreement: Interval, shift: Interval) -> str:
    if questions < 2 * FEW_CLUSTERS:
        return f"too early: {questions} of {2 * FEW_CLUSTERS} questions shared with others"
    found = [
        words
        for change, less, more in (
            (agreement, "agrees less than at first", "agrees more than at first"),
            (shift, "rates lower than at first", "rates higher than at first"),
        )
        for words in [{-1: less, 0: "", 1: more}[change.side]]
        if words
    ]
    return ", ".join(found) or "no drift seen"


def _precisions(
    scale: str,
    key: Mapping[str, Any],
    plan: Mapping[str, Sequence[str]],
    cells: Cells,
    clusters: Mapping[str, str],
    wanted: float,
) -> list[Precision]:
    items: Mapping[str, Mapping[str, str]] = key["items"]
    means: dict[str, dict[str, float]] = {arm: {} for arm in key["arms"]}
    topics: dict[str, str] = {}
    for name, item in items.items():
        topics[item["sample"]] = clusters[name]
        if given := cells.get((scale, name)):
            means[item["arm"]][item["sample"]] = fmean(_value(each) for each in given.values())
    baseline = means[key["baseline"]]
    rows_per_question = sum(len(own) for own in plan.values()) / key["samples"]
    found: list[Precision] = []
    for arm, own in means.items():
        if arm == key["baseline"] and len(means) > 1:
            continue
        values = {sample: mean for sample, mean in own.items() if sample in baseline}
        low = 0
        if arm != key["baseline"]:
            values, low = {sample: mean - baseline[sample] for sample, mean in values.items()}, -POINTS
        labels = [topics[sample] for sample in values]
        interval = mean_interval(list(values.values()), labels, bounds=(low, POINTS))
        found.append(_precision(scale, arm, interval, len(set(labels)), wanted, rows_per_question, key["samples"]))
    return found


def _precision(
    scale: str, arm: str, interval: Interval, topics: int, wanted: float, rows_per_question: float, questions: int
) -> Precision:
    if interval.low is None or interval.high is None:
        return Precision(scale, arm, interval.n, None, None, None, None)
    half = (interval.high - interval.low) / 2
    if topics < FEW_CLUSTERS:
        return Precision(scale, arm, interval.n, half, None, None, None)
    needed = math.ceil(size_for_half_width(topics, half, wanted) * interval.n / topics)
    more = math.ceil(max(0, needed - interval.n) * rows_per_question)
    beyond = math.ceil(max(0, needed - questions) * rows_per_question)
    return Precision(scale, arm, interval.n, half, needed, more, beyond)


def _value(rating: Rating) -> int:
    assert rating.value is not None  # `Cells` have no others
    return rating.value


Cover = Literal["offensive", "all", "none"]
"""Which answers are shown only after a click."""
OFFENSIVE = 0.5
"""Texts with a score of at least this, of any kind of toxicity, are covered."""
_SCORER = "builtin"


@dataclass(frozen=True, slots=True)
class RaterItem:
    """A question with an answer, as a rater sees it."""

    id: str
    question: str
    answer: str
    covered: bool = False


class RatingStudy:
    """The items of every rater in their order, and the ratings."""

    def __init__(self, folder: Path, key: Mapping[str, Any], items: Mapping[str, Sequence[RaterItem]]) -> None:
        self.folder = folder
        self.key = key
        self.rubric = rubric_in(key)
        self.items = items
        self.journal = Journal(folder / journal.FILE)
        self._places = {rater: {item.id: place for place, item in enumerate(own)} for rater, own in items.items()}

    def rate(self, rater: str, place: int, scale: str, value: int | None) -> None:
        if not 0 <= place < len(self.items[rater]) or scale not in self.rubric.shorts:
            raise UsageError("There is no such answer or scale in this study. Reload the page.")
        if value is not None and not 0 <= value <= self.rubric.scale:
            raise UsageError(f"A rating is a whole number from 0 to {self.rubric.scale}.")
        self.journal.rate(Rating(rater, self.items[rater][place].id, scale, value, time.time()))

    def undo(self, rater: str) -> tuple[int, str] | None:
        """Take back the rater's last rating and return its place and scale."""
        undone = self.journal.undo(rater)
        return undone and (self._places[rater].get(undone[0], 0), undone[1])

    def given(self, rater: str) -> dict[int, dict[str, int | None]]:
        """Return the rater's ratings by place and scale."""
        given: dict[int, dict[str, int | None]] = {}
        for each in self.ratings():
            if each.rater == rater:
                given.setdefault(self._places[rater][each.item], {})[each.scale] = each.value
        return given

    def ratings(self) -> list[Rating]:
        """Return all ratings that count; those of items that are no longer in the sheets do not."""
        return [each for each in self.journal.current() if each.item in self._places.get(each.rater, ())]


async def open_study(folder: Path, cover: Cover = "offensive") -> RatingStudy:
    key = read_key(folder)
    plan = planned(key)
    texts = {rater: _texts(folder / RATERS / f"{rater}.csv", own, rubric_in(key).shorts) for rater, own in plan.items()}
    every = {item.id: item for own in texts.values() for item in own}
    covered = await _covered(list(every.values()), cover)
    items = {
        rater: [RaterItem(item.id, item.question, item.answer, item.id in covered) for item in own]
        for rater, own in texts.items()
    }
    return RatingStudy(folder, key, items)


def _texts(path: Path, own: Sequence[str], shorts: Sequence[str]) -> list[RaterItem]:
    wanted = set(own)
    rows = [row for row in read_rows(path, shorts) if row["id"].strip() in wanted]
    if len({row["id"].strip() for row in rows}) < len(wanted) or not all("answer" in row for row in rows):
        raise DataError("rows or texts are missing. Restore the sheet, or export again.", file=path)
    return [RaterItem(row["id"].strip(), unquoted(row.get("question", "")), unquoted(row["answer"])) for row in rows]


async def _covered(items: Sequence[RaterItem], cover: Cover) -> set[str]:
    """Return the ids of the items to cover. A text that the scorer cannot judge is covered, too."""
    if cover != "offensive":
        return {item.id for item in items} if cover == "all" else set()
    texts = list(dict.fromkeys(text for item in items for text in (item.question, item.answer) if text.strip()))
    scorer = load_scorer(_SCORER)
    try:
        scores = await scorer.score(texts)
    finally:
        await scorer.aclose()
    bad = {
        text
        for text, found in zip(texts, scores, strict=True)
        if isinstance(found, Unscored) or max(found.values()) >= OFFENSIVE
    }
    return {item.id for item in items if item.question in bad or item.answer in bad}


LINKS_FILE = "links.key"
_BYTES = 32
BATCH = 20
"""Items in one answer of the server."""
BREAK_AFTER = 40
"""Answers after which a break is suggested."""
WIDTH = 5.0
"""Half-width of the interval that the owner's page asks for at first."""
WIDEST = 50.0
_NAME = "Evenhand ratings"
_SCRIPTS = ("rate.js", "owner.js", "parts.js")
ANY_ADDRESS = ("0.0.0.0", "::")  # noqa: S104 - compared, not bound


def read_secret(folder: Path, *, renew: bool = False) -> bytes:
    """Return the study's secret; it is made at first use, and again with `renew`."""
    path = folder / LINKS_FILE
    try:
        if renew or not path.exists():
            write_bytes(path, secrets.token_hex(_BYTES).encode(), mode=0o600)
        secret = bytes.fromhex(path.read_text(encoding="ascii").strip())
    except OSError as error:
        raise DataError(f"cannot be used: {error.strerror}. Use a folder that you may write to.", file=path) from error
    except ValueError as error:
        raise DataError("damaged. Make new links with --new-links.", file=path) from error
    if len(secret) != _BYTES:
        raise DataError("damaged. Make new links with --new-links.", file=path)
    return secret


def token(secret: bytes, who: str) -> str:
    """Return the token of a rater, by name, or of the owner, whose name is ""."""
    return base64.urlsafe_b64encode(hmac.digest(secret, who.encode(), "sha256")).decode().rstrip("=")


def token_hash(presented: str) -> str:
    return hashlib.sha256(presented.encode("utf-8", "surrogateescape")).hexdigest()


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who a token belongs to; the owner's name is ""."""

    study: RatingStudy
    rater: str = ""


class _Given(BaseModel):
    """A rating as the page sends it; no value means that the rater cannot tell."""

    model_config = ConfigDict(extra="forbid")
    place: StrictInt
    scale: str
    value: StrictInt | None


class StudyPages:
    """The pages of one or several studies, by the secret of each."""

    def __init__(
        self, studies: Sequence[tuple[RatingStudy, bytes]], *, host: str = "127.0.0.1", break_after: int = BREAK_AFTER
    ) -> None:
        self._visitors: dict[str, Visitor] = {}
        keys: dict[str, KeyConfig] = {}
        for number, (study, secret) in enumerate(studies):
            for name in ("", *study.key["raters"]):
                self._visitors[f"{number}/{name}"] = Visitor(study, name)
                keys[f"{number}/{name}"] = KeyConfig(hash=token_hash(token(secret, name)))
        self._break_after = break_after
        self._standings: dict[tuple[Any, ...], Mapping[str, Any]] = {}
        routes = [
            web.get("/", self._get_rater_page),
            web.get("/owner", self._get_owner_page),
            web.get("/api/rating", self._get_rating),
            web.get(r"/api/rating/items/{first:\d{1,9}}", self._get_items),
            web.post("/api/rating", self._post_rating),
            web.post("/api/rating/undo", self._post_undo),
            web.get("/api/study", self._get_study),
        ]
        # Pages hold no data, so that whoever opens one gets a plain sentence in place of a login.
        self.site = Site(
            routes,
            host=host,
            keys=keys,
            is_open=lambda request: not request.path.startswith("/api/"),
            assets=_assets(),
            name=_NAME,
        )

    # --- raters ---

    async def _get_rater_page(self, _: web.Request) -> web.Response:
        return html(page("Rate answers", _frame("rate", "Rate answers"), brand=_NAME, scripts=("rate.js",)))

    async def _get_rating(self, request: web.Request) -> web.Response:
        visitor = self._rater(request)
        return self._json(
            request,
            {
                "rater": visitor.rater,
                "count": len(visitor.study.items[visitor.rater]),
                "ratings": visitor.study.given(visitor.rater),
                "scales": [
                    each.model_dump(mode="json", exclude={"controls"}) for each in visitor.study.rubric.criteria
                ],
                "highest": visitor.study.rubric.scale,
                "excluded": " and ".join(visitor.study.rubric.excluded),
                "break_after": self._break_after,
            },
        )

    async def _get_items(self, request: web.Request) -> web.Response:
        visitor = self._rater(request)
        first = int(request.match_info["first"])
        own = visitor.study.items[visitor.rater][first : first + BATCH]
        return self._json(request, {"items": [_item(each) for each in own]})

    async def _post_rating(self, request: web.Request) -> web.Response:
        visitor = self._rater(request)
        try:
            given = _Given.model_validate_json(await request.read())
        except ValidationError as error:
            raise RequestError(400, "This is not a rating. Reload the page.") from error
        visitor.study.rate(visitor.rater, given.place, given.scale, given.value)
        return self._json(request, {"saved": True})

    async def _post_undo(self, request: web.Request) -> web.Response:
        visitor = self._rater(request)
        undone = visitor.study.undo(visitor.rater)
        place, scale = undone or (None, None)
        return self._json(request, {"place": place, "scale": scale, "ratings": visitor.study.given(visitor.rater)})

    # --- the owner ---

    async def _get_owner_page(self, _: web.Request) -> web.Response:
        return html(page("Study", _frame("study", "Study"), brand=_NAME, scripts=("owner.js",)))

    async def _get_study(self, request: web.Request) -> web.Response:
        visitor = self._visitor(request)
        if visitor.rater:
            raise RequestError(403, "This link is a rater's. The page of the study needs the owner's link.")
        study = visitor.study
        wanted = _width(request.query.get("width", ""))
        stamp = (str(study.folder), study.journal.stamp(), wanted)
        figures = self._standings.get(stamp)
        if figures is None:
            figures = asdict(await asyncio.to_thread(standing, study.key, study.ratings(), wanted))
            self._standings = {stamp: figures}
        about = {
            "study": study.folder.resolve().name,
            "now": time.time(),
            "arms": study.key["arms"],
            "baseline": study.key["baseline"],
            "questions": study.key["samples"],
            "answers": len(study.key["items"]),
            "scales": [{"short": each.short, "title": each.title} for each in study.rubric.criteria],
            "wanted": wanted,
        }
        return self._json(request, {**about, **figures})

    # --- both ---

    def _visitor(self, request: web.Request) -> Visitor:
        return self._visitors[self.site.auth.owner(key_of(request)).name]

    def _rater(self, request: web.Request) -> Visitor:
        visitor = self._visitor(request)
        if not visitor.rater:
            raise RequestError(403, "This link is the owner's. To rate, open a rater's link.")
        return visitor

    def _json(self, request: web.Request, content: Mapping[str, Any]) -> web.Response:
        """Return JSON with the token that the next POST needs; it is a new one when the server was started again."""
        body = orjson.dumps({**plain(content), "token": self.site.token(request)})
        return web.Response(body=body, content_type="application/json")


def _frame(name: str, title: str) -> Sequence[str]:
    """Return the empty page, which the script fills."""
    nothing = tag("noscript", tag("p", "This page needs JavaScript.", class_="nothing"))
    problem = tag("p", id="problem", class_="lead", role="alert", hidden=True)
    content = tag("div", id=name, class_="needs-js", hidden=True)
    return [tag("section", tag("h1", title), nothing, problem, content)]


def _assets() -> Mapping[str, bytes]:
    ours = files("evenhand.annotate") / "assets"
    style = shared_assets()["style.css"] + b"\n" + (ours / "annotate.css").read_bytes()
    return {"style.css": style, **{name: (ours / name).read_bytes() for name in _SCRIPTS}}


def _item(item: RaterItem) -> Mapping[str, Any]:
    return {"question": item.question, "answer": item.answer, "covered": item.covered}


def _width(text: str) -> float:
    try:
        wanted = float(text or WIDTH)
    except ValueError:
        wanted = 0.0
    if not 0.1 <= wanted <= WIDEST:
        raise RequestError(400, f"The half-width must be a number from 0.1 to {WIDEST:g}.")
    return wanted


@dataclass(frozen=True, slots=True)
class Served:
    """How studies are served."""

    host: str = "127.0.0.1"
    port: int = 8792
    url: str | None = None
    """What links begin with, if it is not the address of this server."""
    cover: Cover = "offensive"
    break_after: int = BREAK_AFTER
    new_links: bool = False


async def serve_studies(folders: Sequence[Path], how: Served, say: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM."""
    if how.url is not None and (urlsplit(how.url).scheme not in ("http", "https") or not urlsplit(how.url).netloc):
        raise UsageError(f"{how.url!r} is not an address. Give --url as https://HOST, without a path.")
    studies: list[tuple[RatingStudy, bytes]] = []
    try:
        for folder in dict.fromkeys(folder.resolve() for folder in folders):
            if how.cover == "offensive":
                say(f"{folder.name}: looking for offensive texts …")
            study = await open_study(folder, how.cover)
            secret = read_secret(folder, renew=how.new_links)
            twins = [other.folder for other, known in studies if known == secret]
            studies.append((study, secret))
            if twins:
                raise UsageError(
                    f"{folder} is a copy of {twins[0]} and has the same links. Remove its {LINKS_FILE} to give it "
                    "its own."
                )
            covered = {item.id for own in study.items.values() for item in own if item.covered}
            say(f"{folder.name}: {len(study.key['items']):,} answers, {len(covered):,} of them covered until a click")

        def ready(address: str) -> None:
            for study, secret in studies:
                _greet(study, secret, (how.url or address).rstrip("/"), say)
            if how.url is None and how.host in ANY_ADDRESS:
                say("The links name this machine only. For raters elsewhere, give its address with --url.")
            if not is_loopback(how.host) and not (how.url or "").startswith("https:"):
                say("Without HTTPS, anybody on the way can read links and ratings: put a TLS proxy in front.")
            say("Keep the links private: who has one can rate with it. Stop with Ctrl-C; nothing is lost.")

        pages = StudyPages(studies, host=how.host, break_after=how.break_after)
        await serve(pages.site, how.port, ready)
        for study, _ in studies:
            say(f"{study.folder.name}: {fill_sheets(study.folder, study.key):,} ratings are in the sheets.")
    finally:
        for study, _ in studies:
            study.journal.close()


def _greet(study: RatingStudy, secret: bytes, address: str, say: Callable[[str], None]) -> None:
    say(f"{study.folder.name}, for you:  {address}/owner#{token(secret, '')}")
    width = max(map(len, study.key["raters"]))
    for rater in study.key["raters"]:
        say(f"  {rater:<{width}}  {address}/#{token(secret, rater)}")
