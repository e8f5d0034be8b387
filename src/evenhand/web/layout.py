"""The frame of every page: head, navigation and main part. All text is escaped by `show.markup`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from evenhand.show.chart import sprite
from evenhand.show.markup import Html, Node, tag
from evenhand.show.page import ICON

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
