"""`evenhand ui`: the web application over a folder of runs."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

from evenhand.server.config import KeyConfig
from evenhand.ui.desk import Desk
from evenhand.ui.handlers.comparing import ComparingPages
from evenhand.ui.handlers.runs import RunPages
from evenhand.ui.handlers.samples import SamplePages
from evenhand.ui.handlers.starting import StartPages
from evenhand.ui.site import Site

_PAGES = (RunPages, SamplePages, ComparingPages, StartPages)


class Workbench(Desk):
    """The desk with its site."""

    def __init__(self, folder: Path, host: str = "127.0.0.1", keys: Mapping[str, KeyConfig] | None = None) -> None:
        super().__init__(folder)
        ours, reports = files("evenhand.ui") / "assets", files("evenhand.show") / "assets"
        assets = {"live.js": (ours / "live.js").read_bytes(), "browser.js": (reports / "browser.js").read_bytes()}
        routes = [route for pages in _PAGES for route in pages(self).routes()]
        self.site = Site(routes, host=host, keys=keys, assets=assets)
