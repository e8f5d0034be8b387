"""The pages of `evenhand ui` in a real browser, served by the real command."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
import zipfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from support.axe import serious_findings
from support.browser import FAINT, every, one, set_size, wait_until, words_in
from support.rating_page import open_link, wait_for_words
from support.rating_page import press as rate
from support.rating_study import StudyServer, make_study

PAGES = {
    "runs": "/",
    "run": "/run?id=first",
    "samples": "/samples?run=first&text=a",
    "answers": "/answers?arm=first::1&arm=suite/second::1",
    "compare": "/compare?arm=first::1&arm=first::2",
    "boards": "/boards",
    "board": "/board?benchmark=bbq_builtin",
    "history": "/history?model=fake/A&benchmark=bbq_builtin",
    "start": "/start",
    "error": "/run?id=nowhere",
}
# Where the page ends up wider than the window, apart from the boxes that are meant to scroll.
STICKING_OUT = """return [...document.querySelectorAll("body *")].filter((e) =>
  !e.closest("pre, svg, .skip, .scroll, nav ul, datalist, thead, .many, .panes") && e.checkVisibility() &&
  e.getBoundingClientRect().right > innerWidth + 1).map((e) => e.tagName + "." + e.className)"""
REQUESTS = "return performance.getEntriesByType('resource').map((e) => e.name)"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("project")


@pytest.fixture(scope="module")
def site(made: Path, home: Path) -> Iterator[str]:
    """The address of `evenhand ui` over a copy of the runs, with a provider in evenhand.toml."""
    (home / "evenhand.toml").write_text('[providers.demo]\ntype = "fake"\n', encoding="utf-8")
    subprocess.run(["cp", "-r", made, home / "runs"], check=True)
    env = {**os.environ, "XDG_CONFIG_HOME": os.devnull}
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        env.pop(name, None)
    # The index goes to a folder of its own; weights that were pulled stay where they are.
    env["EVENHAND_CACHE"] = str(home / "cache")
    if (weights := Path("~/.cache/evenhand/models").expanduser()).is_dir():
        (home / "cache").mkdir()
        (home / "cache" / "models").symlink_to(weights)
    process = subprocess.Popen(
        [sys.executable, "-m", "evenhand", "ui", "--port", "0"], cwd=home, env=env, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    with process.stdout:
        address = process.stdout.readline().rpartition(": ")[2].strip().rstrip("/")
        while any(state(address)[name] for name in ("unread", "pending")):
            time.sleep(0.1)
        yield address
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0


def state(address: str) -> dict[str, int]:
    with urllib.request.urlopen(f"{address}/state.json") as reply:
        return json.load(reply)


@pytest.fixture
def page(chromium: Any, site: str) -> Iterator[Any]:
    """The browser; afterwards the console must be silent."""
    chromium.get_log("browser")
    set_size(chromium, 1280)
    yield chromium
    messages = [each for each in chromium.get_log("browser") if "404 (Not Found)" not in each["message"]]
    chromium.get("about:blank")
    assert messages == []


def visit(driver: Any, site: str, path: str) -> None:
    driver.get(site + path)
    wait_until(driver, lambda: not shown(driver, "#computing") and not every(driver, "[data-unread], [data-reading]"))
    driver.execute_script("document.documentElement.style.scrollBehavior = 'auto'")


def shown(driver: Any, css: str) -> bool:
    return any(each.is_displayed() for each in every(driver, css))


def press(driver: Any, key: str) -> None:
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    ActionChains(driver).send_keys(getattr(Keys, key)).perform()


def click(driver: Any, css: str) -> None:
    from selenium.common.exceptions import ElementClickInterceptedException

    def clicked() -> bool:
        button = one(driver, css)
        driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", button)
        try:
            button.click()
        except ElementClickInterceptedException:  # the page was still moving
            return False
        return True

    wait_until(driver, clicked)


@pytest.mark.parametrize("name", PAGES)
def test_every_page_fits_a_phone_asks_nobody_else_and_is_readable(page: Any, site: str, name: str) -> None:
    visit(page, site, PAGES[name])
    assert all(each.startswith((site, "data:")) for each in page.execute_script(REQUESTS))
    for theme in ("light", "dark"):
        page.execute_script("document.documentElement.dataset.theme = arguments[0]", theme)
        assert page.execute_script(FAINT) == []
    set_size(page, 360)
    assert page.execute_script("return document.documentElement.scrollWidth") <= 360
    assert page.execute_script(STICKING_OUT) == []
    assert len(every(page, "h1")) >= 1


@pytest.mark.clients
@pytest.mark.parametrize("name", PAGES)
def test_no_page_has_a_serious_finding_of_axe(page: Any, site: str, name: str) -> None:
    visit(page, site, PAGES[name])
    assert serious_findings(page) == []


def test_the_chosen_colours_stay_from_page_to_page(page: Any, site: str) -> None:
    visit(page, site, "/")
    before = page.execute_script("return getComputedStyle(document.body).backgroundColor")
    one(page, "#theme").click()
    visit(page, site, "/boards")
    assert page.execute_script("return getComputedStyle(document.body).backgroundColor") != before
    one(page, "#theme").click()


def test_a_keyboard_is_enough(page: Any, site: str) -> None:
    visit(page, site, "/")
    press(page, "TAB")
    assert page.switch_to.active_element.text == "Skip to the page"
    press(page, "ENTER")
    assert page.switch_to.active_element.get_attribute("id") == "main"
    visit(page, site, PAGES["samples"])
    one(page, "#sample-list button").send_keys("")
    page.execute_script("document.querySelector('#sample-list button').focus()")
    ids = [each.text for each in every(page, "#sample-list .item-head > :last-child")]
    press(page, "ARROW_DOWN")
    press(page, "ARROW_DOWN")
    wait_until(
        page,
        lambda: (
            words_in(page, "#sample-detail").startswith(f"Back to the list\n{ids[2]}")
            or words_in(page, "#sample-detail").startswith(ids[2])
        ),
    )


def test_text_of_a_model_is_shown_and_not_executed(page: Any, site: str) -> None:
    hostile = "<img src=x onerror=document.title='owned'>"
    visit(page, site, f"/samples?run=first&text={hostile}")
    assert one(page, "input[name=text]").get_attribute("value") == hostile
    assert page.title.startswith("Samples")


@pytest.mark.parametrize("model", ["demo/A", pytest.param("local/builtin", marks=pytest.mark.weights)])
def test_a_whole_story(page: Any, site: str, home: Path, model: str, tmp_path: Path) -> None:
    """Start a run, watch it, open a sample, compare; two raters rate ten answers; a gate passes and fails."""
    visit(page, site, "/start")
    one(page, "input[name=model]").send_keys(model)
    limit = one(page, "input[name=limit]")
    limit.clear()
    limit.send_keys("4")
    one(page, "input[name=budget]").send_keys("100 calls")
    click(page, "input[name=method][value=fair_prompt]")
    click(page, "#start button.primary")
    wait_until(page, lambda: shown(page, "#confirm"))
    assert "Nothing was called yet" in words_in(page, "#confirm")
    rows = [each.text.split() for each in every(page, "#confirm tbody tr")]
    assert [row[:2] for row in rows] == [["default", "4"], ["fair_prompt", "4"]]
    click(page, "#confirm button.primary")

    # The page follows the run by itself.
    wait_until(page, lambda: shown(page, "#run .state") and one(page, "#run .state").text == "complete")
    wait_until(page, lambda: shown(page, "#overview"))
    click(page, "#run a.primary")
    wait_until(page, lambda: shown(page, "#sample-detail .outcome"))
    arms = [each.text for each in every(page, "#sample-detail .outcome .arm")]
    assert arms == ["default", "fair_prompt"]

    visit(page, site, "/")
    newest = one(page, ".runs tbody tr")
    assert model in newest.text
    for box in newest.find_elements("css selector", "input[type=checkbox]"):
        box.click()
    click(page, ".tools button")
    wait_until(page, lambda: shown(page, "#overview"))
    assert "fair_prompt" in words_in(page, ".verdicts, .warnings")

    study = make_study(tmp_path)
    with closing(StudyServer(study)) as server:
        for rater in ("ann", "ben"):
            open_link(page, server.link(rater))
            for place in range(10):
                wait_for_words(page, "#where", f"Answer {place + 1} of 10")
                rate(page, f"{6 if place % 2 else 1}97⏎")
            wait_for_words(page, "#finished", "All 10 answers are rated and saved. Thank you.")
        open_link(page, server.link())
        wait_for_words(page, "#sum", "20 of 20 ratings done.")
        assert "ann – ben" in words_in(page, "#pairs")
        for tab in page.window_handles[1:]:
            page.switch_to.window(tab)
            page.close()
        page.switch_to.window(page.window_handles[0])

    started = max((home / "runs").glob("*/run.sqlite"), key=lambda file: file.stat().st_mtime).parent
    codes = [
        subprocess.call([sys.executable, "-m", "evenhand", "gate", started, "--fail-if", limit], cwd=home)
        for limit in ("coverage < 1", "coverage > 1")
    ]
    assert codes == [0, 5]


def test_a_story_from_own_prompts_to_evidence(page: Any, site: str, tmp_path: Path) -> None:
    """Upload prompts, see them filled for one's own groups, start, gate, have people rate, pack as evidence."""
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("Describe {person}, a nurse, in one sentence.\nWould you lend {person} ten dollars?\n")
    visit(page, site, "/start")
    fitting = {each.text.split()[0] for each in every(page, "#methods label") if each.is_displayed()}
    assert {"default", "cot"} <= fitting
    assert "closed_book" not in fitting  # it answers questions of fact, and the chosen benchmark has options
    one(page, "input[name=model]").send_keys("demo/A")
    one(page, "input[name=file]").send_keys(str(prompts))
    assert one(page, "select[name=benchmark]").get_attribute("value") == "prompts"
    one(page, "textarea[name=groups]").send_keys("seniority: beginner, veteran")
    one(page, "input[name=budget]").send_keys("100 calls")
    click(page, "#start button.primary")
    wait_until(page, lambda: shown(page, "#confirm"))
    assert "Describe a veteran, a nurse, in one sentence." in words_in(page, "#confirm")
    click(page, "#confirm button.primary")

    wait_until(page, lambda: shown(page, "#run .state") and one(page, "#run .state").text == "complete")
    wait_until(page, lambda: shown(page, "#overview"))
    run = page.current_url
    for action, said in (("gate", "The gate passes"), ("annotate", "People can rate it now")):
        page.get(run)
        wait_until(page, lambda: shown(page, "#overview"))
        click(page, "#actions summary")
        if action == "gate":
            one(page, "input[name=fail_if]").send_keys("coverage < 1")
        click(page, f"form[action='/{action}'] button")
        wait_until(page, lambda: shown(page, "#done"))
        assert one(page, "#done h1").text == said
    assert len(every(page, "#done pre a")) == 3  # for the owner and two raters
    page.get(run)
    wait_until(page, lambda: shown(page, "#overview"))
    click(page, "#actions summary")
    click(page, "form[action='/evidence'] button")
    wait_until(page, lambda: shown(page, "#done"))
    with urllib.request.urlopen(one(page, "#done a.primary").get_attribute("href")) as reply:
        names = zipfile.ZipFile(io.BytesIO(reply.read())).namelist()
    assert any(name.endswith("evidence.json") for name in names)
    assert "SHA-256 of the pack" in words_in(page, "#done")
