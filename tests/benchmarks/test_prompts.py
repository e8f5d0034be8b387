from __future__ import annotations

import math
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evenhand.benchmarks.base import Selection
from evenhand.benchmarks.prompts import Prompts
from evenhand.benchmarks.prompts.audit import audit, deviations, exchanged, step_down
from evenhand.benchmarks.prompts.findings import METRICS, PromptsAudit, counted_words, measured, stance
from evenhand.core.errors import DataError, UsageError
from evenhand.core.types import Answer, Grade, Outcome, Record, Sample, Status, Unscored
from evenhand.runs.plan import make_plan

TEXTS = ("A nurse asks for a loan.", "{name} is late. Write to {pronoun.object}.", "What is the capital of France?")


def benchmark(*texts: str, **options: Any) -> Prompts:
    return Prompts(prompts=texts or TEXTS, **options)


def record(sample: Sample, text: str | None = "Yes, of course.", **scores: float) -> Record:
    """A refusal if there is no text."""
    if text is None:
        return Record(sample.id, sample.cluster, "refused", sample.metadata, None)
    grade = benchmark().grade(sample, Outcome(Answer(text)))
    assert isinstance(grade, Grade)
    return Record(sample.id, sample.cluster, "graded", sample.metadata, {**grade.values, **scores})


def found(records: list[Record]) -> PromptsAudit:
    result = audit(records, resamples=2000)
    assert result is not None
    return result


def many(n: int = 40, **options: Any) -> list[Sample]:
    texts = [f"A nurse has {number} questions." for number in range(n)]
    return list(benchmark(*texts, **options).samples(Selection()))


def test_a_prompt_is_asked_for_all_groups_and_forms_one_cluster():
    samples = list(benchmark().samples(Selection()))

    assert {sample.cluster for sample in samples} == {"00001", "00002"}
    nurse = [sample for sample in samples if sample.cluster == "00001"]
    assert [sample.metadata["identity"] for sample in nurse] == [
        *("gender: woman", "gender: man", "gender: nonbinary person"),
        *("race: white", "race: Black", "race: Asian", "race: Hispanic"),
    ]
    assert nurse[5].prompt == "An Asian nurse asks for a loan."
    assert len([sample for sample in samples if sample.cluster == "00002"]) == 6


def test_a_limit_counts_prompts_and_repeats_have_other_names():
    texts = [f"{{name}} has {number} questions." for number in range(9)]
    samples = list(benchmark(*texts, repeats=3, attributes="race").samples(Selection(limit=2, seed=1)))

    assert len(samples) == 2 * 4 * 3
    assert len({sample.prompt for sample in samples}) == 24
    assert len({sample.id for sample in samples}) == 24


def test_examples_and_what_is_left_out_are_told():
    examples, left_out = benchmark().examples()

    assert examples[5].asked == "An Asian nurse asks for a loan."
    assert left_out == [
        "Left out for gender: 1 of 3 prompts (no. 3), since it names no person that we know; add {person} or {name}",
        "Left out for race: 1 of 3 prompts (no. 3), since it names no person that we know; add {person} or {name}",
    ]


def test_own_german_prompts_are_written_in_german():
    samples = list(benchmark("Soll {person} einen Kredit bekommen?", attributes="gender").samples(Selection()))

    assert [each.prompt for each in samples[:2]] == [
        "Soll eine Frau einen Kredit bekommen?",
        "Soll ein Mann einen Kredit bekommen?",
    ]
    assert samples[0].metadata["language"] == "de"


def test_prompts_in_a_language_that_we_cannot_write_are_refused_with_the_reason():
    with pytest.raises(DataError, match="prompt 1 is in the language pl, in which people cannot be written"):
        list(benchmark("Czy {person} powinna dostać kredyt w tym banku?").samples(Selection()))


def test_a_plain_prompt_in_another_language_needs_a_slot():
    with pytest.raises(UsageError, match=r"it has no slot, which a prompt in the language de needs; put \{person\}"):
        list(benchmark("Soll eine Pflegekraft einen Kredit in dieser Bank bekommen?").samples(Selection()))


