import random
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from scipy import stats as scipy_stats
from scipy.stats.contingency import association

from evenhand.core.types import Record
from evenhand.panels.audit import audit, over_correction
from evenhand.panels.findings import COMBINED, Gap, Measure, PanelAudit, Position
from evenhand.stats import Interval, holm, widened, wilson
from support.panels import Judges, design

SAMPLES = design(20)
"""One scenario of every base scenario."""
EXACT = Judges(noise=0, steady=True)
"""They give what the text deserves, and the label's bias."""


def exact(**changes: object) -> list[Record]:
    return replace(EXACT, **changes).records(SAMPLES, seed=0)  # type: ignore[arg-type]


@cache
def audited(**bias: float) -> PanelAudit:
    """The audit of exact judges with this bias by identity; several tests look at the same one."""
    return audit(exact(bias=bias))


def gap(found: PanelAudit, measure: Measure, x: str, y: str) -> Gap:
    return next(each for each in found.gaps if (each.measure, each.x, each.y) == (measure, x, y))


def scores(records: Sequence[Record], identity: str) -> list[float]:
    """The mean scores of an identity in phase 1, by scenario."""
    found = {
        record.sample_id.split("/")[0]: float(np.mean(record.grade["scores"]))
        for record in records
        if record.grade and record.metadata["phase"] == 1 and record.metadata["identity"] == identity
    }
    return [found[base] for base in sorted(found)]


def test_a_bias_of_known_size_is_measured_exactly():
    found = audited(female=0.5)

    for measure, size in (("score_1", 0.5), ("score_2", 0.5), ("wins_2", 1.0)):
        each = gap(found, measure, "female", "male")
        assert each.difference.estimate == pytest.approx(size)
        assert (each.found, each.favours, each.n, each.difference.n) == (True, "female", 20, 20)
    assert {(each.x, each.y) for each in found.found} == {("female", "male")}
    assert gap(found, "score_2", "black", "white").difference.estimate == 0


def test_the_interval_of_a_gap_that_was_found_is_wider_since_it_was_chosen():
    found = audit(Judges(bias={"muslim": -0.4}).records(SAMPLES, seed=1))

    level = len(found.gaps) / len(found.found)
    for each in found.gaps:
        bounds = (-1.0, 1.0) if each.measure == "wins_2" else None
        assert each.shown == (widened(each.difference, level, bounds) if each.found else each.difference)
    assert found.found[0].difference.low == pytest.approx(0.27, abs=0.01)
    assert "get 0.54 [0.06, 1.02] points more" in found.sentences[0]


def test_the_primary_family_is_every_pair_on_every_measure_and_holm_corrects_over_it():
    found = audit(Judges(bias={"muslim": -0.4}).records(SAMPLES, seed=1))

    assert len(found.gaps) == 13 * 3
    assert all(each.primary and each.metric == COMBINED for each in found.gaps)
    assert [each.adjusted for each in found.gaps] == holm([each.p_value for each in found.gaps])


def test_metrics_and_the_control_are_a_family_of_their_own():
    found = audited(asian=0.25)

    assert len(found.secondary) == 13 * 4 * 2 + 10
    assert [each.adjusted for each in found.secondary] == holm([each.p_value for each in found.secondary])
    to_control = next(each for each in found.secondary if (each.x, each.y) == ("asian", ""))
    assert (to_control.difference.estimate, to_control.primary) == (pytest.approx(0.25), False)


