"""Shards: clusters stay whole, and merged shards are, to the byte, the run that was never split."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenhand.core.errors import PlanError, StoreError, UsageError
from evenhand.runs.merge import merge
from evenhand.runs.runner import Runner
from evenhand.runs.shards import Shard, dealt, numbered
from evenhand.runs.store import Store
from support.runs import Workshop
from support.toy import number_of, right_answer, toy_sample

SIZE = 60
PLAN: dict[str, Any] = {"benchmark_options": {"size": SIZE, "clusters": 13}, "methods": ["default", "cot"]}


def answer(messages: Any, _params: Any) -> str:
    number = number_of(messages)
    return "Hard to say." if number % 7 == 0 else "B" if number % 3 == 0 else right_answer(messages)


async def run_shards(workshop: Workshop, count: int, **plan: Any) -> list[Path]:
    folders = [f"shard-{index}" for index in range(1, count + 1)]
    for index, folder in enumerate(folders, 1):
        await workshop.run(folder, settings={"shard": Shard(index, count)}, **{**PLAN, **plan})
    return [workshop.directory / folder for folder in folders]


@given(st.lists(st.integers(0, 12), max_size=80), st.integers(1, 9))
def test_every_sample_is_in_one_shard_and_a_cluster_in_one_only(clusters: list[int], count: int):
    samples = [toy_sample(number, clusters=1 + cluster) for number, cluster in enumerate(clusters)]
    shards = [list(numbered(samples, Shard(index, count))) for index in range(1, count + 1)]
    assert sorted(number for shard in shards for number, _ in shard) == list(range(1, len(samples) + 1))
    homes = [(sample.cluster, index) for index, shard in enumerate(shards) for _, sample in shard]
    assert len({cluster for cluster, _ in homes}) == len(set(homes))


def test_shards_are_of_like_size():
    sizes = [0] * 9
    for home, _ in dealt((toy_sample(number, clusters=400) for number in range(4000)), 8):
        sizes[home] += 1
    assert sizes[1:] == [500] * 8


@pytest.mark.parametrize("count", [1, 3, 5])
async def test_merged_shards_equal_one_run_to_the_byte(workshop: Workshop, count: int):
    workshop.model(answer)
    await workshop.run("whole", **PLAN)
    folders = await run_shards(workshop, count)

    merged = merge(folders[::-1], workshop.directory / "merged")

    assert (merged.samples, merged.outcomes, merged.pending) == (SIZE, 2 * SIZE, 0)
    for table in ("outcomes", "metrics", "effects"):
        assert workshop.exported("merged", table) == workshop.exported("whole", table)
    said = [{**row, "generation": None} for row in workshop.rows("merged", "turns")]
    assert said == [{**row, "generation": None} for row in workshop.rows("whole", "turns")]
    store = Store(workshop.directory / "merged")
    assert store.get("identity") == Store(workshop.directory / "whole").get("identity")
    assert not any("shard" in each for each in store.get("caveats"))


async def test_a_merged_run_with_missing_outcomes_can_be_resumed(workshop: Workshop):
    model = workshop.model(answer)
    await workshop.run("whole", **PLAN)
    folders = await run_shards(workshop, 3)
    store = Store(folders[1])
    store._read.execute("DELETE FROM outcomes WHERE sample % 2 = 0")
    store.close()

    merged = merge(folders, workshop.directory / "merged")
    assert merged.pending > 0
    asked = len(model.requests)
    await workshop.run("merged", settings={"resume": True}, **PLAN)

    assert len(model.requests) == asked, "stored calls are replayed"
    assert workshop.exported("merged") == workshop.exported("whole")


async def test_what_does_not_belong_together_is_refused_by_name(workshop: Workshop):
    workshop.model(answer)
    folders = await run_shards(workshop, 3)
    out = workshop.directory / "merged"

    async def other(folder: str, shard: Shard | None = None, **plan: Any) -> Path:
        await workshop.run(folder, settings={"shard": shard or Shard(3, 3)}, **{**PLAN, **plan})
        return workshop.directory / folder

    with pytest.raises(PlanError, match="missing: 3/3"):
        merge(folders[:2], out)
    with pytest.raises(PlanError, match=r"are both shard 2/3"):
        merge([*folders, folders[1]], out)
    with pytest.raises(PlanError, match=r"their plans differ in limit \(None and 30\)"):
        merge([*folders[:2], await other("limited", limit=30)], out)
    with pytest.raises(PlanError, match="one is of 3 shards, the other of 4"):
        merge([*folders[:2], await other("of-four", Shard(4, 4))], out)
    await workshop.run("whole", **PLAN)
    with pytest.raises(PlanError, match="is not a shard"):
        merge([*folders[:2], workshop.directory / "whole"], out)
    for fact, change, words in [
        ("versions", {"numpy": "0.1"}, "their versions of packages differ in"),
        ("code", "another", "their code of Evenhand differ"),
        ("benchmark", {"name": "toy", "size": SIZE, "version": "2"}, r"their data differ in version \(1 and 2\)"),
        ("models", [{"spec": "stub/other"}], "their models"),
    ]:
        store = Store(folders[2])
        before = store.get(fact)
        store.put(**{fact: change})
        with pytest.raises(PlanError, match=words):
            merge(folders, out)
        store.put(**{fact: before})
        store.close()
    assert not out.exists()
    assert not list(workshop.directory.glob(".*"))
    merge(folders, out)
    with pytest.raises(UsageError, match="nothing is overwritten"):
        merge(folders, out)


async def test_a_damaged_shard_is_not_merged(workshop: Workshop):
    workshop.model(answer)
    folders = await run_shards(workshop, 2)
    store = Store(folders[0])
    store._read.execute("DELETE FROM samples WHERE number = 1")
    store.close()
    with pytest.raises((PlanError, StoreError), match="59 of the 60 samples"):
        merge(folders, workshop.directory / "merged")


async def test_a_shard_is_resumed_as_that_shard_only(workshop: Workshop):
    workshop.model(answer)
    [first, _] = await run_shards(workshop, 2)

    def again(shard: Shard | None) -> Runner:
        return workshop.runner(first.name, settings={"shard": shard, "resume": True}, **PLAN)

    assert (await again(Shard(1, 2)).run()).total == 2 * Store(first).get("samples") < 2 * SIZE
    with pytest.raises(PlanError, match="holds shard 1/2; pass --shard 1/2"):
        await again(None).run()
    with pytest.raises(PlanError, match="holds shard 1/2"):
        await again(Shard(2, 2)).run()


async def test_more_shards_than_clusters_are_refused(workshop: Workshop):
    workshop.model(answer)
    with pytest.raises(PlanError, match="use fewer shards"):
        await workshop.run("empty", settings={"shard": Shard(14, 14)}, **PLAN)


@pytest.mark.parametrize("text", ["0/3", "4/3", "1", "a/b", "1/0", "-1/2", "1/2/3", ""])
def test_a_shard_is_written_i_of_n(text: str):
    with pytest.raises(UsageError, match="I/N"):
        Shard.parse(text)
