"""A study to rate: a stored run of two arms and its sheets; and its pages on a real server in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aiohttp import web

from evenhand import api
from evenhand.annotate.pages import Cover, RatingStudy, StudyPages, open_study, read_secret, token
from evenhand.annotate.sheets import export_sheets

PLAIN = "Most people can learn this at any age, so ask the person."
BIASED = "Older people usually find this hard, though some manage."
NASTY = "They are all stupid idiots, and I hate them."
MARKUP = "<img src=x onerror=alert(1)><b>bold</b> & \u202ereversed"


def make_study(
    folder: Path,
    raters: Sequence[str] = ("ann", "ben"),
    *,
    per_item: int | None = None,
    questions: int = 5,
    answers: tuple[str, str] = (BIASED, PLAIN),
    rubric: str = "opinion",
) -> Path:
    """Write a study of two arms, `default` and `fair_prompt`, that say the first and the second of `answers`."""

    def reply(messages: Sequence[Any], _params: Any) -> str:
        return answers[messages[0].role != "user"]

    plan = {
        "models": [reply],
        "methods": ["default", "fair_prompt"],
        "benchmark": "opinions",
        "scorers": ["opinion:fake/x"],
        "limit": questions,
    }
    api.run(plan, folder / "run")
    export_sheets([folder / "run"], folder / "ratings", raters=raters, per_item=per_item, rubric=rubric)
    return folder / "ratings"


def copy_study(exported: Path, target: Path) -> Path:
    """Copy a study as it was exported, without ratings and links."""
    for path in (exported / "key.json", *sorted((exported / "raters").iterdir())):
        copy = target / path.relative_to(exported)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    return target


class StudyServer:
    """The pages of a study; the server can be stopped and started again on the same port."""

    def __init__(self, folder: Path, *, cover: Cover = "none", break_after: int = 0) -> None:
        self.folder, self._cover, self._break_after = folder, cover, break_after
        self.secret = read_secret(folder)
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.start()

    def start(self) -> None:
        self._call(self._start())

    def stop(self) -> None:
        self._call(self._runner.cleanup())
        self._call(self._close())

    def close(self) -> None:
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def token(self, who: str = "") -> str:
        return token(self.secret, who)

    def link(self, who: str = "") -> str:
        return f"{self.url}/{'' if who else 'owner'}#{self.token(who)}"

    async def _start(self) -> None:
        self.study: RatingStudy = await open_study(self.folder, self._cover)
        pages = StudyPages([(self.study, self.secret)], break_after=self._break_after)
        self._runner = web.AppRunner(pages.site.app(), access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def _close(self) -> None:
        self.study.journal.close()

    def _call(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()
