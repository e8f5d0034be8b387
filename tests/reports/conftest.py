"""A real browser for the report: Debian's Chromium, driven by Selenium."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

# The helper modules beside the tests; pytest imports by file and leaves the path alone.
sys.path.insert(0, str(Path(__file__).parent))

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1400,1000",
)


def start_chromium(profile: Path, *flags: str) -> Any:
    if CHROMIUM is None or DRIVER is None:
        pytest.skip("chromium and chromedriver are not both installed")
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, *flags, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    driver = start_chromium(tmp_path_factory.mktemp("profile"))
    yield driver
    driver.quit()


@pytest.fixture(scope="session")
def chromium_without_scripts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    driver = start_chromium(tmp_path_factory.mktemp("profile"), "--blink-settings=scriptEnabled=false")
    yield driver
    driver.quit()


@pytest.fixture
def open_page(chromium: Any) -> Iterator[Callable[..., Any]]:
    """Opens a file at a given width; afterwards the console must be silent."""

    def open_at(path: Path, width: int = 1400, height: int = 1000) -> Any:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        chromium.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        light = {"features": [{"name": "prefers-color-scheme", "value": "light"}]}
        chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", light)
        chromium.get(path.as_uri())
        # Selenium clicks where an element is, not where smooth scrolling will have brought it.
        chromium.execute_script("document.documentElement.style.scrollBehavior = 'auto'")
        return chromium

    chromium.get_log("browser")
    yield open_at
    assert chromium.get_log("browser") == []
