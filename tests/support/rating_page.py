"""What a rater does on the page, in a real browser."""

from __future__ import annotations

from typing import Any

from support.browser import every, set_size, wait_until, words_in


def open_link(driver: Any, link: str, width: int = 1280) -> None:
    """Open a link in a new tab, as from a mail; tokens are kept by tab."""
    driver.switch_to.new_window("tab")
    set_size(driver, width)
    driver.get(link)
    wait_until(driver, lambda: every(driver, "#question, #show, #precision, #finished h2, #problem:not([hidden])"))


def press(driver: Any, keys: str) -> None:
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    names = {"⏎": Keys.ENTER, "→": Keys.ARROW_RIGHT, "←": Keys.ARROW_LEFT, "↓": Keys.ARROW_DOWN, "↑": Keys.ARROW_UP}
    ActionChains(driver).send_keys("".join(names.get(key, key) for key in keys)).perform()


def wait_for_words(driver: Any, css: str, words: str) -> None:
    wait_until(driver, lambda: words in words_in(driver, css), 60)
