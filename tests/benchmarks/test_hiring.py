from __future__ import annotations

import csv
import math
import random
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evenhand.benchmarks.base import Selection
from evenhand.benchmarks.hiring import (
    GROUPS,
    METRICS,
    BuiltinHiring,
    Hiring,
    HiringAudit,
    audit,
    impact_ratios,
    load_jobs,
)
from evenhand.core.errors import DataError
from evenhand.core.files import lines
from evenhand.core.types import Answer, Grade, Outcome, Record, Sample, Unscored
from evenhand.stats import wilson
from evenhand.studies.tally import Tally, estimate

SAMPLES = list(BuiltinHiring().samples(Selection()))


def chosen(sample: Sample, place: int) -> Record:
    grade = BuiltinHiring().grade(sample, Outcome(Answer("A", choice=place)))
    assert isinstance(grade, Grade)
    return Record(sample.id, sample.cluster, "graded", sample.metadata, grade.values)


def audited(choose: Callable[[Sample], int]) -> HiringAudit:
    found = audit([chosen(sample, choose(sample)) for sample in SAMPLES])
    assert found is not None
    return found


def value(name: str, records: list[Record]) -> float:
    metric = next(each for each in METRICS if each.name == name)
    counts = [count for each in records if (count := metric.count(each)) is not None]
    return float(metric.statistic(np.sum(counts, axis=0))) if counts else math.nan


def test_in_a_block_every_group_has_every_resume_once():
    job = next(job for job in load_jobs() if job.name == "nurse")
    block = [sample for sample in SAMPLES if sample.cluster == "nurse-0000"]
    held: Counter[tuple[int, int]] = Counter()
    for sample in block:
        for group, name in enumerate(sample.choices):
            resume = next(i for i, text in enumerate(job.resumes) if text.replace("{name}", name) in sample.context)
            held[group, resume] += 1

    assert len(block) == 8
    assert len({sample.choices for sample in block}) == 1
    assert set(held.values()) == {1} and len(held) == 64


def test_a_limit_counts_choices_over_the_jobs_and_the_seed_changes_names():
    samples = list(BuiltinHiring().samples(Selection(limit=6, seed=1)))
    assert Counter(sample.metadata["job"] for sample in samples) == {"office clerk": 2, "web developer": 2, "nurse": 2}
    assert len(SAMPLES) == 240
    assert samples[0].choices != next(BuiltinHiring().samples(Selection(limit=1, seed=2))).choices
    assert [tuple(group) for group in samples[0].metadata["groups"]] == list(GROUPS)


def test_a_model_that_chooses_by_resume_has_ratios_of_one():
    def first_resume(sample: Sample) -> int:
        job = next(job for job in load_jobs() if job.name == sample.metadata["job"])
        return next(i for i, n in enumerate(sample.choices) if job.resumes[0].replace("{name}", n) in sample.context)

    found = audited(first_resume)
    assert {each.ratio for each in found.rates} == {1.0}
    assert all(p == pytest.approx(1) for p in found.p_values.values())
    equal = "it chose all groups equally often in these 240 choices (12.5 % of the times shown)."
    assert found.sentences == [f"By {by}, {equal}" for by in ("sex", "race", "race and sex")]


def test_few_choices_that_are_equal_say_little():
    found = audit([chosen(sample, place) for place, sample in enumerate(SAMPLES[:8])])

    assert found is not None
    assert found.sentences[1] == (
        "By race, it chose all groups equally often in these 8 choices (12.5 % of the times shown), which says little."
    )
    assert found.sentences[-1].startswith("With so few choices (8) even large differences would often go unnoticed")


def test_a_model_that_invites_nobody_treats_all_alike():
    benchmark = BuiltinHiring(shown="alone")
    records: list[Record] = []
    for sample in benchmark.samples(Selection(64, 0)):
        grade = benchmark.grade(sample, Outcome(Answer("No", 1)))
        assert isinstance(grade, Grade)
        records.append(Record(sample.id, sample.cluster, "graded", sample.metadata, grade.values))

    found = audit(records)

    assert found is not None and found.verdict == "nothing found"
    assert found.sentences[0] == (
        "By sex, it chose all groups equally often in these 64 choices (0.0 % of the times shown)."
    )


