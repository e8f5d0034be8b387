from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evenhand.benchmarks.base import Selection, load_benchmark
from evenhand.benchmarks.realtoxicity import (
    METRICS,
    BuiltinRealToxicity,
    RealToxicity,
    WebPrompt,
    distinct,
    sample_of,
    words_of,
)
from evenhand.core.errors import DataError, UnknownNameError, UsageError
from evenhand.core.types import Answer, Grade, Outcome, Record, Refusal, Sample, Status, Unscored
from evenhand.studies.tally import ALL, PairTally, Tally

BENCHMARK = BuiltinRealToxicity(completions=3)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """40 prompts of moderate toxicity, 10 of high, and 20 that belong to no band."""
    scores = [0.55] * 40 + [0.9] * 10 + [0.1] * 10 + [None] * 10
    rows = ({"prompt": {"text": f"Prompt {number},", "toxicity": score}} for number, score in enumerate(scores, 1))
    (tmp_path / "prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def official(folder: Path, **options: Any) -> RealToxicity:
    return RealToxicity(data=str(folder), **options)


def clusters(samples: Sequence[Sample]) -> list[str]:
    return list(dict.fromkeys(sample.cluster for sample in samples))


def record(sample_id: str, text: str | None = "He waved.", status: Status = "graded", **scores: float) -> Record:
    """A record of one completion as a run would store it: the text's grade and the scorers' scores."""
    cluster = sample_id.rpartition("-")[0]
    values: dict[str, Any] | None = None
    if status == "graded" and text is not None:
        grade = BENCHMARK.grade(sample_of(WebPrompt(1, "So", None, "high"), 0), Outcome(Answer(text)))
        assert isinstance(grade, Grade)
        values = {**grade.values, **scores}
    return Record(sample_id, cluster, status, {"band": cluster.partition("-")[0]}, values)


def value(name: str, records: Sequence[Record], group: str = ALL) -> float | None:
    """The metric as a study shows it; None where it is undefined."""
    tally = Tally(METRICS, RealToxicity.group_key)
    for each in records:
        tally.add(each)
    tally.finish()
    metric = next(metric for metric in METRICS if metric.name == name)
    table = tally.table((name, group))
    found = float(metric.statistic(table.sum(axis=0))) if len(table) else np.nan
    return None if np.isnan(found) else found * metric.scale


def test_both_are_found_by_name_with_their_options(folder: Path) -> None:
    assert isinstance(load_benchmark("realtoxicity", bands="high", completions=2, data=str(folder)), RealToxicity)
    assert isinstance(load_benchmark("realtoxicity_builtin", bands=["high"]), BuiltinRealToxicity)
    with pytest.raises(UnknownNameError, match="option of the benchmark realtoxicity_builtin"):
        load_benchmark("realtoxicity_builtin", data=str(folder))


def test_a_sample_is_one_completion_of_a_prompt() -> None:
    assert sample_of(WebPrompt(123, "So he", 0.9, "high"), 7) == Sample(
        id="high-00123-07",
        kind="completion",
        prompt="So he",
        cluster="high-00123",
        metadata={"band": "high", "prompt_toxicity": 0.9},
    )


@pytest.mark.parametrize("completions", [1, 25, 120])
def test_completions_of_a_prompt_stand_together_when_sorted(completions: int) -> None:
    numbers = (1, 9, 10, 99_999, 100_000, 1_000_000)
    samples = [sample_of(WebPrompt(n, "So", None, "high"), k) for n in numbers for k in range(completions)]

    ordered = sorted(samples, key=lambda sample: sample.id)

    assert len({sample.id for sample in samples}) == len(samples)
    assert len([cluster for cluster, _ in groupby(ordered, key=lambda sample: sample.cluster)]) == len(numbers)


def test_every_prompt_of_the_bands_is_completed_k_times(folder: Path) -> None:
    samples = list(official(folder, completions=3).samples(Selection()))

    assert len(samples) == 50 * 3
    assert set(Counter(sample.cluster for sample in samples).values()) == {3}
    assert {sample.metadata["prompt_toxicity"] for sample in samples} == {0.55, 0.9}
    assert [sample.id[-2:] for sample in samples[:3]] == ["00", "01", "02"]


def test_the_paper_completes_25_times() -> None:
    assert sum(1 for _ in BuiltinRealToxicity().samples(Selection(limit=2))) == 50


def test_a_limit_counts_prompts_and_spreads_them_over_the_bands(folder: Path) -> None:
    samples = list(official(folder, completions=2).samples(Selection(limit=7)))

    assert len(samples) == 14
    bands = Counter(name.partition("-")[0] for name in clusters(samples))
    assert sorted(bands.values()) == [3, 4]


def test_a_band_that_is_used_up_leaves_its_turns_to_the_other(folder: Path) -> None:
    samples = list(official(folder, completions=1).samples(Selection(limit=30)))

    assert Counter(sample.metadata["band"] for sample in samples) == {"moderate": 20, "high": 10}


def test_the_seed_draws_and_a_smaller_limit_is_a_part_of_a_larger(folder: Path) -> None:
    benchmark = official(folder, completions=1)
    few, more, again, other = (
        clusters(list(benchmark.samples(Selection(limit, seed)))) for limit, seed in ((5, 1), (20, 1), (20, 1), (20, 2))
    )

    assert more[:5] == few
    assert more == again
    assert set(more) != set(other)
    # Not the order of the file either.
    assert more != sorted(more)


@pytest.mark.parametrize("bands", ["high", ["high"], (" high ",), "high,high"])
def test_bands_can_be_chosen(folder: Path, bands: Any) -> None:
    samples = list(official(folder, bands=bands, completions=1).samples(Selection()))

    assert len(samples) == 10
    assert {sample.metadata["band"] for sample in samples} == {"high"}


@pytest.mark.parametrize("bands", ["hihg", "", "high,", [], 5, ["high", 5]])
def test_a_wrong_band_is_refused_by_name(bands: Any) -> None:
    with pytest.raises(UnknownNameError, match="no band of RealToxicityPrompts named"):
        BuiltinRealToxicity(bands=bands)


@pytest.mark.parametrize("completions", [0, -1, 2.5, "3", True, None])
def test_a_wrong_number_of_completions_is_refused(completions: Any) -> None:
    with pytest.raises(UsageError, match="completions of the benchmark realtoxicity_builtin must be a whole number"):
        BuiltinRealToxicity(completions=completions)


def test_a_wrong_limit_is_refused() -> None:
    with pytest.raises(UsageError, match="at least 1"):
        next(BENCHMARK.samples(Selection(limit=0)))


def test_a_band_without_prompts_is_named(folder: Path) -> None:
    (folder / "prompts.jsonl").write_text('{"prompt": {"text": "So", "toxicity": 0.9}}\n')

    with pytest.raises(DataError, match="no prompt in the band moderate"):
        list(official(folder).samples(Selection()))


def test_metrics_need_no_data() -> None:
    assert RealToxicity(data="/nowhere").metrics() is METRICS


def test_the_fingerprint_names_options_content_and_what_was_left_out(folder: Path) -> None:
    first = official(folder, bands="high", completions=2).fingerprint()

    assert first["bands"] == ["high"]
    assert first["completions"] == 2
    assert first["prompts"] == {"high": 10, "moderate": 40, "outside of the bands": 10, "without a score": 10}
    with (folder / "prompts.jsonl").open("a") as file:
        file.write("\n")
    assert official(folder, bands="high", completions=2).fingerprint()["sha256"] != first["sha256"]


def test_a_grade_holds_the_words_in_order() -> None:
    grade = BENCHMARK.grade(next(BENCHMARK.samples(Selection())), Outcome(Answer(" Don't! The dog, THE dog…")))

    assert isinstance(grade, Grade)
    assert grade.values["length"] == 5
    dont, the, dog, *again = grade.values["words"]
    assert again == [the, dog]
    assert len({dont, the, dog}) == 3
    assert json.loads(json.dumps(grade.values)) == grade.values


@pytest.mark.parametrize(
    ("text", "length"), [("…!", 0), ("twenty-one", 1), ("a_b", 2), ("naïve Straße", 2), ("\ud800 x", 1)]
)
def test_words_are_letters_and_digits(text: str, length: int) -> None:
    assert len(words_of(text)) == length


@pytest.mark.parametrize("result", [Answer(""), Answer(" \n"), Refusal("No."), Unscored("why")])
def test_nothing_written_is_unscored_and_not_harmless(result: Any) -> None:
    grade = BENCHMARK.grade(next(BENCHMARK.samples(Selection())), Outcome(result))

    assert isinstance(grade, Unscored)


SCORED = [
    record("high-1-00", toxicity=0.9, insult=0.8),
    record("high-1-01", toxicity=0.3, insult=0.2),
    record("high-2-00", toxicity=0.2),
    record("high-2-01"),
    record("high-2-02", status="refused"),
    record("moderate-1-00", toxicity=0.5),
    record("moderate-1-01", status="unscored"),
    record("moderate-1-02", status="failed"),
]


def test_toxicity_is_the_mean_over_scored_completions() -> None:
    assert value("toxicity", SCORED) == pytest.approx(100 * (0.9 + 0.3 + 0.2 + 0.5) / 4)
    assert value("toxicity", SCORED, "high") == pytest.approx(100 * (0.9 + 0.3 + 0.2) / 3)
    assert value("insult", SCORED) == pytest.approx(50)
    assert value("threat", SCORED) is None


def test_expected_maximum_is_the_mean_over_prompts_of_the_worst_completion() -> None:
    assert value("expected_max_toxicity", SCORED) == pytest.approx(100 * (0.9 + 0.2 + 0.5) / 3)
    assert value("expected_max_toxicity", SCORED, "moderate") == pytest.approx(50)


def test_any_toxic_is_the_share_of_prompts_with_one_at_the_threshold() -> None:
    assert value("any_toxic", SCORED) == pytest.approx(100 * 2 / 3)
    assert value("any_toxic", SCORED, "high") == pytest.approx(50)


def test_refusals_scored_and_coverage_have_their_own_denominators() -> None:
    assert value("refusal", SCORED) == pytest.approx(100 * 1 / 8)
    assert value("scored", SCORED) == pytest.approx(100 * 4 / 5)
    assert value("coverage", SCORED) == pytest.approx(100 * 5 / 8)


def test_quality_is_the_mean_of_three_where_all_three_are_known() -> None:
    records = [
        record("high-1-00", fluency=0.9, coherence=0.6, relevance=0.3),
        record("high-1-01", fluency=0.5, coherence=0.5),
    ]

    assert value("quality", records) == pytest.approx(60)
    assert value("fluency", records) == pytest.approx(70)
    assert value("relevance", records) == pytest.approx(30)


def test_length_is_in_words() -> None:
    assert value("length", [record("high-1-00", "one two three"), record("high-1-01", "four")]) == 2


def test_distinct_counts_n_grams_of_all_completions_of_a_prompt() -> None:
    records = [
        record("high-1-00", "a b a b"),
        record("high-1-01", "a b c"),
        record("high-2-00", "a b c d"),
        record("high-2-01", status="refused"),
    ]

    # First prompt: words a b a b a b c, pairs ab ba ab ab bc, triples aba bab abc; all of the second's are distinct.
    assert value("distinct_1", records) == pytest.approx(100 * (3 / 7 + 1) / 2)
    assert value("distinct_2", records) == pytest.approx(100 * (3 / 5 + 1) / 2)
    assert value("distinct_3", records) == pytest.approx(100 * (3 / 3 + 1) / 2)


def test_texts_too_short_for_an_n_gram_have_no_value() -> None:
    assert distinct([[1], [2]], 2) is None
    assert value("distinct_2", [record("high-1-00", "a"), record("high-2-00", "a a a")]) == pytest.approx(50)


def test_the_same_text_every_time_is_seen() -> None:
    varied = [record(f"high-1-{number:02d}", f"word{number} and word{number} again") for number in range(5)]
    fixed = [record(f"high-1-{number:02d}", "I would rather not say") for number in range(5)]

    assert value("distinct_2", fixed) == pytest.approx(20)
    assert (value("distinct_2", varied) or 0) > 90


def test_two_arms_are_compared_on_the_completions_that_both_have_scored() -> None:
    # The second arm refuses where the first is worst; that must not look like a lower maximum.
    before = [record("high-1-00", toxicity=0.9), record("high-1-01", toxicity=0.4)]
    after = [record("high-1-00", status="refused"), record("high-1-01", toxicity=0.4)]
    pair = PairTally(METRICS, "band")
    for both in zip(before, after, strict=True):
        pair.add(*both)
    pair.finish()

    key = ("expected_max_toxicity", ALL)
    assert pair.before.table(key).tolist() == pair.after.table(key).tolist() == [[0.4, 1]]
    assert pair.after.table(("refusal", ALL)).tolist() == [[1, 2]]


def test_headline_and_guardrails_are_metrics() -> None:
    names = [metric.name for metric in METRICS]

    assert len(set(names)) == len(names)
    assert {RealToxicity.headline, *RealToxicity.guardrails} <= set(names)
    assert next(metric.better for metric in METRICS if metric.name == "refusal") is None
