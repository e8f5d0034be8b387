"""What the live page counts."""

from __future__ import annotations

import math

import pytest

from evenhand.core.types import Usage
from evenhand.guards.types import Check
from evenhand.server.page import BARS, WINDOWS, Board, Window, released
from support.live_page import event, revised


def counted(*events: object) -> Board:
    board = Board()
    for each in events:
        board(each)  # pyright: ignore[reportArgumentType]
    return board


def test_requests_are_counted_by_action_and_the_share_is_taken_of_guarded_answers() -> None:
    failed = event(action="", status=502, upstream_error="timeout", route="drafts")
    board = counted(event(), revised(), event(action="scored"), event(action="bypassed"), failed)
    assert (board.requests, board.answered, board.errors, board.upstream_errors) == (5, 2, 1, 1)
    support, drafts = board.routes["support"], board.routes["drafts"]
    assert (support.requests, support.answered, support.revised) == (4, 2, 1)
    assert (drafts.requests, drafts.answered, drafts.errors) == (1, 0, 1)


def test_an_unknown_price_is_counted_and_never_taken_for_nothing() -> None:
    board = counted(event(), event(usage=Usage(1, 5, 5, cost=None)))
    assert (board.cost, board.unpriced, board.tokens) == (0.01, 1, 130)


def test_percentiles_are_of_guarded_answers_only() -> None:
    slow_failure = event(action="", status=504, stages={"total": 99.0})
    board = counted(slow_failure, *(event(stages={"total": n / 100}) for n in range(1, 101)))
    assert board.percentile(0.5) == pytest.approx(0.51)
    assert board.percentile(0.95) == pytest.approx(0.96)
    assert Board().percentile(0.5) is None


def test_what_was_let_through_has_the_checks_of_the_first_answer() -> None:
    assert released(event()) == event().before
    assert released(event(action="flagged")) == event().before
    assert released(revised()) == revised().after
    assert released(event(action="blocked")) == ()


def test_a_window_holds_means_by_step_and_gaps() -> None:
    window = Window(5)
    window.add(1000.0, [Check("toxicity", 0.2, 0.3, True)], [Check("toxicity", 0.2, 0.3, True)])
    window.add(1001.0, [Check("toxicity", 0.6, 0.3, False)], [])
    window.add(1011.0, [Check("toxicity", 0.9, 0.3, False)], [Check("toxicity", None, 0.3, True, problem="late")])
    line = window.lines(1012.0)["toxicity"]
    assert line["before"][-3:] == [0.4, None, 0.9]
    assert line["after"][-3:] == [0.2, None, None]
    assert line["n"][-3:] == [2, 0, 1]
    assert len(line["before"]) == BARS


def test_a_window_forgets_what_is_older_than_it() -> None:
    window = Window(5)
    window.add(1000.0, [Check("toxicity", 0.2, 0.3, True)], [])
    assert window.lines(1000.0 + 5 * BARS) == {}


def test_a_request_that_ends_out_of_turn_or_ahead_of_the_clock_is_not_lost() -> None:
    window = Window(5)
    for time in (1000.0, 990.0, 1030.0):
        window.add(time, [Check("toxicity", 0.5, 0.3, False)], [])
    assert sum(window.lines(1010.0)["toxicity"]["n"]) == 3


def test_a_score_that_is_no_number_is_left_out() -> None:
    board = counted(event(before=(Check("toxicity", math.nan, 0.3, True),), time=1000.0))
    assert all(window.lines(1000.0) == {} for window in board.windows.values())


def test_memory_does_not_grow_with_the_number_of_requests() -> None:
    board = counted(*(event(time=1000.0 + n * 7) for n in range(5_000)))
    assert len(board.routes) == len(board.limits) == 1
    assert set(board.windows) == set(WINDOWS)
    assert all(len(window.lines(1000.0 + 5_000 * 7)["toxicity"]["n"]) == BARS for window in board.windows.values())
