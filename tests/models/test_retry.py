"""How long to wait before the next try."""

import pytest

from evenhand.errors import EndpointError
from evenhand.models.retry import LONGEST_WAIT, RetryPolicy, retry_after

FAULT = EndpointError("The endpoint kept answering 429.")


def test_waits_are_spread_over_the_whole_range():
    policy = RetryPolicy(6)

    waits = [policy.delay(3, None, FAULT) for _ in range(500)]

    assert 0 <= min(waits) < 1
    assert 3 < max(waits) <= 4


def test_waits_have_a_ceiling():
    policy = RetryPolicy(100, ceiling=10)

    assert max(policy.delay(90, None, FAULT) for _ in range(100)) <= 10


@pytest.mark.parametrize("asked", [0.0, 0.5, 20.0, LONGEST_WAIT])
def test_a_wait_that_was_asked_for_is_never_shortened(asked: float):
    policy = RetryPolicy(6)

    waits = [policy.delay(1, asked, FAULT) for _ in range(100)]

    assert asked <= min(waits)
    assert max(waits) <= asked + 1
    assert len(set(waits)) > 1


def test_a_wait_that_is_too_long_is_an_error_that_says_so():
    with pytest.raises(EndpointError, match=r"kept answering 429\. It asks for a pause of 3,600 s"):
        RetryPolicy(6).delay(1, 3600.0, FAULT)


def test_no_header_is_no_wish():
    assert retry_after({"content-type": "application/json"}) is None


def test_an_unreadable_header_does_not_hide_a_readable_one():
    assert retry_after({"retry-after-ms": "soon", "retry-after": "3"}) == 3
