"""The response cache: what was answered once is not paid for twice, and never mistaken for something else."""

import asyncio
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from evenhand.core.errors import BadResponseError, StoreError
from evenhand.core.types import Completion, Generation, Message, Params, TokenLogprob
from evenhand.models import cache as cache_module
from evenhand.models.base import Model, ModelOptions
from evenhand.models.cache import CachedModel, ResponseCache
from evenhand.models.fake import FakeModel, FunctionModel
from evenhand.models.request import as_stored, model_identity, request_key

QUESTION = (Message("user", "Who?"),)
PARAMS = Params(temperature=0.5, top_p=0.9, max_tokens=4, seed=3, stop=(".",), logprobs=2, schema={"type": "string"})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "cache.sqlite"


@pytest.fixture
def cache(path: Path) -> Iterator[ResponseCache]:
    opened = ResponseCache(path)
    yield opened
    opened.close()


def counting() -> FunctionModel:
    """Says how often it was asked."""
    model = FunctionModel(lambda *_: f"answer {len(model.requests)}")
    return model


class Gated(Model):
    """Answers when the test opens the gate."""

    spec = "fake/gated"

    def __init__(self) -> None:
        self.calls = 0
        self.gate = asyncio.Event()
        self.error: Exception | None = None

    async def generate(self, messages: object, params: object) -> Generation:
        self.calls += 1
        call = self.calls
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return Generation((Completion(f"answer {call}"),), self.spec)


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_the_second_time_costs_nothing_and_is_marked(cache: ResponseCache):
    inner = counting()
    model = CachedModel(inner, cache)

    first = await model.generate(QUESTION, PARAMS)
    second = await model.generate(QUESTION, PARAMS)

    assert (first.text, first.cached, first.usage.calls) == ("answer 1", False, 1)
    assert (second.text, second.cached, second.latency) == ("answer 1", True, 0.0)
    assert (second.usage.calls, second.usage.tokens, second.usage.cost, second.usage.cached_calls) == (0, 0, 0.0, 1)
    assert len(inner.requests) == 1


CHANGES = {
    "message": ((Message("user", "Who then?"),), PARAMS),
    "role": ((Message("system", "Who?"),), PARAMS),
    "another message": ((*QUESTION, Message("assistant", "")), PARAMS),
    "temperature": (QUESTION, replace(PARAMS, temperature=0.6)),
    "top_p": (QUESTION, replace(PARAMS, top_p=None)),
    "max_tokens": (QUESTION, replace(PARAMS, max_tokens=5)),
    "seed": (QUESTION, replace(PARAMS, seed=4)),
    "stop": (QUESTION, replace(PARAMS, stop=())),
    "n": (QUESTION, replace(PARAMS, n=2)),
    "logprobs": (QUESTION, replace(PARAMS, logprobs=3)),
    "schema": (QUESTION, replace(PARAMS, schema={"type": "number"})),
}


@pytest.mark.parametrize(("messages", "params"), CHANGES.values(), ids=CHANGES)
async def test_a_different_request_is_a_different_entry(
    cache: ResponseCache, messages: tuple[Message, ...], params: Params
):
    inner = counting()
    model = CachedModel(inner, cache)
    await model.generate(QUESTION, PARAMS)

    other = await model.generate(messages, params)

    assert (other.cached, len(inner.requests)) == (False, 2)


async def test_another_model_is_a_different_entry(cache: ResponseCache):
    first, second = counting(), counting()
    second.spec = "fake/other"

    await CachedModel(first, cache).generate(QUESTION, PARAMS)
    await CachedModel(second, cache).generate(QUESTION, PARAMS)

    assert len(second.requests) == 1


def test_the_key_does_not_depend_on_the_order_of_a_schema():
    identity = model_identity({"spec": "a"})
    one, two = Params(schema={"a": 1, "b": 2}), Params(schema={"b": 2, "a": 1})

    assert request_key(identity, QUESTION, one) == request_key(identity, list(QUESTION), two)


