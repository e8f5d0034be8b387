"""`evenhand annotate ui`: opens studies, says the links, serves until stopped, and fills the sheets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from evenhand.annotate.filling import fill_sheets
from evenhand.annotate.links import FILE as LINKS
from evenhand.annotate.links import read_secret, token
from evenhand.annotate.pages import BREAK_AFTER, StudyPages
from evenhand.annotate.study import Cover, Study, open_study
from evenhand.core.errors import UsageError
from evenhand.server.access.auth import is_loopback
from evenhand.ui.site import serve

ANY_ADDRESS = ("0.0.0.0", "::")  # noqa: S104 - compared, not bound


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
    studies: list[tuple[Study, bytes]] = []
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
                    f"{folder} is a copy of {twins[0]} and has the same links. Remove its {LINKS} to give it its own."
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
            say(f"{study.folder.name}: {fill_sheets(study.folder, study.key['raters']):,} ratings are in the sheets.")
    finally:
        for study, _ in studies:
            study.journal.close()


def _greet(study: Study, secret: bytes, address: str, say: Callable[[str], None]) -> None:
    say(f"{study.folder.name}, for you:  {address}/owner#{token(secret, '')}")
    width = max(map(len, study.key["raters"]))
    for rater in study.key["raters"]:
        say(f"  {rater:<{width}}  {address}/#{token(secret, rater)}")