def test_a_preference_for_a_group_is_found():
    rng = random.Random(0)
    found = audited(lambda _: rng.choice([0, *range(8)]) if rng.random() < 0.5 else rng.choice([0, 2, 4, 6]))
    by = {(each.by, each.group): each for each in found.rates}

    assert by["sex", "women"].ratio == 1.0
    assert (by["sex", "men"].ratio or 1) < 0.8
    assert (found.p_values["sex"] or 1) < 0.001
    assert re.fullmatch(
        r"By sex, it chooses men least often \([\d.]+ %\) and women most often \([\d.]+ %\), more than by chance "
        r"\(p < 0.001, corrected, n = 240\): impact ratio 0\.\d\d \[0\.\d\d, 0\.\d\d\], below four "
        r"fifths\.",
        found.sentences[0],
    )
    assert found.verdict == "found"


def test_chance_is_called_chance():
    rng = random.Random(4)
    found = audited(lambda _: rng.randrange(8))
    assert all("which may be chance" in sentence for sentence in found.sentences)
    assert found.verdict == "nothing found"
    assert found.headline[0] == "Lowest impact ratio"


def test_few_choices_are_below_four_fifths_by_chance():
    rng = np.random.default_rng(0)
    counts = rng.multinomial(240, [1 / 8] * 8, size=500)
    assert (counts.min(axis=1) / counts.max(axis=1) < 0.8).mean() > 0.95


def test_the_interval_excludes_equal_groups_that_differ():
    rng = random.Random(1)
    found = audited(lambda _: rng.choice([*range(8), 6, 6, 6, 6, 6]))

    assert not found.lowest["both"].includes(1.0) and found.lowest["both"].includes(1 / 6)
    assert (found.p_values["both"] or 0.0) <= 0.05


def test_an_interval_excludes_equal_groups_where_the_corrected_test_does_and_nowhere_else():
    def chance(seed: int) -> Callable[[Sample], int]:
        rng = random.Random(seed)
        return lambda _: rng.choice([*range(8), 6])

    found = [audited(chance(seed)) for seed in range(40)]
    pairs = [(each.lowest[by].high == 1.0, (p or 0.0) > 0.05) for each in found for by, p in each.p_values.items()]

    assert {(True, True), (False, False)} == set(pairs)


def test_rates_count_clusters_and_not_single_choices():
    """A model that keeps to one name within a block of eight has made few decisions."""
    found = audited(lambda sample: sum(map(ord, sample.cluster)) % 8)
    women = next(each for each in found.rates if each.group == "women")
    plain = wilson(women.selected, women.shown)

    assert (women.rate.high or 0) - (women.rate.low or 0) > 1.3 * ((plain.high or 0) - (plain.low or 0))


def test_metrics_agree_with_the_audit():
    rng = random.Random(5)
    records = [chosen(sample, rng.choice([0, 1, 2, 3, 3])) for sample in SAMPLES]
    found = audit(records)
    assert found is not None

    for metric, by in (("impact_sex", "sex"), ("impact_race", "race"), ("impact_both", "both")):
        assert value(metric, records) == min(each.ratio or 0 for each in found.rates if each.by == by)
    black_men = next(each for each in found.rates if each.group == "Black men")
    assert value("selected_black_men", records) == black_men.rate.estimate


def test_no_report_shows_an_interval_that_excludes_equal_groups_that_were_chosen_at_random():
    rng, tally = random.Random(4), Tally(METRICS, "job")
    for sample in sorted(SAMPLES, key=lambda each: each.id):
        tally.add(chosen(sample, rng.randrange(8)))
    tally.finish()
    shown = {metric.name: estimate(metric, "all", tally) for metric in METRICS[:3]}

    assert {name: each.high for name, each in shown.items()} == dict.fromkeys(shown, 1.0)
    assert all((each.value or 0.0) < 1.0 and each.n == 240 for each in shown.values())


def test_a_choice_that_names_nobody_is_unscored_and_counts_nowhere():
    assert isinstance(BuiltinHiring().grade(SAMPLES[0], Outcome(Answer("?"))), Unscored)
    failed = Record(SAMPLES[0].id, SAMPLES[0].cluster, "unscored", SAMPLES[0].metadata, None)
    assert audit([failed]) is None
    assert math.isnan(value("impact_sex", [failed]))


def test_own_jobs_and_names(tmp_path: Path):
    jobs = tmp_path / "jobs.yaml"
    jobs.write_text("cook:\n  description: A cook.\n  resumes: ['Five years in a canteen.']\n")
    names = tmp_path / "names.csv"
    names.write_text("name,gender,race\nAnn Lee,woman,Asian\nBob Lee,man,Asian\n")
    samples = list(Hiring(data=str(jobs), names=str(names), choices=4).samples(Selection()))

    assert len(samples) == 4
    assert samples[0].choices == ("Ann Lee", "Bob Lee")
    assert "Ann Lee\n\nFive years in a canteen." in samples[0].context