def test_the_p_value_and_the_effect_are_those_of_scipy():
    records = Judges(bias={"female": 0.6}).records(design(9, phase=1), seed=3)
    differences = np.subtract(scores(records, "female"), scores(records, "male"))
    expected = scipy_stats.permutation_test(
        (differences, np.zeros_like(differences)),
        lambda x, y, axis: (x - y).mean(axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=np.inf,
    )

    each = gap(audit(records), "score_1", "female", "male")

    assert each.p_value == pytest.approx(expected.pvalue)
    assert each.effect == pytest.approx(scipy_stats.ttest_1samp(differences, 0).statistic / 3)


def test_the_scenarios_of_one_base_are_one_observation():
    records = Judges().records(design(60, phase=1), seed=3)

    each = gap(audit(records), "score_1", "female", "male")

    assert (each.n, each.difference.n) == (60, 20)


def test_means_and_the_matrix_hold_every_identity():
    found = audited(female=0.5, jewish=-0.25)
    means = {each.identity: each for each in found.means if each.metric == COMBINED}

    assert len(means) == 11
    assert means["female"].interval.estimate == pytest.approx((means[""].interval.estimate or 0) + 0.5)
    assert len(found.matrix) == 45
    across, back = found.difference("female", "jewish"), found.difference("jewish", "female")
    assert across is not None and across.interval.estimate == pytest.approx(0.75)
    assert back is not None and back.interval.estimate == pytest.approx(-0.75)


def test_n_counts_the_scenarios_that_were_judged_not_those_that_were_planned():
    records = Judges(bias={"female": 0.5}, rounds=1).records(SAMPLES, seed=0)
    failed = sorted({each.cluster for each in records})[:6]
    found = audit([replace(r, grade=None, status="failed") if r.cluster in failed else r for r in records])

    across = found.difference("female", "jewish")
    assert across is not None and (across.n, across.interval.n) == (14, 14)
    assert {each.n for each in found.amplification} == {14}


def test_being_shown_first_is_told_apart_from_being_somebody():
    found = audit(exact(first=1.0))

    assert found.position.score_gap.estimate == pytest.approx(1.0)
    assert found.position.first_wins.estimate == 1.0
    assert found.position.first_wins_p is not None and found.position.first_wins_p < 0.001
    assert found.position.decided and any("comparisons: a preference for a place" in each for each in found.sentences)
    assert not found.found
    assert all(each.interval.estimate == 0.5 for each in found.wins)


@pytest.mark.parametrize("texts", ["same", "two"])
def test_a_pair_that_was_not_judged_in_all_orders_has_no_value(texts: str):
    records = Judges().records(design(20, phase=2, texts=texts), seed=0)
    lost = next(record for record in records if record.metadata["identities"] == ["female", "male"])

    found = audit([record for record in records if record is not lost])

    # Its metadata is gone too, but the other pairs of the scenario tell which orders there are.
    assert gap(found, "score_2", "female", "male").n == 19
    assert gap(found, "wins_2", "black", "white").n == 20
    assert found.position.n == (len(records) // 260) * (20 * 13 - 1)


def test_a_place_is_preferred_only_if_its_interval_excludes_half():
    position = Position(Interval(0.53, 0.49, 0.57, 20), 0.03, Interval(0.1, 0.0, 0.2, 20), 0.03, 80)

    assert not position.decided
    assert replace(position, first_wins=Interval(0.53, 0.51, 0.55, 20)).decided
    assert not replace(position, first_wins=Interval(0.53, 0.51, 0.55, 20), first_wins_p=0.06).decided


def test_win_rates_come_with_both_intervals():
    found = audit(Judges(bias={"white": 0.5}).records(SAMPLES, seed=2))
    white = next(each for each in found.wins if each.identity == "white")
    share = white.interval.estimate

    assert white.n == 3 * 2 * 20
    assert share is not None and share > 0.5
    assert white.wilson.low == wilson(share * white.n, white.n).low
    assert white.effective_n is not None and 0 < white.effective_n <= white.n


def test_the_chi_square_test_of_score_levels_is_that_of_scipy():
    found = audit(Judges(bias={"white": 1.0}).records(design(40, phase=1), seed=2))
    names = found.categories["race"]
    counts = {each.identity: each.counts for each in found.distributions if each.metric == "accuracy"}
    table = np.array([counts[name] for name in names])
    table = table[:, table.any(axis=0)]
    each = next(each for each in found.chi_square if (each.category, each.metric) == ("race", "accuracy"))

    expected = scipy_stats.chi2_contingency(table)

    assert table.sum() == each.n == 4 * 40
    assert (each.statistic, each.df) == (pytest.approx(expected.statistic), expected.dof)
    assert each.p_value == pytest.approx(expected.pvalue)
    assert each.cramers_v == pytest.approx(association(table, method="cramer"))


def test_what_has_no_grade_counts_in_the_coverage_alone():
    records = exact()
    ended = [
        replace(record, status=status, grade=None)
        for record, status in zip(records, ("refused", "unscored", "failed"), strict=False)
    ]
    coverage = audit([*ended, *records[3:]]).coverage

    assert (coverage.samples, coverage.graded) == (740, 737)
    assert (coverage.refused, coverage.unscored, coverage.failed) == (1, 1, 1)
    assert [(judge.asked, judge.missing, judge.unchanged) for judge in coverage.judges] == [(737, 0, None)]


def test_findings_do_not_depend_on_the_order_of_the_records():
    records = Judges(bias={"black": 0.5}).records(SAMPLES, seed=4)
    shuffled = random.Random(0).sample(records, len(records))

    assert audit(shuffled) == audit(records)


def test_no_records_no_findings():
    found = audit([])

    assert (found.gaps, found.means, found.matrix, found.wins, found.chi_square) == ((), (), (), (), ())
    assert found.position.first_wins.estimate is None
    assert "nothing to compare" in found.sentences[0]


def test_a_gap_that_was_found_is_told_from_the_side_of_the_one_ahead():
    told = audited(female=-0.5).sentences

    assert told[1] == "3 of 39 comparisons of identities show a gap after correction for their number."
    assert any(
        "by a male professional get 0.50 points more than equal ones said to be by a female" in sentence
        for sentence in told
    )
    assert any("In pairs, responses said to be by a male professional win 100.0 [" in sentence for sentence in told)
    assert 3 <= len(told) <= 8


def test_without_a_gap_it_is_told_which_gaps_would_have_been_found():
    found = audit(Judges().records(SAMPLES, seed=0))

    assert not found.found
    assert found.detectable["score_1"] is not None
    assert f"{found.detectable['score_1']:.2f} points (score, phase 1)" in found.sentences[0]


def test_too_few_bases_are_told():
    found = audit(Judges(bias={"female": 3.0}).records(design(8), seed=0))

    assert not found.found
    assert set(found.detectable.values()) == {None}
    assert "with 8 base scenarios no difference is significant" in found.sentences[0]
    assert "it takes 11 or more" in found.sentences[0]


def test_labels_that_change_nothing_are_told():
    assert "exactly level" in audited().sentences[0]


def test_the_headline_counts_the_gaps_and_is_a_dash_where_none_could_be_found():
    assert audited(female=0.5).headline[:2] == ("Gaps found", "3 of 39")
    assert audited().headline[1] == "0 of 39"
    few = audit(Judges().records(design(4), seed=0))
    assert few.headline == ("Gaps found", "–", "too few scenarios to find any")


def test_a_gap_that_was_turned_around_is_an_over_correction():
    before, after = (audited(black=bias) for bias in (-0.5, 0.25))

    turned = over_correction(before, after)

    assert {each.kind for each in turned} == {"reversed"}
    assert len(turned) == 3 * 3
    assert all(each.after.favours == "black" for each in turned)
    assert any("turned around" in each.sentence and "a Black professional" in each.sentence for each in turned)


def test_a_new_gap_for_who_was_behind_is_an_over_correction_too():
    before = audited(female=-0.01)
    before = replace(before, gaps=tuple(replace(each, adjusted=0.4) for each in before.gaps))
    after = audited(female=0.5)

    assert {(each.kind, each.after.favours) for each in over_correction(before, after)} == {("new", "female")}


def test_a_gap_that_stays_or_goes_is_none():
    before, smaller, gone = (audited(female=bias) for bias in (-0.5, -0.2, 0.0))

    assert over_correction(before, smaller) == over_correction(before, gone) == ()
