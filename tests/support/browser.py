"""Debian's Chromium, driven by Selenium, for tests of pages."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

T = TypeVar("T")

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
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    driver.set_script_timeout(600)
    return driver


def set_size(driver: Any, width: int, height: int = 1000) -> None:
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def wait_until(driver: Any, found: Callable[[], T], seconds: float = 600) -> T:
    """The first true value of `found`; elements that the page replaces meanwhile are looked up again."""
    from selenium.common.exceptions import StaleElementReferenceException
    from selenium.webdriver.support.ui import WebDriverWait

    patient = WebDriverWait(driver, seconds, poll_frequency=0.1, ignored_exceptions=[StaleElementReferenceException])
    return patient.until(lambda _: found())


def unfold(driver: Any) -> None:
    """Open everything that folds."""
    driver.execute_script("for (const each of document.querySelectorAll('details')) each.open = true")


def one(driver: Any, css: str) -> Any:
    return driver.find_element("css selector", css)


def words_in(driver: Any, css: str) -> str:
    """What a reader sees of an element; Selenium's own `text` takes seconds for a long page."""
    return driver.execute_script("return document.querySelector(arguments[0]).innerText", css)


def every(driver: Any, css: str) -> list[Any]:
    return driver.find_elements("css selector", css)


def choose(driver: Any, css: str, text: str) -> None:
    from selenium.webdriver.support.ui import Select

    Select(one(driver, css)).select_by_visible_text(text)
