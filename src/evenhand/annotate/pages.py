"""The web pages of studies: one for raters and one for the owner, over JSON that needs the token of a link.

A link carries its token after the #, which browsers send neither to the server nor to other sites. The script keeps it
in the browser tab and sends it as a bearer token. Who it belongs to decides what is answered: a rater gets their own
items and ratings, without ids, arms and the study's name; the owner gets the figures of `live`.

Tokens, one for each rater and one for the owner, are made from one secret of the study. It is in the owner's folder, so
that links stay valid when the server is started again; a new secret ends them. `evenhand annotate ui` opens studies,
says the links, serves until stopped, and fills the sheets.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson
from aiohttp import web
from pydantic import BaseModel, ConfigDict, StrictInt, ValidationError

from evenhand.annotate.live import standing
from evenhand.annotate.ratings import fill_sheets
from evenhand.annotate.study import Cover, RaterItem, RatingStudy, open_study
from evenhand.core.errors import DataError, UsageError
from evenhand.core.files import write_bytes
from evenhand.show.markup import plain, tag
from evenhand.web.errors import RequestError
from evenhand.web.keys import KeyConfig, is_loopback, key_of
from evenhand.web.layout import page
from evenhand.web.site import Site, html, serve, shared_assets

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
        raise UsageError(f"{how.url!r} is no address. Give --url as https://HOST, without a path.")
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
