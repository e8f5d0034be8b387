"""The raters' and the owner's page in a real browser: rating by keyboard, saving, covering, and what the owner sees."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.axe import serious_findings
from support.browser import FAINT, every, one, set_size, wait_until, words_in
from support.rating_page import open_link, press, wait_for_words
from support.rating_study import MARKUP, NASTY, StudyServer, copy_study, make_study

STICKING_OUT = """return [...document.querySelectorAll("body *")].filter((e) =>
  !e.closest(".scroll, svg, .skip") && e.checkVisibility() && e.getBoundingClientRect().right > innerWidth + 1
).map((e) => e.tagName + "." + e.className)"""


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five questions with two answers each, for two raters."""
    return make_study(tmp_path_factory.mktemp("study"))


@pytest.fixture
def serve(chromium: Any, exported: Path, tmp_path: Path) -> Iterator[Any]:
    """Starts servers; the tabs are closed before them, since a page that misses its server says so on the console."""
    servers: list[StudyServer] = []
    chromium.get_log("browser")

    def start(folder: Path | None = None, **options: Any) -> StudyServer:
        servers.append(StudyServer(folder or copy_study(exported, tmp_path / "ratings"), **options))
        return servers[-1]

    yield start
    for tab in chromium.window_handles[1:]:
        chromium.switch_to.window(tab)
        chromium.close()
    chromium.switch_to.window(chromium.window_handles[0])
    for each in servers:
        each.close()


def given(driver: Any) -> list[str]:
    return [each.text for each in every(driver, ".given")]


def test_two_raters_rate_ten_items_by_keyboard_and_the_owner_sees_kappa(chromium: Any, serve: Any):
    server = serve()
    arms = {name: item["arm"] for name, item in server.study.key["items"].items()}
    # Bias in the same two bands by both, communication in one band only, soundness alike or not at all.
    bias = {"ann": {"default": 6, "fair_prompt": 1}, "ben": {"default": 5, "fair_prompt": 2}}
    for rater in ("ann", "ben"):
        open_link(chromium, server.link(rater))
        assert "#" not in chromium.current_url
        for place, item in enumerate(server.study.items[rater]):
            wait_for_words(chromium, "#where", f"Answer {place + 1} of 10")
            press(chromium, f"{bias[rater][arms[item.id]]}9{7 if place % 2 else 'c'}⏎")
        wait_for_words(chromium, "#finished", "All 10 answers are rated and saved. Thank you.")
        assert words_in(chromium, "#done") == "10 rated"

    open_link(chromium, server.link())
    wait_for_words(chromium, "#sum", "20 of 20 ratings done.")
    agreement = words_in(chromium, "#agreement")
    assert "Bias score\t1.00\n" in agreement
    assert "Communication effectiveness\t–" in agreement
    assert "ann – ben\t1.00\n" in words_in(chromium, "#pairs")
    assert "10 of 10" in words_in(chromium, "#raters")
    assert "too early: 5 of 16 questions" in words_in(chromium, "#drift")
    assert words_in(chromium, "#sum").endswith("It is too early to see drift.")
    assert "fair_prompt against default" in words_in(chromium, "#precision")
    assert chromium.get_log("browser") == []


def test_ratings_are_saved_as_they_are_given_and_come_back(chromium: Any, serve: Any):
    server = serve()
    open_link(chromium, server.link("ann"))
    press(chromium, "3h")
    wait_for_words(chromium, "#saved", "Saved")
    assert given(chromium) == ["30", "100", "not rated"]

    open_link(chromium, server.link("ann"), width=360)  # another device: nothing of the first tab is used
    assert given(chromium) == ["30", "100", "not rated"]
    assert words_in(chromium, "#where") == "Answer 1 of 10"
    press(chromium, "↑c")  # from the last scale, which is marked, up to the second
    wait_until(chromium, lambda: given(chromium) == ["30", "cannot tell", "not rated"])
    press(chromium, "→5→→")
    wait_for_words(chromium, "#where", "Answer 4 of 10")
    press(chromium, "u")
    wait_for_words(chromium, "#where", "Answer 2 of 10")
    assert given(chromium) == ["not rated"] * 3
    assert words_in(chromium, "#saved") == "Undone: answer 2, bias score"
    press(chromium, "uu")
    wait_until(chromium, lambda: given(chromium) == ["30", "not rated", "not rated"])


def test_buttons_do_what_keys_do_and_keys_can_be_switched_off(chromium: Any, serve: Any):
    open_link(chromium, serve().link("ann"))
    one(chromium, "#scale-LS [data-value='80']").click()
    one(chromium, "#scale-BS .unsure").click()
    assert given(chromium) == ["cannot tell", "not rated", "80"]
    assert one(chromium, "#scale-LS [data-value='80']").get_attribute("aria-pressed") == "true"

    one(chromium, "#help summary").click()
    one(chromium, "#shortcuts").click()
    press(chromium, "5")
    one(chromium, "#next").click()
    wait_for_words(chromium, "#where", "Answer 2 of 10")
    one(chromium, "#back").click()
    wait_for_words(chromium, "#where", "Answer 1 of 10")
    assert given(chromium) == ["cannot tell", "not rated", "80"]
    one(chromium, "#shortcuts").click()  # the choice is kept in the browser


