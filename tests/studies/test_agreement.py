"""How far two scorers agree, on stored scores whose agreement is known."""

import asyncio
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from evenhand.runs.store import FINAL, Finished, Scored, Store
from evenhand.studies.agreement import GRID, agreements
from support.toy import toy_sample

ABOUT = {"planned": False, "languages": ["en"], "fingerprint": {}}
FIRST = [0.1, 0.2, 0.6, 0.9]
SECOND = [0.2, 0.3, 0.4, 1.0]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with closing(Store(tmp_path / "run", create=True)) as store:
        store.add_samples(toy_sample(number) for number in range(len(FIRST)))
        store.put(
            scorers={
                "a@1": {**ABOUT, "spec": "a", "attributes": ["toxicity", "insult"]},
                "b@1": {**ABOUT, "spec": "b", "attributes": ["threat", "toxicity"], "planned": True},
                "c@1": {**ABOUT, "spec": "c", "attributes": ["fluency"]},
            }
        )
        yield store


async def fill(store: Store, first: list[float], second: list[float | None], iteration: int = FINAL) -> None:
    for number, (one, other) in enumerate(zip(first, second, strict=True), 1):
        scores = [Scored("a@1", iteration, "graded", None, {"toxicity": one, "insult": 0.5})]
        if other is not None:
            scores.append(Scored("b@1", iteration, "graded", None, {"toxicity": other, "threat": 0.5}))
        else:
            scores.append(Scored("b@1", iteration, "unscored", "too long"))
        await store.record_scores(number, 1, scores)


async def test_scorers_that_share_an_attribute_are_compared_the_planned_one_first(store: Store):
    await fill(store, FIRST, list(SECOND))

    [found] = agreements([store])

    assert (found.first, found.second) == ("b@1", "a@1")
    [row] = found.rows
    assert (row.attribute, row.n) == ("toxicity", 4)
    assert row.spearman.estimate == pytest.approx(1.0)
    assert row.difference.estimate == pytest.approx(-0.025)
    assert row.difference.low is not None
    assert row.difference.high is not None
    assert row.difference.low < -0.025 < row.difference.high
    assert (row.same_side.estimate, row.kappa.estimate) == (0.75, pytest.approx(0.5))


async def test_answers_that_one_of_them_could_not_score_do_not_count(store: Store):
    await fill(store, FIRST, [0.2, None, None, 1.0])

    assert agreements([store])[0].rows[0].n == 2


async def test_only_final_answers_count(store: Store):
    await fill(store, FIRST, list(SECOND), iteration=0)

    assert agreements([store]) == []


async def test_points_are_counted_in_cells(store: Store):
    await fill(store, [0.0, 0.001, 1.0, 0.5], [0.0, 0.002, 1.0, 0.25])

    assert agreements([store])[0].cells == [(0, 0, 2), (10, 20, 1), (39, 39, 1)]
    assert GRID == 40


async def test_of_very_many_answers_some_are_compared(store: Store, monkeypatch: pytest.MonkeyPatch):
    count = 2000
    store.add_samples(toy_sample(number) for number in range(count))
    finished = [
        Finished(
            number,
            1,
            "graded",
            None,
            0.0,
            None,
            [Scored(name, FINAL, "graded", None, {"toxicity": number / count}) for name in ("a@1", "b@1")],
        )
        for number in range(1, count + 1)
    ]
    await asyncio.gather(*map(store.record_outcome, finished))
    monkeypatch.setattr("evenhand.studies.agreement.MOST_ANSWERS", 200)

    [row] = agreements([store])[0].rows

    assert 150 < row.n < 250
    assert row.spearman.estimate == pytest.approx(1.0)


def test_without_scores_there_is_nothing_to_compare(store: Store):
    assert agreements([store]) == []
    assert agreements([]) == []
