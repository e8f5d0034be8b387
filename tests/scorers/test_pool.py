"""The pool: equal texts once, neighbours together, and nobody's misfortune becomes another's."""

import asyncio
from collections.abc import Sequence

import pytest

from evenhand.core.errors import EndpointError
from evenhand.core.types import Unscored
from evenhand.scorers.base import Scorer, Scores
from evenhand.scorers.pool import PooledScorer


class Recorder(Scorer):
    """Scores a text by its length, notes what it is asked, and can be held up or broken."""

    name = "recorder"
    version = "7"
    attributes = ("toxicity",)
    languages = ("en", "de")

    def __init__(self) -> None:
        self.calls: list[list[tuple[str, str | None]]] = []
        self.asked = asyncio.Event()
        self.gate = asyncio.Event()
        self.gate.set()
        self.error: Exception | None = None
        self.closed = False

    async def score(self, texts: Sequence[str], contexts: Sequence[str] | None = None) -> list[Scores | Unscored]:
        self.calls.append(list(zip(texts, contexts or [None] * len(texts), strict=True)))
        self.asked.set()
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return [{"toxicity": len(text) / 100} if text else Unscored("empty text") for text in texts]

    async def aclose(self) -> None:
        self.closed = True


async def test_neighbours_go_out_as_one_call_and_get_their_own_scores():
    inner = Recorder()
    pool = PooledScorer(inner)

    results = await asyncio.gather(pool.score(["a"]), pool.score(["bb", "ccc"]), pool.score(["dddd"]))

    assert results == [[{"toxicity": 0.01}], [{"toxicity": 0.02}, {"toxicity": 0.03}], [{"toxicity": 0.04}]]
    assert inner.calls == [[("a", None), ("bb", None), ("ccc", None), ("dddd", None)]]


async def test_equal_texts_are_scored_once_now_and_later():
    inner = Recorder()
    pool = PooledScorer(inner)

    first = await asyncio.gather(pool.score(["a", "a"]), pool.score(["a"]))
    later = await pool.score(["a", "bb"])

    assert first == [[{"toxicity": 0.01}] * 2, [{"toxicity": 0.01}]]
    assert later == [{"toxicity": 0.01}, {"toxicity": 0.02}]
    assert inner.calls == [[("a", None)], [("bb", None)]]


async def test_a_text_in_another_context_is_another_question():
    inner = Recorder()
    pool = PooledScorer(inner)

    await asyncio.gather(pool.score(["a"], ["x"]), pool.score(["a"], ["y"]), pool.score(["a"]))

    assert inner.calls == [[("a", "x"), ("a", "y"), ("a", "")]]


async def test_one_who_asks_while_the_same_text_is_under_way_shares_its_result():
    inner = Recorder()
    inner.gate.clear()
    pool = PooledScorer(inner, wait=0)
    first = asyncio.create_task(pool.score(["a"]))
    await inner.asked.wait()
    second = asyncio.create_task(pool.score(["a"]))
    await asyncio.sleep(0)

    inner.gate.set()

    assert await first == await second
    assert len(inner.calls) == 1


async def test_a_call_never_holds_more_than_a_batch():
    inner = Recorder()
    pool = PooledScorer(inner, batch=3)

    results = await pool.score([str(number) for number in range(8)])

    assert len(results) == 8
    assert [len(call) for call in inner.calls] == [3, 3, 2]


async def test_what_could_not_be_scored_is_asked_for_again():
    inner = Recorder()
    pool = PooledScorer(inner)

    assert await pool.score([""]) == await pool.score([""]) == [Unscored("empty text")]

    assert len(inner.calls) == 2


async def test_the_least_recently_used_is_forgotten_first():
    inner = Recorder()
    pool = PooledScorer(inner, kept=2)
    for text in ("a", "b", "a", "c"):
        await pool.score([text])
    inner.calls.clear()

    await pool.score(["a", "b", "c"])

    assert inner.calls == [[("b", None)]]


async def test_an_error_reaches_everyone_in_the_call_and_is_not_remembered():
    inner = Recorder()
    inner.error = EndpointError("gone")
    pool = PooledScorer(inner)

    results = await asyncio.gather(pool.score(["a"]), pool.score(["b"]), return_exceptions=True)
    inner.error = None

    assert [str(each) for each in results] == ["gone", "gone"]
    assert await pool.score(["a"]) == [{"toxicity": 0.01}]


async def test_an_inner_scorer_that_miscounts_is_an_error_and_not_a_hang():
    class Short(Recorder):
        async def score(self, texts: Sequence[str], contexts: Sequence[str] | None = None) -> list[Scores | Unscored]:
            return (await super().score(texts, contexts))[1:]

    with pytest.raises(ValueError, match="shorter"):
        await PooledScorer(Short()).score(["a", "b"])


@pytest.mark.parametrize("under_way", [False, True])
async def test_a_cancelled_caller_does_not_break_the_others(under_way: bool):
    inner = Recorder()
    inner.gate.clear()
    pool = PooledScorer(inner, wait=0)
    leaving = asyncio.create_task(pool.score(["a", "b"]))
    staying = asyncio.create_task(pool.score(["b", "c"]))
    await asyncio.sleep(0)
    if under_way:
        await inner.asked.wait()

    leaving.cancel()
    inner.gate.set()

    assert await staying == [{"toxicity": 0.01}, {"toxicity": 0.01}]
    with pytest.raises(asyncio.CancelledError):
        await leaving


async def test_it_passes_for_the_scorer_inside():
    inner = Recorder()
    pool = PooledScorer(inner)

    assert (pool.name, pool.spec, pool.id, pool.version) == ("recorder", "recorder", "recorder@7", "7")
    assert (pool.attributes, pool.languages, pool.fingerprint()) == (("toxicity",), ("en", "de"), inner.fingerprint())


async def test_closing_ends_what_is_under_way_and_closes_the_scorer_inside():
    inner = Recorder()
    inner.gate.clear()
    pool = PooledScorer(inner, wait=0, batch=1)
    waiting = asyncio.create_task(pool.score(["a", "b"]))
    await inner.asked.wait()

    await pool.aclose()

    assert inner.closed
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_nothing_to_score_is_no_call():
    inner = Recorder()

    assert await PooledScorer(inner).score([]) == []
    assert inner.calls == []
