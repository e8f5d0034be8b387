"""The web pages of studies: one for raters and one for the owner, over JSON that needs the token of a link.

A link carries its token after the #, which browsers send neither to the server nor to other sites. The script keeps it
in the browser tab and sends it as a bearer token. Who it belongs to decides what is answered: a rater gets their own
items and ratings, without ids, arms and the study's name; the owner gets the figures of `live`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from typing import Any

import orjson
from aiohttp import web
from pydantic import BaseModel, ConfigDict, StrictInt, ValidationError

from evenhand.annotate.links import token, token_hash
from evenhand.annotate.live import standing
from evenhand.annotate.rubric import rubric
from evenhand.annotate.study import Item, Study
from evenhand.server.access.auth import key_of
from evenhand.server.config import KeyConfig
from evenhand.server.errors import RequestError
from evenhand.show.markup import plain, tag
from evenhand.ui.layout import page
from evenhand.ui.site import Site, html, shared_assets

BATCH = 20
"""Items in one answer of the server."""
BREAK_AFTER = 40
"""Answers after which a break is suggested."""
WIDTH = 5.0
"""Half-width of the interval that the owner's page asks for at first."""
WIDEST = 50.0
_NAME = "Evenhand ratings"
_SCRIPTS = ("rate.js", "owner.js", "parts.js")


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who a token belongs to; the owner's name is ""."""

    study: Study
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
        self, studies: Sequence[tuple[Study, bytes]], *, host: str = "127.0.0.1", break_after: int = BREAK_AFTER
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
                "scales": [_guide(each) for each in rubric()],
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
            "scales": [{"short": each.scale.short, "title": each.scale.title} for each in rubric()],
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


def _guide(guide: Any) -> Mapping[str, Any]:
    return {**asdict(guide.scale), "low": guide.low, "high": guide.high, "question": guide.question} | {
        "examples": [asdict(each) for each in guide.examples]
    }


def _item(item: Item) -> Mapping[str, Any]:
    return {"question": item.question, "answer": item.answer, "covered": item.covered}


def _width(text: str) -> float:
    try:
        wanted = float(text or WIDTH)
    except ValueError:
        wanted = 0.0
    if not 0.1 <= wanted <= WIDEST:
        raise RequestError(400, f"The half-width must be a number from 0.1 to {WIDEST:g}.")
    return wanted
