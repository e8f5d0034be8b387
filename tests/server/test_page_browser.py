"""The live page in a real browser: it shows what happens, as text, and bears whatever comes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from evenhand.core.types import Usage
from evenhand.guards.types import Check
from evenhand.web.keys import new_key
from support.browser import FAINT, choose, every, one, set_size, wait_until
from support.fixtures import Serve
from support.guard_server import CLEAN, RUDE, Guarding, route
from support.live_page import FIRST, TEXT, PageServer, event, revised
from support.server import chat

LITERAL = "<script>alert(1)</script><img src=x onerror=alert(2)>"
HOSTILE = LITERAL + " \u202eright to left \u05e9\u05dc\u05d5\u05dd \U0001f469\u200d\U0001f467 ${1} \ud800\x00"
RUNS = """return [...document.querySelector(".diff pre").childNodes].map((node) =>
  [node.nodeName, (node.lastChild || node).data])"""
# Where the page ends up wider than the window, apart from the boxes that are meant to scroll.
STICKING_OUT = """return [...document.querySelectorAll("body *")].filter((e) =>
  !e.closest("pre, svg, .skip, .unseen") && e.getBoundingClientRect().right > innerWidth + 1
).map((e) => e.tagName + "." + e.className)"""


@pytest.fixture
def site() -> Iterator[PageServer]:
    page = PageServer()
    yield page
    page.close()


@pytest.fixture
def page(chromium: Any, site: PageServer) -> Iterator[Any]:
    """The page of `site`; afterwards the console must be silent."""
    chromium.get_log("browser")
    open_page(chromium, site)
    yield chromium
    messages = chromium.get_log("browser")
    chromium.get("about:blank")
    assert messages == []


def open_page(driver: Any, site: PageServer, width: int = 1400) -> None:
    set_size(driver, width)
    driver.get(site.url)
    # Selenium clicks where an element is, not where smooth scrolling will have brought it.
    driver.execute_script("document.documentElement.style.scrollBehavior = 'auto'")
    wait_until(driver, lambda: one(driver, "#connection").text == "Live")


def items(driver: Any) -> list[Any]:
    return every(driver, "#list button")


def wait_for_items(driver: Any, n: int) -> list[Any]:
    return wait_until(driver, lambda: len(items(driver)) == n and items(driver))


def open_item(driver: Any, place: int) -> None:
    button = items(driver)[place]
    driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", button)
    button.click()


def open_first(driver: Any) -> Any:
    """The detail of the newest request.

    The page opens the newest request by itself, and a click replaces that: one waits for the one and for the other.
    """
    before = wait_until(driver, lambda: one(driver, "#detail h4"))
    open_item(driver, 0)
    return wait_until(driver, lambda: one(driver, "#detail h4") != before and one(driver, "#detail"))


def tile(driver: Any, name: str) -> str:
    return next(each.text for each in every(driver, ".tile") if each.text.startswith(name)).replace("\n", " ")


def test_an_empty_page_teaches_the_first_request_and_comes_alive(page: Any, site: PageServer) -> None:
    command = one(page, "#first-command").text
    assert f"{site.url}v1/chat/completions" in command
    assert '"model":"support"' in command
    site.publish(event())
    wait_for_items(page, 1)
    assert not one(page, "#first").is_displayed()
    assert tile(page, "Requests") == "Requests 1 0 errors"


def test_tiles_and_routes_sum_up(page: Any, site: PageServer) -> None:
    failed = event(action="", status=504, upstream_error="timeout", route="drafts")
    site.publish(event(), event(), event(), revised(late=True), event(action="blocked", text="Withheld."), failed)
    wait_for_items(page, 6)
    assert tile(page, "Revised") == "Revised 20.0% 1 of 5 answers"
    assert tile(page, "Blocked") == "Blocked 1 0 of them requests"
    assert tile(page, "Returned, still failing") == (
        "Returned, still failing 0 no revision passed; 0 flagged, 0 unchecked"
    )
    assert tile(page, "Late").startswith("Late 1")
    assert tile(page, "Upstream errors").startswith("Upstream errors 1")
    assert tile(page, "Latency") == "Latency 500 ms median; p95 500 ms"
    assert tile(page, "Cost") == "Cost $0.0600 720 tokens"
    routes = [each.text.replace("\n", " ") for each in every(page, "#routes li")]
    assert routes == ["support 20.0% 5 requests, 1 blocked", "drafts – 1 request, 1 error"]


def test_answers_that_still_fail_are_as_loud_as_blocked_ones(page: Any, site: PageServer) -> None:
    site.publish(event(action="unrevised"), event(action="tried"), event(action="blocked"))
    wait_for_items(page, 3)
    assert tile(page, "Returned, still failing").startswith("Returned, still failing 2")
    assert "2 returned, still failing" in one(page, "#routes").text
    colours = {each.value_of_css_property("color") for each in every(page, "#list .action")}
    assert len(colours) == 1


def test_the_page_says_which_checks_run(page: Any, site: PageServer) -> None:
    assert one(page, "#checks").text == "Checks: toxicity (builtin 2.3). Bias is not checked."
    site.publish(event())
    wait_for_items(page, 1)
    assert one(page, "#checks").is_displayed()
    assert "Bias is not checked." in open_first(page).text


def test_an_unknown_price_is_a_dash(page: Any, site: PageServer) -> None:
    site.publish(event(usage=Usage(1, 5, 5, cost=None)), event(action="scored", usage=Usage()))
    wait_for_items(page, 2)
    assert tile(page, "Cost") == "Cost – 10 tokens, without the price of 1 request"


def test_the_chart_tells_scores_before_and_after(page: Any, site: PageServer) -> None:
    site.publish(revised())
    wait_for_items(page, 1)
    chart = one(page, "#score-chart svg")
    assert chart.accessible_name.endswith("latest 0.80 for first answers, 0.05 for what clients got")
    assert len(every(page, "#score-chart circle.before")) == len(every(page, "#score-chart circle.after")) == 1
    choose(page, "#window", "hour")
    assert "last hour" in one(page, "#score-chart svg").accessible_name


def test_a_revised_answer_opens_as_a_diff_with_signs_and_the_critics_words(page: Any, site: PageServer) -> None:
    site.publish(revised(late=True))
    wait_for_items(page, 1)
    detail = open_first(page)
    assert one(page, "#detail h3").text == "✎revised on support, late"
    runs = page.execute_script(RUNS)
    assert "".join(text for kind, text in runs if kind != "INS") == FIRST
    assert "".join(text for kind, text in runs if kind != "DEL") == TEXT
    assert ["DEL", "Girls are bad at maths"] in runs
    assert {each.text[0] for each in every(page, ".diff del")} == {"−"}
    assert {each.text[0] for each in every(page, ".diff ins")} == {"+"}
    for told in (
        "It calls girls less able.",
        "Nothing to object to.",
        "✗ 0.80",
        "✓ 0.05",
        "limit 0.30",
        "Why: toxicity",
    ):
        assert told in detail.text


def test_answers_that_share_little_stand_side_by_side(page: Any, site: PageServer) -> None:
    site.publish(revised(action="blocked", text="This answer is withheld.", after=()))
    wait_for_items(page, 1)
    open_first(page)
    assert [each.text for each in every(page, ".change pre")] == [FIRST, "This answer is withheld."]
    assert every(page, "#detail del, #detail ins") == []


def test_an_answer_that_was_not_changed_is_shown_once(page: Any, site: PageServer) -> None:
    site.publish(event(action="unrevised", before=revised().before, after=revised().before))
    wait_for_items(page, 1)
    detail = open_first(page).text
    assert "Answer, unchanged" in detail
    assert detail.count("It calls girls less able.") == 1
    assert one(page, ".say.output pre").text == TEXT


def test_texts_that_are_not_kept_are_said_to_be(page: Any, site: PageServer) -> None:
    site.publish(revised(prompt="", first="", text=""))
    wait_for_items(page, 1)
    detail = open_first(page).text
    assert "texts of this request are not kept" in detail
    assert "✗ 0.80" in detail


def test_the_newest_request_is_open_and_stays_open(page: Any, site: PageServer) -> None:
    site.publish(event(prompt="the older"), revised(prompt="the newer"))
    open_page(page, site)
    wait_until(page, lambda: "the newer" in one(page, "#detail").text)
    assert items(page)[0].get_attribute("aria-current") == "true"
    site.publish(event(prompt="the newest"))
    wait_for_items(page, 3)
    assert items(page)[1].get_attribute("aria-current") == "true"
    assert "the newer" in one(page, "#detail").text


def test_failures_and_unreadable_critics_are_told(page: Any, site: PageServer) -> None:
    unread = Check("bias", None, 0.5, False, problem="The critic's answer could not be read.")
    site.publish(
        event(action="", status=504, error="The model did not answer.", upstream_error="timeout", before=(unread,))
    )
    wait_for_items(page, 1)
    detail = open_first(page).text
    assert "The model did not answer. The model's endpoint: timeout." in detail
    assert "? The critic's answer could not be read." in detail
    assert "HTTP 504" in detail


def test_a_request_that_named_no_route_or_whose_client_left_is_not_taken_for_withheld(
    page: Any, site: PageServer
) -> None:
    site.publish(event(action="", status=499, route="", prompt="", first="", text="", before=()))
    wait_for_items(page, 1)
    detail = open_first(page).text
    assert "The client disconnected before the answer." in detail

    assert "not kept" not in detail


def test_what_was_sent_of_an_answer_that_broke_off_is_shown(page: Any, site: PageServer) -> None:
    site.publish(event(action="", status=499, prompt="Tell me.", first="", text="The weather is", before=()))
    wait_for_items(page, 1)
    detail = open_first(page).text
    assert "The client disconnected before the end of the answer." in detail
    assert "Sent before the answer broke off\nThe weather is" in detail


def test_a_scored_text_is_no_answer(page: Any, site: PageServer) -> None:
    site.publish(event(action="scored", endpoint="/v1/moderations", prompt="Is this fine?", first="", text=""))
    wait_for_items(page, 1)
    detail = open_first(page).text
    assert "Scored text\nIs this fine?" in detail
    assert "no text" not in detail
    assert "✓ 0.10" in detail


def test_filters_narrow_the_list_and_what_arrives(page: Any, site: PageServer) -> None:
    site.publish(event(), event(route="drafts"), revised(), revised(route="drafts"))
    wait_for_items(page, 4)
    choose(page, "#filter-route", "drafts")
    assert one(page, "#count").text == "2 of 4 recent requests"
    choose(page, "#filter-action", "revised")
    assert len(items(page)) == 1
    site.publish(event(), revised(route="drafts"), event(route="drafts"))
    wait_for_items(page, 2)
    assert one(page, "#count").text == "2 of 7 recent requests"
    choose(page, "#filter-action", "blocked")
    assert "No recent request matches" in one(page, "#list").text
    site.publish(event(route="drafts", action="blocked"))
    wait_for_items(page, 1)
    assert "No recent request" not in one(page, "#list").text


def test_a_paused_page_holds_still_and_catches_up(page: Any, site: PageServer) -> None:
    site.publish(event())
    wait_for_items(page, 1)
    one(page, "#pause").click()
    site.publish(revised(), revised())
    wait_until(page, lambda: one(page, "#connection").text == "Paused, 2 new")
    assert len(items(page)) == 1
    assert tile(page, "Requests").startswith("Requests 1")
    one(page, "#pause").click()
    assert len(items(page)) == 3
    assert one(page, "#connection").text == "Live"


def test_the_open_request_and_the_focus_stay_while_others_arrive(page: Any, site: PageServer) -> None:
    from selenium.webdriver.common.keys import Keys

    site.publish(event(prompt="the older"), revised(prompt="the newer"))
    wait_for_items(page, 2)
    open_first(page)
    items(page)[0].send_keys(Keys.ARROW_DOWN)
    wait_until(page, lambda: "the older" in one(page, "#detail").text)
    site.publish(*(event() for _ in range(5)))
    wait_for_items(page, 7)
    assert page.switch_to.active_element == items(page)[6]
    assert items(page)[6].get_attribute("aria-current") == "true"
    assert "the older" in one(page, "#detail").text


@pytest.mark.parametrize("width", [390, 1400])
def test_hostile_texts_stay_text(page: Any, site: PageServer, width: int) -> None:
    from selenium.common.exceptions import NoAlertPresentException

    check = Check(HOSTILE, 0.9, 0.3, False, words=HOSTILE, problem="")
    shorter = HOSTILE.replace("right", "left")
    site.publish(
        revised(
            id=HOSTILE, route=HOSTILE, endpoint=HOSTILE, key=HOSTILE, why=(HOSTILE,), prompt=HOSTILE,
            first=HOSTILE, text=shorter, before=(check,), after=(check,), stages={HOSTILE: 1.0}, error=HOSTILE,
        ),
        revised(prompt="A" * 1_000_000, first="B" * 1_000_000, text="C" * 1_000_000, route="D" * 5_000),
    )  # fmt: skip
    open_page(page, site, width)
    wait_for_items(page, 2)
    assert "up to 8,000 characters" in open_first(page).text
    open_item(page, 1)
    detail = wait_until(page, lambda: LITERAL in one(page, "#detail").text and one(page, "#detail"))
    assert detail.text.count(LITERAL) >= 8
    assert LITERAL in one(page, "#list").text
    assert LITERAL in one(page, "#routes").text
    with pytest.raises(NoAlertPresentException):
        _ = page.switch_to.alert.text
    assert every(page, "img, iframe, main script, [onload], [onerror]") == []
    assert page.execute_script("return document.documentElement.scrollWidth") <= width


def test_the_page_comes_back_after_the_server_does(chromium: Any, site: PageServer) -> None:
    open_page(chromium, site)
    site.publish(*(event(prompt="before the restart") for _ in range(3)))
    wait_for_items(chromium, 3)
    site.stop()
    wait_until(chromium, lambda: "Connection lost" in one(chromium, "#connection").text)
    site.start()
    site.publish(revised(prompt="after the restart"))
    wait_until(chromium, lambda: one(chromium, "#connection").text == "Live")
    assert "after the restart" in wait_for_items(chromium, 1)[0].text
    assert tile(chromium, "Requests").startswith("Requests 1")
    chromium.get("about:blank")


def test_ten_thousand_requests_leave_the_page_small_and_awake(page: Any, site: PageServer) -> None:
    site.publish(revised())
    wait_for_items(page, 1)
    for _ in range(10):
        site.publish(*(revised(prompt="again " * 50) for _ in range(1_000)))
    wait_until(page, lambda: tile(page, "Requests").startswith("Requests 10.0k"))
    assert len(items(page)) == 200
    assert page.execute_script("return document.querySelectorAll('*').length") < 5_000
    assert "again" in open_first(page).text


def test_a_request_that_is_no_longer_kept_is_said_to_be(chromium: Any, site: PageServer) -> None:
    open_page(chromium, site)
    site.publish(event())
    wait_for_items(chromium, 1)
    one(chromium, "#pause").click()
    site.publish(*(event() for _ in range(300)))
    wait_until(chromium, lambda: one(chromium, "#connection").text == "Paused, 200 or more new")
    items(chromium)[0].click()
    wait_until(chromium, lambda: "no longer kept" in one(chromium, "#detail").text)
    chromium.get("about:blank")


async def test_where_keys_are_needed_the_page_asks_and_keeps_the_key_in_the_tab(
    chromium: Any, serve: Serve, guarding: Guarding
) -> None:
    (operator, its_hash), (client, other_hash) = new_key(), new_key()
    keys = {"operator": {"hash": its_hash, "may": ["admin"]}, "website": {"hash": other_hash}}
    behind = await serve(chat(RUDE), chat(CLEAN))
    guard = await guarding(route(behind.url), keys=keys)

    await asyncio.to_thread(chromium.get, guard.root)
    await asyncio.to_thread(_get_in, chromium, client, operator)
    await guard.chat("Whom should I hire?", headers={"Authorization": f"Bearer {client}"})
    await asyncio.to_thread(_see_the_request, chromium, operator)


def _get_in(page: Any, client: str, operator: str) -> None:
    """First with no key, then with wrong ones, then with the right one."""
    wait_until(page, lambda: one(page, "#key").is_displayed())
    assert one(page, "#key-why").text == ""
    one(page, "#key").send_keys("evh-wrong\n")
    wait_until(page, lambda: one(page, "#key-why").text == "The API key is not valid.")
    one(page, "#key").send_keys(f"{client}\n")
    wait_until(page, lambda: "lacks the permission 'admin'" in one(page, "#key-why").text)
    one(page, "#key").send_keys(f"{operator}\n")
    wait_until(page, lambda: one(page, "#connection").text == "Live")
    assert not one(page, "#key-form").is_displayed()
    assert operator not in one(page, "#first-command").text


def _see_the_request(page: Any, operator: str) -> None:
    """It appears, also after the page is loaded again, and the key is nowhere but in this tab."""
    wait_for_items(page, 1)
    assert "worthless" in open_first(page).text
    kept = page.execute_script("return [localStorage.length, document.cookie, sessionStorage['evenhand-key']]")
    assert kept == [0, "", operator]
    page.refresh()
    wait_for_items(page, 1)
    page.get("about:blank")


def test_one_of_several_workers_shows_its_own_requests(chromium: Any) -> None:
    first = PageServer(worker=1)
    second = PageServer(port=first.port, worker=2)
    first.publish(*(event(prompt="by worker 1") for _ in range(2)))
    second.publish(*(event(prompt="by worker 2") for _ in range(2)))
    chromium.get(first.url)
    wait_for_items(chromium, 2)
    live = one(chromium, "#connection").text
    assert live in ("Live, worker 1 only", "Live, worker 2 only")
    assert f"by {live.removeprefix('Live, ').removesuffix(' only')}" in open_first(chromium).text
    chromium.get("about:blank")
    second.close()
    first.close()


@pytest.mark.parametrize("width", [320, 390, 768, 1100, 1400])
def test_no_width_makes_the_page_scroll_sideways(page: Any, site: PageServer, width: int) -> None:
    site.publish(revised(route="a-route-with-a-long-name-" * 4), event(), event(action="", status=502))
    open_page(page, site, width)
    wait_for_items(page, 3)
    open_item(page, 2)
    wait_until(page, lambda: every(page, "#detail h4"))
    assert page.execute_script("return document.documentElement.scrollWidth") <= width
    assert page.execute_script(STICKING_OUT) == []


def test_every_control_has_a_name(page: Any, site: PageServer) -> None:
    site.publish(revised(before=(*revised().before, Check("bias", 0.4, 0.5, True))))
    wait_for_items(page, 1)
    open_first(page)
    for control in every(page, "button, select, input, pre, svg[role=img]"):
        if control.is_displayed():
            assert control.accessible_name, control.get_attribute("outerHTML")[:200]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_stand_out_from_what_is_behind_them(page: Any, site: PageServer, scheme: str) -> None:
    site.publish(event(action="flagged"), event(action="", status=502), event(action="blocked"), event(), revised())
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    wait_for_items(page, 5)
    open_first(page)
    assert page.execute_script(FAINT) == []
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_a_diff_always_tells_both_texts(page: Any, site: PageServer) -> None:
    found = page.execute_async_script(_TRY_DIFFS, f"{site.url}page/diff.js")
    assert found == "300 right"


_TRY_DIFFS = """
const [url, done] = arguments;
import(url).then(({ diff }) => {
  const words = ["a", "the", "dog", "saw", ",", ". ", " ", "\\n", "👩‍👩‍👧", "שלום", "不是", "é", "x".repeat(50)];
  let seed = 7;
  const pick = (n) => (seed = (seed * 48271) % 2147483647) % n;
  let right = 0;
  for (let i = 0; i < 300; i++) {
    const some = () => Array.from({ length: pick(30) }, () => words[pick(words.length)]).join(" ");
    const [before, after] = [some(), pick(5) ? some() : ""];
    const runs = diff(before, after);
    const side = (kind) => runs.filter((run) => run[0] !== kind).map((run) => run[1]).join("");
    const alternate = runs.every((run, i) => !i || run[0] !== runs[i - 1][0]);
    if (side("added") === before && side("removed") === after && alternate) right += 1;
  }
  done(right + " right");
}).catch((error) => done(String(error)));
"""
