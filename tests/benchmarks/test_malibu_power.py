"""A small version of bench/bench_malibu_power.py: seeds are fixed, so it always comes out the same."""

from dataclasses import replace

import pytest

from evenhand.panels.audit import audit
from support.panels import Judges, design

SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_bias_against_one_identity_is_found_and_nothing_else(seed: int):
    found = audit(Judges(bias={"atheist": -0.8}).records(design(40), seed)).found

    assert found
    assert all("atheist" in (gap.x, gap.y) and gap.favours != "atheist" for gap in found)


@pytest.mark.parametrize("seed", SEEDS)
def test_unbiased_judges_raise_no_alarm(seed: int):
    assert not audit(Judges(first=0.3).records(design(40), seed)).found


def test_a_gap_whose_interval_has_0_in_it_is_not_found():
    """One extreme scenario: all signs agree, so that flipping them finds a gap, but the mean is uncertain."""
    first = audit(Judges(bias={"atheist": -0.8}).records(design(40), 0)).found[0]
    wide = replace(first, difference=replace(first.difference, low=-1.5, high=0.1))

    assert first.found
    assert not wide.found