def test_offensive_text_waits_for_a_click_and_markup_is_text(chromium: Any, serve: Any, tmp_path: Path):
    server = serve(make_study(tmp_path, ("ann",), answers=(NASTY, MARKUP)), cover="all")
    open_link(chromium, server.link("ann"))
    texts = [item.answer for item in server.study.items["ann"]]
    assert not every(chromium, "#answer")
    press(chromium, "5")
    wait_for_words(chromium, "#saved", "Show the text first")
    assert given(chromium) == ["not rated"] * 3

    press(chromium, "→" * texts.index(MARKUP))
    press(chromium, "s")
    wait_until(chromium, lambda: every(chromium, "#answer"))
    assert "<img src=x onerror=alert(1)><b>bold</b> &" in words_in(chromium, "#answer")
    assert not every(chromium, "#item img, #item b")
    press(chromium, "5→c")  # who does not want to look cannot tell
    wait_until(chromium, lambda: given(chromium)[0] == "cannot tell" and not every(chromium, "#answer"))
    assert chromium.get_log("browser") == []


def test_a_rating_survives_a_server_that_is_away(chromium: Any, serve: Any):
    server = serve()
    open_link(chromium, server.link("ann"))
    server.stop()
    press(chromium, "4")
    wait_for_words(chromium, "#saved", "Not saved yet")
    server.start()  # with another form token
    wait_until(chromium, lambda: words_in(chromium, "#saved") == "Saved", 60)

    open_link(chromium, server.link("ann"))
    assert given(chromium) == ["40", "not rated", "not rated"]


def test_a_break_is_suggested_and_skipped_answers_are_named(chromium: Any, serve: Any):
    server = serve(break_after=2)
    open_link(chromium, server.link("ann"))
    press(chromium, "111⏎")
    wait_for_words(chromium, "#where", "Answer 2 of 10")
    assert not one(chromium, "#break").is_displayed()
    press(chromium, "222⏎")
    wait_for_words(chromium, "#where", "Answer 3 of 10")
    assert "2 answers in a row" in words_in(chromium, "#break")
    press(chromium, "⏎" + "333⏎" * 7)

    wait_for_words(chromium, "#finished", "1 answer still needs a rating")
    one(chromium, "#finished .primary").click()
    wait_for_words(chromium, "#where", "Answer 3 of 10")


def test_the_owners_page_is_live_and_its_wanted_precision_can_be_set(chromium: Any, serve: Any):
    server = serve()
    open_link(chromium, server.link())
    wait_for_words(chromium, "#sum", "0 of 20 ratings done.")

    async def rate() -> None:
        for place in range(3):
            for scale in ("BS", "CE", "LS"):
                server.study.rate("ben", place, scale, 10 * place)

    server._call(rate())
    wait_for_words(chromium, "#sum", "3 of 20 ratings done.")
    assert "ben\t3 of 10" in words_in(chromium, "#raters")

    one(chromium, "#wanted").send_keys("\ue009a\ue0002\ue004")  # Ctrl-A, 2, Tab
    wait_for_words(chromium, "#figures", "what ± 2 points needs")
    assert chromium.get_log("browser") == []


def test_a_wrong_link_is_one_plain_sentence(chromium: Any, serve: Any):
    server = serve()
    for link, words in (
        (f"{server.url}/#wrong", "This link is not valid."),
        (f"{server.url}/owner#wrong", "This link is not valid."),
        (f"{server.url}/", "This link is not valid."),
        (f"{server.url}/owner#{server.token('ann')}", "This link is a rater's."),
        (f"{server.url}/#{server.token()}", "This link is the owner's."),
    ):
        open_link(chromium, link)
        assert words in words_in(chromium, "#problem")
        assert not every(chromium, "#rate *, #study *")


def test_pages_fit_and_can_be_read(chromium: Any, serve: Any):
    server = serve()
    for link in (server.link("ann"), server.link()):
        open_link(chromium, link)
        press(chromium, "5")
        chromium.execute_script("for (const each of document.querySelectorAll('details')) each.open = true")
        for width, scheme in ((360, "light"), (360, "dark"), (1280, "light"), (1280, "dark")):
            set_size(chromium, width)
            media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
            chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
            assert chromium.execute_script("return document.documentElement.scrollWidth <= innerWidth + 1")
            assert chromium.execute_script(STICKING_OUT) == []
            assert chromium.execute_script(FAINT) == []


@pytest.mark.clients
def test_no_page_has_a_serious_finding_of_axe(chromium: Any, serve: Any):
    server = serve()
    for link in (server.link("ann"), server.link(), f"{server.url}/#wrong"):
        open_link(chromium, link)
        chromium.execute_script("for (const each of document.querySelectorAll('details')) each.open = true")
        assert serious_findings(chromium) == []
