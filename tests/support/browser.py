"""Debian's Chromium, driven by Selenium, for tests of pages."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
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


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One browser for all tests of a process; each test leaves it with one tab."""
    driver = start_chromium(tmp_path_factory.mktemp("profile"))
    yield driver
    driver.quit()


def start_chromium(profile: Path, *flags: str, wait: str = "normal") -> Any:
    """A browser; with `wait="none"`, opening a page does not wait until it is loaded."""
    if CHROMIUM is None or DRIVER is None:
        pytest.skip("chromium and chromedriver are not both installed")
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    options.page_load_strategy = wait
    for flag in (*FLAGS, *flags, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    try:
        driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    except Exception as error:
        if "only supports Chrome version" in str(error):
            pytest.skip(f"chromium and chromedriver are of different versions: {str(error).splitlines()[0]}")
        raise
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


# Texts whose contrast with the colours behind them is under 4.5, drawn on a canvas to mix them as the browser does.
FAINT = """
const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
const known = new Map();
const mixed = (colours) => {
  const key = colours.join();
  if (!known.has(key)) known.set(key, drawn(colours));
  return known.get(key);
};
const drawn = (colours) => {
  canvas.clearRect(0, 0, 1, 1);
  for (const colour of colours) { canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1); }
  return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3).map((c) => c / 255)
    .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
};
const light = ([r, g, b]) => 0.2126 * r + 0.7152 * g + 0.0722 * b;
const behind = (e) => (e ? [...behind(e.parentElement), getComputedStyle(e).backgroundColor] : []);
return [...document.querySelectorAll("header *, main *")].filter((e) => {
  const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
  if (!own || !e.checkVisibility() || e.closest("svg, .unseen, noscript, nav ul")) return false;
  const under = behind(e);
  const [a, b] = [light(mixed(under)), light(mixed([...under, getComputedStyle(e).color]))].sort((x, y) => y - x);
  return (a + 0.05) / (b + 0.05) < 4.5;
}).map((e) => e.className + ": " + e.textContent.slice(0, 40));
"""
