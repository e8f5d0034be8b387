"""A small web application whose pages are made on the server: their frame, and the protection that all of them need.

- Without keys it serves this machine only, at a loopback address; the Host, Origin and Sec-Fetch headers keep out pages
  of other sites, also those that use DNS rebinding.
- With keys (those of `evenhand serve keys`), people log in once; the browser gets a random session in a cookie that
  scripts cannot read, never the key. Programs send the key as `Authorization: Bearer KEY`.
- Every POST needs the token that our own pages carry, so another site cannot send one.
- The content security policy allows only our own files: no inline script, no other address, no frame.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import secrets
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from time import time
from urllib.parse import SplitResult, quote, urlsplit

from aiohttp import web
from aiohttp.typedefs import Middleware

from evenhand.core.errors import EvenhandError
from evenhand.show.chart import sprite
from evenhand.show.markup import Html, Node, tag
from evenhand.show.page import ICON
from evenhand.web.errors import RequestError
from evenhand.web.keys import INVALID_KEY, Auth, Caller, Handler, KeyConfig, Permission, WrongKeys, allowed, key_of
from evenhand.web.listening import address, bound

END = "</div></body></html>\n"


def page(
    title: str,
    content: Node,
    *,
    links: Sequence[tuple[str, str]] = (),
    here: str = "",
    brand: str = "Evenhand",
    scripts: Iterable[str] = (),
    token: str = "",
) -> str:
    """Return a whole page.

    `links` are (address, title) of the navigation, `here` the address of the current one; `scripts` are modules under
    /static/; `token` is for scripts that send POST requests.
    """
    return beginning(title, links=links, here=here, brand=brand, scripts=scripts, token=token) + ending(content)


def beginning(
    title: str,
    *,
    links: Sequence[tuple[str, str]] = (),
    here: str = "",
    brand: str = "Evenhand",
    scripts: Iterable[str] = (),
    token: str = "",
) -> str:
    """Return a page up to its main part, for pages that are sent before all of it is known."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="token", content=token) if token else None,
        tag("title", f"{title} – {brand}"),
        tag("link", rel="icon", href=ICON),
        tag("link", rel="stylesheet", href="/static/style.css"),
        tag("script", src="/static/ui.js"),
        tag("script", src="/static/page.js", defer=True),
        [tag("script", src=f"/static/{name}", type="module") for name in scripts],
    )
    skip = tag("a", "Skip to the page", href="#main", class_="skip")
    return f'<!doctype html>\n<html lang="en">{head}<body>{skip}{sprite()}<div class="page">{_nav(links, here, brand)}'


def ending(content: Node) -> str:
    """Return the main part and the end of a page."""
    return tag("main", content, id="main", tabindex=-1) + END


def _nav(links: Sequence[tuple[str, str]], here: str, brand: str) -> Html:
    items = [
        tag("li", tag("a", title, href=href, aria_current="page" if href == here else None)) for href, title in links
    ]
    switch = tag("button", "◐ Dark", type="button", id="theme", class_="needs-js", aria_pressed="false")
    return tag("nav", tag("span", brand, class_="brand"), tag("ul", items), switch, aria_label="Pages")


TOKEN = "token"  # noqa: S105 - the name of a field
"""The form field with the token that protects against requests of other sites; scripts send X-Token."""
_FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")
SESSION_SECONDS = 12 * 3600
MOST_SESSIONS = 1000
MOST_BYTES = 1_000_000
"""Largest request."""
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
        "base-uri 'none'; form-action 'self'; frame-ancestors 'none'; require-trusted-types-for 'script'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
STYLES = ("page.css", "tables.css", "charts.css", "panels.css", "browser.css")
"""Of the reports."""
SCRIPTS = ("page.js", "dom.js")
_TYPES = {"css": "text/css", "js": "text/javascript"}
_CLIENT = web.RequestKey("ui-client", Caller)
_SESSION = web.RequestKey("ui-session", str)
_log = logging.getLogger("evenhand.ui")
Assets = Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class _Session:
    client: Caller
    ends: float


