"""The benchmark `malibu`: what is asked, what is kept of a deliberation, and what is counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evenhand.benchmarks.base import Selection, load_benchmark
from evenhand.benchmarks.malibu import Malibu
from evenhand.core.errors import DataError, UnknownNameError, UsageError
from evenhand.core.types import Answer, Grade, Outcome, Record, Refusal, Sample, Unscored
from evenhand.panels import (
    BANDS,
    DEFINITIONS,
    METRICS,
    Candidate,
    Deliberation,
    Given,
    Judgement,
    candidates_of,
    definitions_in,
)
from evenhand.studies.tally import ALL, PairTally, Tally

BENCHMARK = Malibu()
TWO = list(BENCHMARK.samples(Selection(limit=2)))
"""All samples of two scenarios, of two bases."""

Rule = Callable[[Sample, Candidate, int], float]
"""The score that a candidate shown at a place gets."""


def deliberation(*rounds: dict[str, Given], consensus: Judgement | None = None) -> Deliberation:
    last = next(each for each in rounds[-1].values() if isinstance(each, Judgement))
    heard = tuple(dict.fromkeys(each, ()) for each in rounds)
    return Deliberation(tuple(rounds[0]), rounds, consensus or last, heard)


def judgement(*scores: float, winner: float | None = None) -> Judgement:
    return Judgement(tuple((score,) * 4 for score in scores), winner=winner)


def graded(sample: Sample, *rules: Rule) -> Record:
    """What becomes of a sample under one judge, who scores by a rule in every round."""
    rounds: list[dict[str, Given]] = []
    for rule in rules:
        scores = [rule(sample, each, place) for place, each in enumerate(candidates_of(sample))]
        winner = None if len(scores) == 1 else 0.5 + np.sign(scores[1] - scores[0]) / 2
        rounds.append({"judge": judgement(*scores, winner=winner)})
    found = BENCHMARK.grade(sample, Outcome(Answer(""), notes={"deliberation": deliberation(*rounds).note()}))
    assert isinstance(found, Grade)
    return Record(sample.id, sample.cluster, "graded", sample.metadata, found.values)


def value(name: str, records: Sequence[Record], group: str = ALL, benchmark: Malibu = BENCHMARK) -> float | None:
    """The metric as a study shows it; None where it is undefined."""
    tally = Tally(benchmark.metrics(), benchmark.group_key)
    for each in sorted(records, key=lambda record: record.sample_id):
        tally.add(each)
    tally.finish()
    metric = next(metric for metric in benchmark.metrics() if metric.name == name)
    table = tally.table((name, group))
    return float(metric.statistic(table.sum(axis=0))) * metric.scale if len(table) else None


def level(_sample: Sample, _candidate: Candidate, _place: int) -> float:
    return 6.0


def against_female(_sample: Sample, candidate: Candidate, _place: int) -> float:
    return 6.0 - (candidate.identity == "female")


def test_it_is_found_by_name_with_its_options():
    assert isinstance(load_benchmark("malibu", phase=1, texts="two", form="tag"), Malibu)
    with pytest.raises(UnknownNameError, match="option of the benchmark malibu"):
        load_benchmark("malibu", rounds=2)
    for wrong in ({"phase": 3}, {"texts": "three"}, {"form": "badge"}):
        with pytest.raises(UsageError, match=f"option {next(iter(wrong))} of the benchmark malibu must be"):
            load_benchmark("malibu", **wrong)


def test_a_scenario_is_judged_with_every_label_and_every_pair_in_both_orders():
    samples = [sample for sample in TWO if sample.cluster == TWO[0].cluster]

    phases = Counter(sample.metadata["phase"] for sample in samples)
    assert phases == {1: 11, 2: 26}
    assert Counter(sample.metadata["category"] for sample in samples) == {
        "control": 1,
        "gender": 2 + 2,
        "race": 4 + 12,
        "religion": 4 + 12,
    }
    assert len({sample.id for sample in TWO}) == len(TWO) == 2 * 37


def test_one_candidate_has_the_first_response_and_the_control_no_label():
    control, female = TWO[:2]

    assert control.id.endswith("/1/control")
    assert (control.metadata["category"], control.metadata["identity"]) == ("control", "")
    [bare], [labelled] = candidates_of(control), candidates_of(female)
    assert (bare.identity, bare.author, bare.tag) == ("", "", "")
    assert labelled == Candidate(bare.text, "female", "a female professional", "Female")
    assert female.prompt == control.prompt


def test_a_pair_has_the_same_text_twice_and_each_identity_first_once():
    pair = [sample for sample in TWO if sample.metadata.get("identities") == ["female", "male"]][:2]

    assert [sample.metadata["first"] for sample in pair] == ["female", "male"]
    for sample in pair:
        shown = candidates_of(sample)
        assert shown[0].identity == sample.metadata["first"]
        assert {each.identity for each in shown} == {"female", "male"}
        assert shown[0].text == shown[1].text
        assert sample.metadata["texts"] == [1, 1]


def test_two_texts_are_counterbalanced_as_well():
    samples = list(Malibu(phase=2, texts="two").samples(Selection(limit=1)))

    assert len(samples) == 13 * 4
    cells = Counter((sample.metadata["first"], tuple(sample.metadata["texts"])) for sample in samples[:4])
    assert cells == {(who, texts): 1 for who in ("female", "male") for texts in ((1, 2), (2, 1))}
    assert len({sample.id for sample in samples}) == len(samples)
    one, two = (each.text for each in candidates_of(samples[0]))
    assert one != two


def test_a_phase_may_be_asked_for_alone():
    assert {s.metadata["phase"] for s in Malibu(phase=1).samples(Selection(limit=1))} == {1}
    assert {s.metadata["phase"] for s in Malibu(phase="2").samples(Selection(limit=1))} == {2}
    assert {s.metadata["form"] for s in Malibu(form="tag").samples(Selection(limit=1))} == {"tag"}


def test_a_limit_counts_scenarios_and_spreads_them_over_the_bases():
    samples = list(Malibu(phase=1).samples(Selection(limit=25)))

    by_base: dict[str, set[str]] = {}
    for sample in samples:
        by_base.setdefault(sample.cluster, set()).add(sample.metadata["scenario"])
    assert len(samples) == 25 * 11
    assert sorted({len(each) for each in by_base.values()}) == [1, 2]
    assert len(by_base) == len(BENCHMARK.bases)


def test_the_seed_draws_and_a_smaller_limit_is_a_part_of_a_larger():
    def ids(limit: int | None, seed: int = 0) -> list[str]:
        return [sample.id for sample in Malibu(phase=1).samples(Selection(limit, seed))]

    assert ids(10) == ids(None)[: 10 * 11]
    assert ids(10) != ids(10, seed=1)
    assert sorted(ids(None)) == sorted(ids(None, seed=1))
    with pytest.raises(UsageError, match="at least 1"):
        ids(0)


def compared(limit: int, pairs: int, seed: int = 0) -> list[list[tuple[str, str]]]:
    """The pairs of each scenario."""
    samples = Malibu(phase=2, texts="two", pairs=pairs).samples(Selection(limit, seed))
    by_scenario = groupby(samples, key=lambda sample: sample.metadata["scenario"])
    return [[tuple(sample.metadata["identities"]) for sample in found] for _, found in by_scenario]


def test_a_scenario_may_compare_some_pairs_in_all_orders_with_the_characteristics_in_turn():
    found = compared(limit=20, pairs=2)

    assert [list(Counter(pairs).values()) for pairs in found] == [[4, 4]] * 20
    drawn = Counter(pair for pairs in found for pair in set(pairs))
    assert drawn["female", "male"] == 14 and drawn.total() == 40
    races = [count for (one, _), count in drawn.items() if one in ("black", "white", "asian", "hispanic")]
    assert (sum(races), max(races) - min(races)) == (13, 1) and len(races) == 6


def test_drawn_pairs_are_of_the_seed_and_those_of_more_scenarios_begin_with_those_of_fewer():
    assert compared(5, 2) == compared(9, 2)[:5]
    assert compared(5, 2, seed=1) != compared(5, 2)
    assert [len(set(pairs)) for pairs in compared(3, 13)] == [13] * 3
    assert compared(1, 99) == compared(1, 13)


def test_what_was_not_compared_is_no_gap_of_that_pair():
    samples = Malibu(pairs=1).samples(Selection(limit=1))
    records = [graded(sample, lambda _sample, each, _place: 5.0 + (each.identity == "female")) for sample in samples]

    found = BENCHMARK.audit(records)

    assert {(gap.x, gap.y) for gap in found.gaps if gap.measure == "score_2"} == {("female", "male")}
    assert len([gap for gap in found.gaps if gap.measure == "score_1"]) == 13
    assert found.coverage.samples == 11 + 2


def test_samples_of_a_base_stand_together_when_sorted():
    ordered = sorted(BENCHMARK.samples(Selection()), key=lambda sample: sample.id)

    clusters = [cluster for cluster, _ in groupby(ordered, key=lambda sample: sample.cluster)]
    assert len(clusters) == len(set(clusters)) == len(BENCHMARK.bases)


def test_judges_see_an_example_of_each_band_unless_it_is_turned_off():
    (plain, *_) = Malibu(bands=False).samples(Selection(limit=1))

    assert definitions_in(TWO[0].metadata) == {name: f"{DEFINITIONS[name]} ({BANDS[name]})" for name in METRICS}
    assert definitions_in(plain.metadata) == {name: DEFINITIONS[name] for name in METRICS}
    assert BANDS.keys() == DEFINITIONS.keys()
    for text in BANDS.values():
        assert all(band in text for band in ("0-3 ", "4-6 ", "7-10 "))
    assert Malibu(bands=False).fingerprint() != BENCHMARK.fingerprint()


def test_the_fingerprint_tells_options_and_content_apart(tmp_path: Path):
    file = tmp_path / "identities.yaml"
    file.write_text("age:\n  younger: {tag: Junior-X, author: a}\n  older: {tag: Senior-X, author: b}\n")

    prints = [Malibu(), Malibu(phase=1), Malibu(texts="two"), Malibu(form="tag"), Malibu(identities=str(file))]
    assert len({str(each.fingerprint()) for each in prints}) == len(prints)
    assert len(list(prints[-1].samples(Selection(limit=1)))) == 3 + 2


def test_scenarios_that_are_not_there_are_refused_when_they_are_needed(tmp_path: Path):
    benchmark = Malibu(data=str(tmp_path / "none"))

    assert benchmark.metrics()
    with pytest.raises(DataError, match="There is no folder"):
        next(benchmark.samples(Selection()))


def test_a_grade_keeps_every_round_of_every_judge():
    sample = next(each for each in TWO if each.metadata["phase"] == 2)
    made = deliberation(
        {"A": judgement(6, 7, winner=1.0), "B": Refusal("no"), "C": judgement(5, 5, winner=0.5)},
        {"A": judgement(6, 6, winner=0.5), "B": Unscored("?", "hm"), "C": judgement(5, 5, winner=0.5)},
        consensus=judgement(5.5, 5.5, winner=0.5),
    )
    made = replace(made, heard=({}, {"A": ("B", "C"), "B": (), "C": ("A",)}))

    found = BENCHMARK.grade(sample, Outcome(Answer(""), notes={"deliberation": made.note()}))

    assert isinstance(found, Grade)
    assert found.values == {
        "scores": [[5.5] * 4, [5.5] * 4],
        "winner": 0.5,
        "rounds": [
            {"A": [[6] * 4, [7] * 4], "B": None, "C": [[5] * 4, [5] * 4]},
            {"A": [[6] * 4, [6] * 4], "B": None, "C": [[5] * 4, [5] * 4]},
        ],
        "winners": [{"A": 1.0, "B": None, "C": 0.5}, {"A": 0.5, "B": None, "C": 0.5}],
        "heard": [{}, {"A": ["B", "C"], "B": [], "C": ["A"]}],
        "given": 6,
        "unread": 1,
        "declined": 1,
        "unchanged": ["C"],
    }


def test_a_judge_is_unchanged_by_what_it_wrote():
    def written(score: float, expected: float) -> Judgement:
        return Judgement(((expected,) * 4,), written=((score,) * 4,))

    made = deliberation({"A": written(6, 6.1), "B": written(6, 6.0)}, {"A": written(6, 6.2), "B": written(7, 6.0)})
    found = BENCHMARK.grade(TWO[0], Outcome(Answer(""), notes={"deliberation": made.note()}))

    assert isinstance(found, Grade)
    assert found.values["unchanged"] == ["A"]


def test_one_judge_has_one_round_and_no_discussion_to_stand_firm_in():
    found = graded(TWO[0], level).grade

    assert found is not None
    assert (len(found["rounds"]), found["unchanged"], found["given"]) == (1, [], 1)
    assert "winners" not in found


@pytest.mark.parametrize(
    ("notes", "reason"),
    [
        ({}, "stored no deliberation"),
        ({"deliberation": deliberation({"A": judgement(6, 6)}).note()}, "no 4 scores for each of the 1 candidates"),
        ({"deliberation": deliberation({"A": Judgement(((6,),))}).note()}, "no 4 scores"),
    ],
)
def test_what_is_no_judgement_of_the_candidates_is_unscored(notes: dict[str, Any], reason: str):
    found = BENCHMARK.grade(TWO[0], Outcome(Answer("6"), notes=notes))

    assert isinstance(found, Unscored)
    assert reason in found.reason


def test_a_fair_judge_has_no_gap():
    records = [graded(sample, level) for sample in TWO]

    assert [value(name, records) for name in ("gap", "pair_gap", "win_gap")] == [0, 0, 0]
    assert (value("score", records), value("first_wins", records)) == (6, 50)
    assert (value("unread", records), value("declined", records), value("coverage", records)) == (0, 0, 100)


def test_a_gap_is_the_mean_over_the_pairs_and_shows_in_its_category():
    records = [graded(sample, against_female) for sample in TWO]

    assert value("gap", records) == pytest.approx(1 / 13)
    assert (value("gap", records, "gender"), value("gap", records, "race")) == (1, 0)
    assert value("gap", records, "control") is None
    assert value("pair_gap", records, "gender") == 1
    assert value("win_gap", records, "gender") == 50
    assert value("win_gap", records) == pytest.approx(50 / 13)


def test_gaps_of_different_pairs_do_not_cancel_but_those_of_scenarios_do():
    first = TWO[0].metadata["scenario"]

    def by_scenario(sample: Sample, candidate: Candidate, place: int) -> float:
        return 6 + (candidate.identity == "male") * (1 if sample.metadata["scenario"] == first else -1)

    assert value("gap", [graded(sample, by_scenario) for sample in TWO]) == 0


def test_a_scenario_counts_for_a_pair_where_both_were_judged():
    first = TWO[0].metadata["scenario"]

    def hard_for_all(sample: Sample, candidate: Candidate, place: int) -> float:
        return 3.0 if sample.metadata["scenario"] == first else 8.0

    records = [graded(sample, hard_for_all) for sample in TWO]
    without = [r for r in records if not (r.metadata.get("identity") == "female" and r.metadata["scenario"] == first)]

    assert len(without) == len(records) - 1
    assert value("gap", without, "gender") == 0


def test_preferring_the_first_place_is_no_gap_but_shows():
    def first_place(_sample: Sample, _candidate: Candidate, place: int) -> float:
        return 7.0 - place

    records = [graded(sample, first_place) for sample in TWO]
    halved = [record for record in records if record.metadata.get("first") != "female"]

    assert (value("pair_gap", records), value("win_gap", records), value("first_wins", records)) == (0, 0, 100)
    assert value("pair_gap", halved, "gender") is None


def test_two_texts_count_where_all_four_orders_were_judged():
    benchmark = Malibu(texts="two", phase=2)
    better = {candidates_of(sample)[0].text for sample in TWO}

    def by_text(_sample: Sample, candidate: Candidate, _place: int) -> float:
        return 7.0 if candidate.text in better else 5.0

    records = [graded(sample, by_text) for sample in benchmark.samples(Selection(limit=1))]

    assert {record.grade["winner"] for record in records if record.grade} == {0.0, 1.0}
    assert value("pair_gap", records, benchmark=benchmark) == 0
    assert value("pair_gap", records[1:], "gender", benchmark) is None


def test_a_tie_counts_half_and_a_missing_winner_not_at_all():
    pair = [sample for sample in TWO if sample.metadata.get("identities") == ["female", "male"]]
    records = [graded(sample, level) for sample in pair]
    none = [replace(record, grade={**(record.grade or {}), "winner": None}) for record in records]

    assert value("first_wins", records) == 50
    assert (value("first_wins", none), value("win_gap", none)) == (None, None)


def test_amplification_is_the_growth_of_the_gap_in_the_discussion():
    records = [graded(sample, level, against_female) for sample in TWO]
    damped = [graded(sample, against_female, level) for sample in TWO]

    assert value("amplification", records, "gender") == 1
    assert value("amplification", damped) == pytest.approx(-1 / 13)
    assert value("amplification", [graded(sample, against_female) for sample in TWO]) is None


def test_amplification_is_of_judges_that_scored_before_and_after():
    record = graded(TWO[1], level, level)
    grade = {**(record.grade or {}), "rounds": [{"A": [[5] * 4], "B": [[9] * 4]}, {"A": [[5] * 4], "B": None}]}
    male = replace(graded(TWO[2], level, level), grade={**grade, "rounds": [{"A": [[5] * 4]}, {"A": [[5] * 4]}]})

    assert value("amplification", [replace(record, grade=grade), male]) == 0


def test_what_has_no_grade_counts_as_unread_or_declined():
    record = graded(TWO[0], level)
    half = replace(record, sample_id="a", grade={**(record.grade or {}), "given": 4, "unread": 2, "declined": 1})
    bare = [
        replace(record, sample_id=status, status=status, grade=None) for status in ("unscored", "refused", "failed")
    ]

    records = [half, *bare]

    assert value("unread", records) == pytest.approx(100 * (0.5 + 1 + 0) / 3)
    assert value("declined", records) == pytest.approx(100 * (0.25 + 0 + 1) / 3)
    assert value("coverage", records) == 25


def test_two_arms_are_compared_on_what_both_judged():
    metrics = BENCHMARK.metrics()
    tally = PairTally(metrics, BENCHMARK.group_key)
    for sample in sorted(TWO, key=lambda sample: sample.id):
        before, after = graded(sample, against_female), graded(sample, level)
        lost = replace(after, status="unscored", grade=None) if sample.metadata.get("identity") == "female" else after
        tally.add(before, lost)
    tally.finish()

    gap = next(metric for metric in metrics if metric.name == "gap")
    assert float(gap.statistic(tally.before.table(("gap", ALL)).sum(axis=0))) == 0
    assert ("gap", "gender") not in tally.before.sums


def test_the_caveats_are_sentences_without_their_full_stop():
    assert all(caveat[0].isupper() and not caveat.endswith(".") for caveat in BENCHMARK.caveats())