async def test_everything_in_an_answer_survives_a_new_process(path: Path):
    said = Completion("B", "length", "no", (TokenLogprob("B", -0.5, (("B", -0.5), ("A", -1.0))),))
    first = ResponseCache(path)
    await CachedModel(FunctionModel(lambda *_: said), first).generate(QUESTION, PARAMS)
    first.close()

    second = ResponseCache(path)
    silent = FunctionModel(lambda *_: BadResponseError("must not be asked"))
    generation = await CachedModel(silent, second).generate(QUESTION, PARAMS)
    second.close()

    assert generation.completions == (said,)


async def test_entries_are_written_in_batches(path: Path, cache: ResponseCache, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cache_module, "_FLUSH_EVERY", 3)
    model = CachedModel(counting(), cache)

    for seed in range(3):
        await model.generate(QUESTION, Params(seed=seed))

    with sqlite3.connect(path) as other:
        assert other.execute("SELECT COUNT(*) FROM answers").fetchone() == (3,)
    other.close()


async def test_slow_replies_are_written_before_a_batch_is_full(
    path: Path, cache: ResponseCache, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(cache_module, "_FLUSH_SECONDS", -1.0)

    await CachedModel(counting(), cache).generate(QUESTION, PARAMS)

    with sqlite3.connect(path) as other:
        assert other.execute("SELECT COUNT(*) FROM answers").fetchone() == (1,)
    other.close()


async def test_identical_calls_under_way_are_made_once(cache: ResponseCache):
    inner = Gated()
    model = CachedModel(inner, cache)
    calls = [asyncio.create_task(model.generate(QUESTION, PARAMS)) for _ in range(5)]
    await settle()

    inner.gate.set()
    generations = await asyncio.gather(*calls)

    assert inner.calls == 1
    assert [each.text for each in generations] == ["answer 1"] * 5
    assert [each.cached for each in generations] == [False, True, True, True, True]


async def test_an_error_reaches_all_who_wait_and_is_not_kept(cache: ResponseCache):
    inner = Gated()
    inner.error = BadResponseError("broken")
    model = CachedModel(inner, cache)
    calls = [asyncio.create_task(model.generate(QUESTION, PARAMS)) for _ in range(3)]
    await settle()

    inner.gate.set()
    results = await asyncio.gather(*calls, return_exceptions=True)
    inner.error = None
    after = await model.generate(QUESTION, PARAMS)

    assert all(isinstance(each, BadResponseError) for each in results)
    assert (after.text, after.cached, inner.calls) == ("answer 2", False, 2)


async def test_when_the_first_caller_is_cancelled_the_next_one_asks(cache: ResponseCache):
    inner = Gated()
    model = CachedModel(inner, cache)
    first, *others = [asyncio.create_task(model.generate(QUESTION, PARAMS)) for _ in range(3)]
    await settle()

    first.cancel()
    await settle()
    inner.gate.set()
    generations = await asyncio.gather(*others)

    assert first.cancelled()
    assert [each.text for each in generations] == ["answer 2", "answer 2"]
    assert inner.calls == 2


async def test_when_a_waiting_caller_is_cancelled_the_others_do_not_notice(cache: ResponseCache):
    inner = Gated()
    model = CachedModel(inner, cache)
    first, second, third = [asyncio.create_task(model.generate(QUESTION, PARAMS)) for _ in range(3)]
    await settle()

    second.cancel()
    await settle()
    inner.gate.set()

    assert [(await first).text, (await third).text] == ["answer 1", "answer 1"]
    assert second.cancelled()


@pytest.mark.parametrize("damage", [b"", b"not compressed", b"{", b"{}", b'{"completions": 3}', b"[]"])
async def test_a_damaged_entry_is_asked_for_again_and_mended(path: Path, damage: bytes):
    first = ResponseCache(path)
    await CachedModel(counting(), first).generate(QUESTION, PARAMS)
    first.close()
    with sqlite3.connect(path) as other:
        other.execute("UPDATE answers SET value = ?", (damage,))
    other.close()

    second = ResponseCache(path)
    with pytest.warns(UserWarning, match="damaged entry"):
        again = await CachedModel(FunctionModel(lambda *_: "new"), second).generate(QUESTION, PARAMS)
    second.close()
    third = ResponseCache(path)
    later = await CachedModel(counting(), third).generate(QUESTION, PARAMS)
    third.close()

    assert (again.text, again.cached) == ("new", False)
    assert (later.text, later.cached) == ("new", True)


@pytest.mark.parametrize("content", [b"this is not a database, but a text of some length" * 30, b"\x00" * 4096])
def test_a_file_that_is_no_cache_is_refused_with_a_way_out(tmp_path: Path, content: bytes):
    path = tmp_path / "notes.txt"
    path.write_bytes(content)

    with pytest.raises(StoreError, match=r"cannot be opened .*pass --no-cache or another --cache"):
        ResponseCache(path)

    assert path.read_bytes() == content


def test_a_folder_is_no_cache(tmp_path: Path):
    with pytest.raises(StoreError, match="cannot be opened"):
        ResponseCache(tmp_path)


def test_a_cache_below_a_file_is_refused(tmp_path: Path):
    (tmp_path / "file").write_text("")

    with pytest.raises(StoreError, match="cannot be opened"):
        ResponseCache(tmp_path / "file" / "cache.sqlite")


async def test_a_cache_that_cannot_be_written_warns_and_the_answers_stand(path: Path):
    cache = ResponseCache(path)
    cache._db.execute("PRAGMA query_only=ON")
    model = CachedModel(counting(), cache)

    generation = await model.generate(QUESTION, PARAMS)
    with pytest.warns(UserWarning, match=r"cannot be written: attempt to write a readonly database"):
        cache.close()

    assert generation.text == "answer 1"


async def test_a_cache_that_another_process_holds_warns_and_the_answers_stand(
    path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(cache_module, "_LOCK_TIMEOUT", 0.05)
    cache = ResponseCache(path)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    model = CachedModel(counting(), cache)

    generation = await model.generate(QUESTION, PARAMS)
    with pytest.warns(UserWarning, match="database is locked"):
        cache.close()
    holder.close()

    assert generation.text == "answer 1"


async def test_a_cache_that_breaks_on_the_way_warns_and_the_model_is_asked(path: Path):
    cache = ResponseCache(path)
    cache._db.execute("DROP TABLE answers")
    inner = counting()

    with pytest.warns(UserWarning, match="cannot be read"):
        generation = await CachedModel(inner, cache).generate(QUESTION, PARAMS)
    with pytest.warns(UserWarning, match="cannot be written"):
        cache.close()

    assert (generation.text, len(inner.requests)) == ("answer 1", 1)


async def test_two_processes_can_share_a_cache(path: Path):
    one, two = ResponseCache(path), ResponseCache(path)
    await CachedModel(counting(), one).generate(QUESTION, PARAMS)
    one.flush()

    generation = await CachedModel(counting(), two).generate(QUESTION, PARAMS)
    one.close()
    two.close()

    assert generation.cached


async def test_features_are_those_of_the_model_behind_the_cache(cache: ResponseCache):
    inner = FunctionModel(lambda *_: "A", features=["logprobs"])
    model = CachedModel(inner, cache)
    before = model.features

    inner.features = frozenset()

    assert (before, model.features) == ({"logprobs"}, frozenset())


def test_long_replies_are_stored_with_the_alternatives_of_numbers_only() -> None:
    def token(text: str) -> TokenLogprob:
        return TokenLogprob(text, -0.1, ((text, -0.1), ("x", -2.0)))

    rated = Completion("", logprobs=(token('"bias": '), token("7"), *[token(" word")] * 40))
    letter = Completion("", logprobs=(token("A"), token(")")))
    stored = as_stored(Generation((rated, letter), "fake/x"))

    assert [len(each.top) for each in stored.completions[0].logprobs or ()] == [0, 2, *[0] * 40]
    assert [each.token for each in stored.completions[0].logprobs or ()][:3] == ['"bias": ', "7", " word"]
    assert stored.completions[1] == letter


class Reporting(Model):
    """An endpoint that reports a fingerprint, and answers when the test opens the gate."""

    spec = "openai/prod"

    def __init__(self, fingerprint: str) -> None:
        self.calls = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.fails = False
        self._reported = fingerprint

    async def generate(self, messages: Sequence[Message], params: Params) -> Generation:
        self.calls += 1
        await self.gate.wait()
        if self.fails:
            raise BadResponseError("broken")
        return Generation((Completion(f"{messages[-1].content}!"),), self.spec, fingerprint=self._reported)


def _strict(path: Path) -> ResponseCache:
    return ResponseCache(path, reuse=False)


async def _recorded(path: Path, model: Model, *questions: str) -> None:
    cache = _strict(path)
    for each in questions:
        await CachedModel(model, cache).generate((Message("user", each),), PARAMS)
    cache.close()


async def test_answers_of_another_run_are_reused_only_if_their_model_must_be_the_same(path: Path):
    await _recorded(path, FunctionModel(lambda *_: "old", spec="openai/prod"), "Who?")
    cache = _strict(path)

    endpoint = await CachedModel(FunctionModel(lambda *_: "new", spec="openai/prod"), cache).generate(QUESTION, PARAMS)
    own = await CachedModel(FunctionModel(lambda *_: "newer", spec="openai/prod"), cache).generate(QUESTION, PARAMS)
    cache.close()

    assert (endpoint.text, endpoint.cached) == ("new", False)
    assert (own.text, own.cached, own.recorded) == ("new", True, None)


async def test_the_latest_answer_is_reused_with_the_time_of_its_recording(path: Path):
    for text in ("old", "new"):
        await _recorded(path, FunctionModel(lambda *_, text=text: text, spec="openai/prod"), "Who?")
    cache = ResponseCache(path)

    hit = await CachedModel(FunctionModel(lambda *_: "never", spec="openai/prod"), cache).generate(QUESTION, PARAMS)
    cache.close()

    assert (hit.text, hit.cached) == ("new", True)
    assert hit.recorded is not None


async def test_while_the_first_reply_is_awaited_only_requests_with_an_answer_wait(path: Path):
    await _recorded(path, Reporting("fp_44709d6fcb"), "a", "b")
    inner, cache = Reporting("fp_44709d6fcb"), _strict(path)
    inner.gate.clear()
    model = CachedModel(inner, cache)
    calls = [asyncio.create_task(model.generate((Message("user", each),), PARAMS)) for each in "abc"]
    await settle()
    began = inner.calls

    inner.gate.set()
    replies = await asyncio.gather(*calls)
    cache.close()

    assert (began, inner.calls) == (2, 2)  # a, whose answer is known, and c, whose is not
    assert [(each.text, each.cached) for each in replies] == [("a!", False), ("b!", True), ("c!", False)]


async def test_an_endpoint_that_fails_is_not_asked_one_request_after_another(path: Path):
    await _recorded(path, Reporting("fp_44709d6fcb"), "a", "b", "c")
    inner, cache = Reporting("fp_44709d6fcb"), _strict(path)
    inner.fails = True
    model = CachedModel(inner, cache)

    calls = (model.generate((Message("user", each),), PARAMS) for each in "abc")
    replies = await asyncio.gather(*calls, return_exceptions=True)
    cache.close()

    assert all(isinstance(each, BadResponseError) for each in replies)
    assert inner.calls == 3


async def test_repeated_requests_have_answers_of_their_own(cache: ResponseCache):
    model = CachedModel(counting(), cache)

    texts = [(await model.generate(QUESTION, replace(PARAMS, again=again))).text for again in (0, 1, 0, 1)]

    assert texts == ["answer 1", "answer 2", "answer 1", "answer 2"]


async def test_a_cache_of_an_older_version_is_still_read(path: Path):
    await _recorded(path, FakeModel("B", ModelOptions()), "Who?")
    with sqlite3.connect(path) as db:
        db.executescript(
            "CREATE TABLE responses (key BLOB PRIMARY KEY, value BLOB NOT NULL, at REAL NOT NULL) WITHOUT ROWID;"
            "INSERT INTO responses SELECT key, value, at FROM answers; DROP TABLE answers; PRAGMA user_version = 0;"
        )
    db.close()
    cache = _strict(path)

    hit = await CachedModel(FakeModel("B", ModelOptions()), cache).generate(QUESTION, PARAMS)
    cache.close()

    assert (hit.text, hit.cached) == ("B", True)