class Site:
    """The application around `routes`.

    `is_open` names the requests that bring their own proof, such as the link of a rater; they need no key. On a site
    without keys, they too are served to this machine only. `assets` are more files, by name, under /static/.
    """

    def __init__(
        self,
        routes: Iterable[web.AbstractRouteDef],
        *,
        host: str = "127.0.0.1",
        keys: Mapping[str, KeyConfig] | None = None,
        is_open: Callable[[web.Request], bool] = lambda _: False,
        assets: Assets | None = None,
        name: str = "Evenhand",
    ) -> None:
        self.auth = Auth(keys or {}, host)
        self.host = host
        self.name = name
        self._is_open = is_open
        self._assets = {**shared_assets(), **(assets or {})}
        self._secret = secrets.token_bytes(32)
        self._sessions: dict[str, _Session] = {}
        self._wrong_keys = WrongKeys()
        self._routes = list(routes)

    def app(self) -> web.Application:
        app = web.Application(middlewares=[self._front()], client_max_size=MOST_BYTES)
        app.add_routes([web.get("/login", self._get_login), web.post("/login", self._post_login)])
        app.add_routes([web.post("/logout", self._post_logout), web.get("/static/{name}", self._get_asset)])
        app.add_routes(self._routes)
        app.on_response_prepare.append(_add_headers)
        return app

    def token(self, request: web.Request) -> str:
        """Return the token for forms and scripts of this visitor."""
        return hmac.digest(self._secret, request.get(_SESSION, "").encode(), "sha256").hex()

    def token_field(self, request: web.Request) -> Html:
        """Return the hidden field that every form with method=post needs."""
        return tag("input", type="hidden", name=TOKEN, value=self.token(request))

    def require(self, request: web.Request, right: Permission) -> None:
        """Raise RequestError unless the visitor's key has this permission."""
        if not self.may(request, right):
            raise RequestError(403, f"This key lacks the permission {right!r}.", code="missing_right")

    def may(self, request: web.Request, right: Permission) -> bool:
        return allowed(request.get(_CLIENT, Caller()), right)

    # --- the protection ---

    def _front(self) -> Middleware:
        @web.middleware
        async def front(request: web.Request, handler: Handler) -> web.StreamResponse:
            try:
                await self._admit(request)
                if request.method not in ("GET", "HEAD"):
                    await self._check_token(request)
                return await handler(request)
            except web.HTTPRedirection as redirection:
                return web.Response(status=303, headers={"Location": redirection.headers["Location"]})
            except (asyncio.CancelledError, ConnectionError):
                raise
            except Exception as error:
                return self._failure(request, error)

        return front

    async def _admit(self, request: web.Request) -> None:
        """Identify the sender of the request; raise RequestError if they have no access."""
        _reject_other_sites(request)
        if not self.auth.needs_key:
            request[_CLIENT] = self.auth.client(request)
            return
        name = request.cookies.get(self._cookie(request), "")
        session = self._sessions.get(name)
        if session is not None and time() < min(session.ends, session.client.expires):
            request[_SESSION], request[_CLIENT] = name, session.client
        elif key_of(request):
            request[_CLIENT] = await self._owner(request, key_of(request))
        elif not (self._is_open(request) or request.path == "/login" or request.path.startswith("/static/")):
            if request.method == "GET" and "text/html" in request.headers.get("Accept", ""):
                raise web.HTTPSeeOther(f"/login?to={quote(request.path_qs, safe='')}")
            raise RequestError(401, "This server needs an API key. Log in at /login, or send it as a bearer token.")

    async def _owner(self, request: web.Request, key: str) -> Caller:
        try:
            return self.auth.owner(key)
        except RequestError as error:
            if error.code == INVALID_KEY:
                await self._wrong_keys.note(request.remote or "")
            raise

    async def _check_token(self, request: web.Request) -> None:
        given = request.headers.get("X-Token", "")
        if not given and request.content_type in _FORMS:
            given = str((await request.post()).get(TOKEN, ""))
        if not hmac.compare_digest(given.encode("utf-8", "surrogateescape"), self.token(request).encode()):
            raise RequestError(403, "This form is out of date. Go back, reload the page and try again.")

    def _failure(self, request: web.Request, error: Exception) -> web.Response:
        """Return the error as one sentence: on a page for people, as JSON for scripts."""
        if isinstance(error, RequestError):
            fault = error
        elif isinstance(error, web.HTTPException):
            reasons = {404: "There is no such page.", 405: "This page does not take such a request."}
            fault = RequestError(error.status, reasons.get(error.status, f"{error.reason}."))
        elif isinstance(error, EvenhandError):
            fault = RequestError(400, str(error))
        else:
            number = secrets.token_hex(4)
            _log.exception("A request failed (%s)", number)
            fault = RequestError(500, f"This page failed. The terminal shows the reason, under {number}.")
        if "text/html" not in request.headers.get("Accept", ""):
            return fault.response()
        content = tag("section", tag("h1", "Not possible"), tag("p", fault.message, class_="lead"), id="error")
        return html(page("Not possible", content, brand=self.name), status=fault.status)

    # --- login ---

    def _cookie(self, request: web.Request) -> str:
        """Cookies are shared by all ports of a host, so the name has the port."""
        try:
            return f"evenhand-{urlsplit(f'//{request.host}').port or 0}"
        except ValueError as error:
            raise RequestError(400, "The Host header of this request is not valid.") from error

    async def _get_login(self, request: web.Request) -> web.Response:
        to = tag("input", type="hidden", name="to", value=_own_path(request.query.get("to", "/")))
        field = tag(
            "input", type="password", name="key", autocomplete="current-password", spellcheck="false", required=True
        )
        form = tag(
            "form",
            self.token_field(request),
            to,
            tag("label", "Key", field),
            tag("button", "Log in", type="submit", class_="primary"),
            method="post",
            action="/login",
            class_="form",
        )
        note = tag("p", "Keys are made with ", tag("code", "evenhand serve keys NAME"), ".", class_="footnote")
        content = tag("section", tag("h1", "This server needs a key"), form, note, id="login")
        return html(page("Log in", content, brand=self.name))

    async def _post_login(self, request: web.Request) -> web.Response:
        form = await request.post()
        response = web.Response(status=303, headers={"Location": _own_path(str(form.get("to", "/")))})
        if self.auth.needs_key:
            client = await self._owner(request, str(form.get("key", "")).strip())
            self._forget_old()
            name = secrets.token_urlsafe(32)
            self._sessions[name] = _Session(client, time() + SESSION_SECONDS)
            response.set_cookie(
                self._cookie(request), name, httponly=True, samesite="Strict", secure=request.secure, path="/"
            )
        return response

    async def _post_logout(self, request: web.Request) -> web.Response:
        self._sessions.pop(request.get(_SESSION, ""), None)
        response = web.Response(status=303, headers={"Location": "/login"})
        response.del_cookie(self._cookie(request), path="/")
        return response

    def _forget_old(self) -> None:
        now = time()
        kept = [(name, each) for name, each in self._sessions.items() if each.ends > now]
        self._sessions = dict(kept[-MOST_SESSIONS + 1 :])

    async def _get_asset(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if (body := self._assets.get(name)) is None:
            raise web.HTTPNotFound
        tag_ = f'"{hashlib.sha256(body).hexdigest()[:16]}"'
        headers = {"ETag": tag_, "Cache-Control": "no-cache"}
        if request.headers.get("If-None-Match") == tag_:
            return web.Response(status=304, headers=headers)
        content_type = _TYPES.get(name.rpartition(".")[2], "application/octet-stream")
        return web.Response(body=body, content_type=content_type, charset="utf-8", headers=headers)


def html(text: str, status: int = 200) -> web.Response:
    return web.Response(text=text, status=status, content_type="text/html")


def shared_assets() -> Assets:
    """Return the style and scripts that every page has; most of the style is that of the reports."""
    ours, reports = files("evenhand.web") / "assets", files("evenhand.show") / "assets"
    style = b"\n".join((reports / name).read_bytes() for name in STYLES) + (ours / "ui.css").read_bytes()
    scripts = {name: (reports / name).read_bytes() for name in SCRIPTS}
    return {"style.css": style, "ui.js": (ours / "ui.js").read_bytes(), **scripts}


async def serve(site: Site, port: int, ready: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM; `ready` gets the address."""
    _log_to_terminal()
    runner = web.AppRunner(site.app(), access_log=None, handler_cancellation=True, shutdown_timeout=0.5)
    stop = asyncio.Event()
    await runner.setup()
    try:
        listening = bound(site.host, port, shared=False)
        await web.SockSite(runner, listening).start()
        for each in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(each, stop.set)
        ready(address(site.host, listening.getsockname()[1]))
        await stop.wait()
    finally:
        await runner.cleanup()


def _log_to_terminal() -> None:
    """Show wrong keys and faults on stderr: pages point to the terminal, and an attack must leave a trace."""
    logger = logging.getLogger("evenhand")
    if not logger.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        logger.addHandler(handler)
        logger.setLevel(min(logger.level or logging.INFO, logging.INFO))


async def _add_headers(_request: web.Request, response: web.StreamResponse) -> None:
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)


def _reject_other_sites(request: web.Request) -> None:
    """Refuse what a page of another site makes the browser send; following a link to here is fine."""
    origin = request.headers.get("Origin")
    follows_link = request.method == "GET" and request.headers.get("Sec-Fetch-Mode") == "navigate"
    comes_from = request.headers.get("Sec-Fetch-Site", "same-origin")
    is_ours = comes_from in ("same-origin", "none") or follows_link
    if not is_ours or (origin is not None and _split(origin).netloc != request.host):
        raise RequestError(403, "Pages of other sites may not use this server.")


def _split(address: str) -> SplitResult:
    """Return the parts of an address; an invalid address counts as another site's."""
    try:
        return urlsplit(address)
    except ValueError:
        return SplitResult("", "not an address", "", "", "")


def _own_path(text: str) -> str:
    """Return a path of this site; anything else becomes the first page."""
    parts = _split(text)
    is_path = text.startswith("/") and not text.startswith(("//", "/\\")) and not parts.netloc and text.isprintable()
    return text if is_path and "\\" not in text else "/"
