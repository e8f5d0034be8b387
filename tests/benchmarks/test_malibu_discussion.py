from dataclasses import replace

import pytest

from evenhand.core.types import Record
from evenhand.panels.audit import audit
from evenhand.panels.findings import ALL, Amplification, PanelAudit
from support.panels import Judges, design

SAMPLES = design(20)
NAMES = ("ann", "bo", "cy")
EVERYONE = {(listener, judge): 0.25 for listener in NAMES for judge in NAMES if listener != judge}


def overall(found: PanelAudit, number: int) -> Amplification:
    return next(
        each for each in found.amplification if (each.measure, each.round, each.category) == ("score_1", number, ALL)
    )


def test_a_discussion_that_adds_to_a_gap_amplifies_it():
    judges = Judges(NAMES, bias={"female": 0.5}, rounds=2, later_bias={"female": 0.25}, noise=0, steady=True)
    found = audit(judges.records(SAMPLES, seed=0))
    shift = next(each for each in found.shifts if (each.measure, each.round, each.x) == ("score_1", 2, "female"))

    assert (shift.before, shift.after) == (pytest.approx(0.5), pytest.approx(1.0))
    assert shift.change.estimate == pytest.approx(0.5)
    assert overall(found, 1).change.estimate == pytest.approx(0.25 / 13)
    assert overall(found, 2).direction == "amplified"
    assert any("amplified the gaps" in sentence for sentence in found.sentences)


def test_a_discussion_that_takes_a_gap_back_damps_it():
    judges = Judges(NAMES, bias={"female": 0.5}, rounds=1, later_bias={"female": -0.25}, noise=0.1, steady=True)

    assert overall(audit(judges.records(SAMPLES, seed=0)), 1).direction == "damped"


def test_a_discussion_that_only_calms_the_judges_damps_nothing():
    # Judges that come closer to each other keep their mean; one that is drawn to a calm one loses its noise.
    loud, calm = Judges(("loud",), noise=1.0, steady=True), Judges(("loud",), noise=0.05, steady=True)
    before, after = loud.records(SAMPLES, seed=1), calm.records(SAMPLES, seed=2)
    found = overall(audit([_then(first, last) for first, last in zip(before, after, strict=True)]), 1)

    assert found.change.high is not None and found.change.high < 0
    assert found.direction == "undecided"


def test_judges_without_scores_in_both_rounds_are_left_out():
    judges = Judges(NAMES, bias={"female": 0.5}, rounds=1, noise=0, steady=True)
    records = [_silenced(record, "cy") for record in judges.records(SAMPLES, seed=0)]
    found = audit(records)

    assert overall(found, 1).change.estimate == pytest.approx(0)
    assert [judge.missing for judge in found.coverage.judges] == [0, 0, len(records)]


def test_who_moved_whom_is_found():
    pull = {("ann", "bo"): 0.5, ("ann", "cy"): 0.1, ("bo", "ann"): 0.2}
    found = audit(Judges(NAMES, rounds=2, pull=pull, steady=True).records(SAMPLES, seed=0))

    # Scores are noted with four decimals.
    assert {(each.listener, each.judge): each.share.estimate for each in found.influence} == {
        pair: pytest.approx(share, abs=1e-5) for pair, share in pull.items()
    }
    assert all(each.n == 2 * (220 * 4 + 520 * 8) for each in found.influence)


def test_a_drift_of_all_scores_is_nobodys_influence():
    pull = {("ann", "bo"): 0.0, ("ann", "cy"): 0.3, ("bo", "ann"): 0.0}
    judges = Judges(NAMES, rounds=2, pull=pull, level={"bo": 0.5}, drift=-0.5, noise=0.5, steady=True)
    found = audit(judges.records(SAMPLES, seed=0))

    assert {(each.listener, each.judge): each.share.estimate for each in found.influence} == {
        pair: pytest.approx(share, abs=1e-4) for pair, share in pull.items()
    }


def test_judges_that_always_agree_cannot_be_told_apart():
    found = audit(Judges(NAMES, rounds=1, pull=EVERYONE, noise=0).records(SAMPLES, seed=0))

    assert {each.share.estimate for each in found.influence} == {None}


def test_judges_that_change_nothing_are_told():
    found = audit(Judges(NAMES, rounds=1).records(SAMPLES, seed=0))

    assert [judge.unchanged for judge in found.coverage.judges] == [1.0] * 3
    assert "A judge ends where it began in 100.0 % of the samples." in found.sentences


def test_without_a_discussion_there_is_nothing_to_say_about_one():
    found = audit(Judges(NAMES).records(SAMPLES, seed=0))

    assert (found.rounds, found.shifts, found.amplification, found.influence) == (0, (), (), ())


def _then(first: Record, last: Record) -> Record:
    """Two records of the same sample as two rounds of one."""
    assert first.grade is not None and last.grade is not None
    both = {key: [*first.grade[key], *last.grade[key]] for key in ("rounds", "winners", "heard") if key in first.grade}
    return replace(last, grade={**last.grade, **both})


def _silenced(record: Record, judge: str) -> Record:
    """The record without what a judge said in the last round."""
    assert record.grade is not None
    *earlier, last = record.grade["rounds"]
    return replace(record, grade={**record.grade, "rounds": [*earlier, {**last, judge: None}]})