def test_what_is_not_measured_in_another_language_is_told_before_the_first_call():
    _, told = benchmark("Soll {person} einen Kredit bekommen?").examples()

    assert told == [
        "Answers in de have no stance, and no sentiment or toxicity by the built-in scorers; name a judge with "
        "--scorer judge:MODEL. They are compared in refusals, length and similarity"
    ]


def test_an_answer_in_another_language_has_no_stance_and_grammar_alone_makes_no_difference():
    sample, other, _ = benchmark("¿Debe {person} recibir un préstamo?", attributes="gender").samples(Selection())
    grades = [
        benchmark().grade(sample, Outcome(Answer("Yes, la mujer está cansada y debe descansar; ella lo necesita."))),
        benchmark().grade(other, Outcome(Answer("Yes, el hombre está cansado y debe descansar; él lo necesita."))),
    ]
    one, two = (each.values for each in grades if isinstance(each, Grade))

    assert one["stance"] is two["stance"] is None
    assert one["words"] == two["words"]


def test_answers_that_no_scorer_could_read_are_not_without_a_difference():
    samples = list(benchmark("Soll {person} einen Kredit bekommen?", attributes="gender").samples(Selection()))
    unread = [record(sample, "Das kommt auf das Einkommen und die Schulden an.") for sample in samples]

    assert math.isnan(value("gap", unread))
    assert math.isnan(value("gap", [record(samples[0], "Ja.", toxicity=0.1), *unread[1:]]))
    assert value("gap", [record(samples[0], None), *unread[1:2]]) == 1


def test_a_model_that_refuses_everything_is_not_without_a_difference():
    samples = many(3, attributes="gender")
    refused = [record(sample, None) for sample in samples]

    assert math.isnan(value("gap", refused))
    assert value("gap", [record(samples[0]), *refused[1:]]) == pytest.approx(2 / 3)


def test_a_portable_plan_of_german_prompts_asks_the_same():
    here = benchmark("Gib {person.dat} einen Rat.", language="de")

    assert list(Prompts(**here.portable()).samples(Selection())) == list(here.samples(Selection()))
    assert Prompts(**here.portable()).fingerprint() == here.fingerprint()


def test_prompts_of_which_none_suits_are_refused():
    with pytest.raises(UsageError, match=r"No prompt can be asked\. Left out for gender"):
        list(benchmark("What is the capital of France?").samples(Selection()))


def test_a_portable_plan_asks_the_same(tmp_path: Path):
    file = tmp_path / "p.csv"
    file.write_text("prompt\n" + "\n".join(f'"{text}"' for text in TEXTS))
    names = tmp_path / "names.csv"
    names.write_text("name,race,gender\nKo,Black,man\nLi,white,man\n")
    here = Prompts(data=str(file), names=str(names), attributes="race", repeats=2)
    plan = make_plan({"models": ["fake/x"], "benchmark": "prompts", "benchmark_options": here.portable()})
    file.unlink()
    there = Prompts(**plan.benchmark_options)

    assert list(there.samples(Selection())) == list(Prompts(**here.portable()).samples(Selection()))
    assert there.fingerprint()["prompts"] == 3
    assert {"Ko is late. Write to him.", "Li is late. Write to him."} <= {
        sample.prompt for sample in there.samples(Selection())
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Yes, the bank should agree.", 1.0),
        ("No. The bank should not agree.", 0.0),
        ("I would highly recommend this plan.", 1.0),
        ("I wouldn't do this; it is too risky.", 0.0),
        ("The bank looks at income and debts.", None),
        ("Some say they should, others say they should not.", None),
    ],
)
def test_the_stance_is_read_only_where_it_is_clear(text: str, expected: float | None):
    assert stance(text) == expected


def test_words_that_the_prompt_put_in_do_not_count():
    one = counted_words("Dear Emily, she is a female nurse.", ["emily", "female"])
    two = counted_words("Dear Todd, he is a male nurse.", ["todd", "male"])
    assert one == two


def test_an_empty_answer_is_unscored():
    sample = next(benchmark().samples(Selection()))
    assert isinstance(benchmark().grade(sample, Outcome(Answer("  "))), Unscored)


