"""A real browser for the report: Debian's Chromium, driven by Selenium."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.browser import set_size, wait_until

# The helper modules beside the tests; pytest imports by file and leaves the path alone.
sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def chromium_without_scripts(chromium: Any) -> Iterator[Any]:
    chromium.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    yield chromium
    chromium.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


@pytest.fixture
def open_page(chromium: Any) -> Iterator[Callable[..., Any]]:
    """Opens a file at a given width; afterwards the console must be silent."""

    def open_at(path: Path, width: int = 1400, height: int = 1000) -> Any:
        set_size(chromium, width, height)
        light = {"features": [{"name": "prefers-color-scheme", "value": "light"}]}
        chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", light)
        chromium.get(path.as_uri())
        # Selenium clicks where an element is, not where smooth scrolling will have brought it.
        chromium.execute_script("document.documentElement.style.scrollBehavior = 'auto'")
        # Samples are unpacked after the page is loaded.
        filled = "return document.querySelector('#sample-list')?.childElementCount !== 0"
        wait_until(chromium, lambda: chromium.execute_script(filled))
        return chromium

    chromium.get_log("browser")
    yield open_at
    assert chromium.get_log("browser") == []