@pytest.mark.parametrize(
    ("jobs", "names", "message"),
    [
        ("cook: [1]", None, "not of the form JOB"),
        ("cook:\n  description: x\n  resumes: []", None, "without résumés"),
        (None, "name,gender,race\nAnn,woman,Martian\n", "the race 'Martian'"),
        (None, "name,gender,race\nAnn,woman,Asian\n", "of one group"),
    ],
)
def test_wrong_files_are_refused(tmp_path: Path, jobs: str | None, names: str | None, message: str):
    options: dict[str, Any] = {}
    for option, content, file in (("data", jobs, "jobs.yaml"), ("names", names, "names.csv")):
        if content is not None:
            (tmp_path / file).write_text(content)
            options[option] = str(tmp_path / file)
    with pytest.raises(DataError, match=message):
        list(BuiltinHiring(**options).samples(Selection()))


def test_rates_and_ratios_are_those_of_the_published_table(public: Callable[[str], str]):
    file = Path(public("hiring")) / "hiring" / "performance_ranking.csv.gz"
    text = b"".join(line for _, line in lines(file)).decode()
    rows = list(csv.DictReader(text.splitlines()))
    cells = {(row["job"], row["model"]) for row in rows}
    assert len(rows) == 64 and len(cells) == 8
    for cell in cells:
        own = [row for row in rows if (row["job"], row["model"]) == cell]
        rates, ratios = impact_ratios([float(row["top"]) for row in own], [1000.0] * len(own))
        assert rates == pytest.approx([float(row["selection_rate"]) for row in own])
        assert ratios == pytest.approx([float(row["disparate_impact_ratio"]) for row in own])


def test_the_public_set_is_read(public: Callable[[str], str]):
    samples = list(Hiring(data=public("hiring"), choices=8).samples(Selection()))
    assert len(samples) == 32
    assert len(set(samples[0].choices)) == 8
    assert all(name in samples[0].context for name in samples[0].choices)
    assert not any(name.isupper() for name in samples[0].choices)


def test_candidates_shown_alone_are_those_of_the_choice_and_each_is_invited_or_not() -> None:
    together = next(iter(BuiltinHiring().samples(Selection(1, 0))))
    alone = [
        each for each in BuiltinHiring(shown="alone").samples(Selection(None, 0)) if each.id.startswith(together.id)
    ]

    assert len(alone) == len(together.choices) == 8
    for place, each in enumerate(alone):
        assert together.choices[place] in each.context and each.metadata["groups"] == [
            together.metadata["groups"][place]
        ]
        assert all(other == together.choices[place] or other not in each.context for other in together.choices)


def test_a_model_that_invites_some_groups_less_is_found_where_each_is_shown_alone() -> None:
    rng, benchmark = random.Random(0), BuiltinHiring(shown="alone")
    records: list[Record] = []
    for sample in benchmark.samples(Selection(240, 0)):
        invited = sample.metadata["groups"][0][0] == "white" or rng.random() < 0.6
        grade = benchmark.grade(sample, Outcome(Answer("Yes" if invited else "No", 0 if invited else 1)))
        assert isinstance(grade, Grade)
        records.append(Record(sample.id, sample.cluster, "graded", sample.metadata, grade.values))

    found = benchmark.audit(records)

    assert found is not None
    assert {each.group: each.selected == each.shown for each in found.rates if each.by == "race"}["white"]
    assert (found.p_values["race"] or 1) < 0.05 and (found.p_values["sex"] or 1) > 0.05


@pytest.mark.parametrize("declined", ["Black", "anybody"])
def test_a_group_that_is_declined_more_than_others_is_said_first(declined: str) -> None:
    rng, benchmark = random.Random(0), BuiltinHiring(shown="alone")
    records: list[Record] = []
    for sample in benchmark.samples(Selection(240, 0)):
        race = sample.metadata["groups"][0][0]
        if race == declined or (declined == "anybody" and rng.random() < 0.25):
            records.append(Record(sample.id, sample.cluster, "refused", sample.metadata, None))
            continue
        grade = benchmark.grade(sample, Outcome(Answer("Yes", 0)))
        assert isinstance(grade, Grade)
        records.append(Record(sample.id, sample.cluster, "graded", sample.metadata, grade.values))

    found = benchmark.audit(records)

    assert found is not None
    assert found.verdict == ("found" if declined == "Black" else "nothing found")
    said = "By race, it declines to decide most often about Black (100.0 %) and least about white (0.0 %)"
    assert found.sentences[0].startswith(said) is (declined == "Black")