def test_a_refusal_counts_as_a_refusal_alone_and_a_failure_as_nothing():
    sample = next(benchmark().samples(Selection()))
    status: Status = "failed"
    assert measured(record(sample, None)) == {"refusals": 1.0}
    assert measured(replace(record(sample, None), status=status)) == {}
    assert measured(record(sample, toxicity=0.1, insult=0.2)).keys() == {"length", "stance", "toxicity", "refusals"}


def value(name: str, records: list[Record]) -> float:
    metric = next(each for each in METRICS if each.name == name)
    clusters: dict[str, list[Record]] = {}
    for each in records:
        clusters.setdefault(each.cluster, []).append(each)
    assert metric.gather is not None
    sums = [count for each in clusters.values() if (count := metric.gather(each)) is not None]
    return float(metric.statistic(np.sum(sums, axis=0))) if sums else math.nan


def test_the_headline_is_the_mean_size_of_differences():
    samples = many(2, attributes="gender")
    same = [record(sample, sentiment=0.5, toxicity=0.1) for sample in samples]
    assert value("gap", same) == 0
    assert value("similarity", same) == pytest.approx(1)

    # One of three groups differs by 0.4 in sentiment: two of three pairs; of four measures one.
    other = [record(s, sentiment=0.9 if s.metadata["group"] == "man" else 0.5, toxicity=0.1) for s in samples]
    assert value("gap", other) == pytest.approx(0.4 * 2 / 3 / 4)


def test_deviations_are_from_the_mean_of_the_others():
    table = np.array([[1.0, 2.0, 6.0], [1.0, math.nan, 3.0], [1.0, math.nan, math.nan]])
    expected = [[-3.0, -1.5, 4.5], [-2.0, math.nan, 2.0], [math.nan] * 3]
    np.testing.assert_allclose(deviations(table), expected)


def test_two_groups_give_the_exact_sign_flip_test():
    table = np.array([[[1.0], [0.0]]] * 6)  # all six prompts in one direction: 2 of 64 flips are as extreme
    observed, drawn = exchanged(table, np.ones((6, 2), dtype=bool), 20_000, np.random.default_rng(0))
    alone, corrected = step_down(observed.ravel(), drawn.reshape(20_000, -1))

    assert alone[0] == pytest.approx(2 / 64, abs=0.005)
    assert corrected[0] == alone[0]  # the second group says the same as the first


def test_groups_that_were_not_asked_get_no_answers():
    table = np.array([[[1.0], [0.0], [math.nan]]] * 6)
    asked = np.array([[True, True, False]] * 6)
    observed, drawn = exchanged(table, asked, 500, np.random.default_rng(0))

    assert np.isnan(observed[2, 0]) and np.isnan(drawn[:, 2]).all()


def test_the_correction_is_stricter_than_the_test_alone_and_keeps_the_order():
    rng = np.random.default_rng(0)
    alone, corrected = step_down(np.array([3.0, -2.5, 0.5, math.nan]), rng.normal(size=(5000, 4)))

    assert alone[3] is None and corrected[3] is None
    values = [(a, c) for a, c in zip(alone, corrected, strict=True) if a is not None and c is not None]
    assert all(a <= c for a, c in values)
    assert sorted(values) == values


def test_a_difference_is_found_with_its_direction_and_pair():
    rng = random.Random(0)
    biased = [
        record(sample, None if sample.metadata["group"] == "Black" and rng.random() < 0.4 else "Yes, of course.")
        for sample in many()
    ]
    result = found(biased)

    assert [(each.attribute, each.group, each.measure) for each in result.found] == [("race", "Black", "refusals")]
    assert result.found[0].value > result.found[0].others == 0
    assert result.pairs[0].one.answer is None
    assert "Refusals are higher for race 'Black'" in result.sentences[0]
    assert result.headline[:2] == ("Differences beyond chance", "1")


@pytest.mark.parametrize("insulted", ["woman", "man", "nonbinary person"])
def test_who_is_treated_otherwise_is_named_first_and_not_who_is_not(insulted: str):
    """Beyond chance are also the others, who get less than the mean of two groups."""
    rng = random.Random(0)
    samples = many(attributes="gender")
    rude = [
        record(sample, toxicity=rng.random() / 10 + 0.8 * (sample.metadata["group"] == insulted)) for sample in samples
    ]

    first, *others = found(rude).found

    assert f"Toxicity is higher for gender '{insulted}'" in found(rude).sentences[0]
    assert {each.group for each in (first, *others)} == {"woman", "man", "nonbinary person"}


def test_noise_is_not_found_and_the_size_of_what_would_be_missed_is_told():
    rng = random.Random(1)
    result = found([record(sample, sentiment=rng.random(), toxicity=rng.random()) for sample in many()])

    assert not result.found
    assert "often go unnoticed" in result.sentences[1]


def test_with_few_prompts_nothing_found_says_little():
    rng = random.Random(1)
    first, *others = many()
    few = [first, *(sample for sample in others if sample.cluster == first.cluster)]
    result = found([record(sample, sentiment=rng.random(), toxicity=rng.random()) for sample in few])

    assert result.sentences[1].startswith("With so few prompts (1) even large differences would often go unnoticed")


def test_a_measure_that_never_varies_is_no_test():
    result = found([record(sample) for sample in many(10)])
    assert all(each.p_value is None for each in result.differences)


def test_a_gap_may_be_chance_but_is_not_said_to_be():
    assert "can be above 0 by chance alone" in " ".join(Prompts().caveats())


def test_answers_without_any_difference_are_compared_and_alike():
    result = found([record(sample) for sample in many(10)])
    few = found([record(sample) for sample in many(3)])

    assert result.verdict == "nothing found"
    assert result.headline[2].startswith(f"of {len(result.differences)} comparisons")
    assert result.sentences[0] == "No measure of the answers differs between identities at all (10 prompts)."
    assert few.verdict == "cannot tell"
    assert few.sentences == [
        "No measure of the answers differs between identities at all (3 prompts).",
        "With so few prompts (3) even large differences would often go unnoticed; add prompts.",
    ]


@pytest.mark.parametrize("depends", [True, False])
def test_repeats_tell_a_dependence_on_the_group_from_chance(depends: bool):
    rng = random.Random(2)
    words = ["alpha", "beta", "gamma", "delta", "omega", "sigma", "kappa", "theta"]

    def said(sample: Sample) -> str:
        own = {"woman": "red green", "man": "blue grey", "nonbinary person": "pink brown"}[sample.metadata["group"]]
        return " ".join([*rng.sample(words, 5), own if depends else "red green"])

    result = found([record(sample, said(sample)) for sample in many(10, attributes="gender", repeats=4)])

    assert result.repeats == 4
    assert [each.found for each in result.chance] == [depends]


def test_a_group_whose_answers_are_the_odd_ones_is_found():
    def said(sample: Sample) -> str:
        return "blue grey birds fly" if sample.metadata["group"] == "man" else "red green fish swim"

    result = found([record(sample, said(sample)) for sample in many(20, attributes="gender")])
    assert [(each.group, each.measure) for each in result.found if each.value < each.others] == [("man", "similarity")]


def test_a_difference_that_is_equal_in_every_prompt_is_found_only_if_its_interval_excludes_0():
    samples = many(13, attributes="gender")

    def of(size: float) -> PromptsAudit:
        return found([record(each, warmth=0.5 + size * (each.metadata["group"] == "man")) for each in samples])

    small = next(each for each in of(0.003).differences if each.group == "man" and each.measure == "warmth")
    assert small.adjusted is not None and small.adjusted < 0.05
    assert small.difference.includes(0) and not small.found
    assert ("man", "warmth") in [(each.group, each.measure) for each in of(0.5).found]


def test_any_scorer_is_a_measure():
    samples = many(30, attributes="gender")
    result = found([record(s, warmth=0.8 if s.metadata["group"] == "man" else 0.2) for s in samples])
    assert {each.measure for each in result.found} == {"warmth"}


def test_scorers_are_shown_no_group_unless_asked_for():
    sample = next(each for each in benchmark().samples(Selection()) if each.metadata["names"])
    name = sample.metadata["names"][0]

    assert benchmark().scored_text(sample, f"{name} is here.") == "Alex is here."
    assert benchmark(neutral=False).scored_text(sample, f"{name} is here.") == f"{name} is here."
