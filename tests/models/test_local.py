"""The in-process engine, on the real built-in weights."""

import asyncio
import importlib.util
import json
import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from evenhand.core.errors import MissingExtraError, ModelError, UsageError
from evenhand.core.types import Message, Params
from evenhand.models import local, weights
from evenhand.models.base import ModelOptions
from evenhand.models.local import LocalModel

needs_weights = pytest.mark.skipif(
    importlib.util.find_spec("xllamacpp") is None or weights.installed("builtin") is None,
    reason="needs pip install 'evenhand[local]' and evenhand models pull builtin",
)
OPTIONS = ModelOptions(extra={"context": 1024, "slots": 4, "threads": 1})
FRUITS = [Message("user", "Name three fruits.")]
RATING = {
    "type": "object",
    "properties": {
        "rating": {"type": "integer", "minimum": 1, "maximum": 5},
        "why": {"type": "string", "maxLength": 12},
    },
    "required": ["rating", "why"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def model() -> Iterator[LocalModel]:
    model = LocalModel("builtin", OPTIONS)
    yield model
    asyncio.run(model.aclose())


@needs_weights
class TestGeneration:
    async def test_an_answer_with_its_usage(self, model: LocalModel) -> None:
        generation = await model.generate(FRUITS, Params(temperature=0, max_tokens=30))
        assert generation.text.startswith("1. Bananas")
        assert generation.completions[0].finish == "stop"
        assert generation.model == "local/builtin"
        assert generation.usage.calls == 1
        assert generation.usage.prompt_tokens == 34
        assert 5 < generation.usage.completion_tokens <= 30
        assert generation.usage.cost == 0
        assert generation.latency > 0

    async def test_the_token_limit_is_a_finish_of_its_own(self, model: LocalModel) -> None:
        generation = await model.generate(FRUITS, Params(temperature=0, max_tokens=3))
        assert generation.completions[0].finish == "length"
        assert generation.usage.completion_tokens == 3

    @pytest.mark.weights
    async def test_stop_strings_end_the_text_before_them(self, model: LocalModel) -> None:
        generation = await model.generate(FRUITS, Params(temperature=0, max_tokens=30, stop=("\n2",)))
        assert generation.text == "1. Bananas"
        assert generation.completions[0].finish == "stop"

    @pytest.mark.weights
    async def test_no_temperature_leaves_the_choice_to_the_engine(self, model: LocalModel) -> None:
        generation = await model.generate(FRUITS, Params(max_tokens=3, top_p=0.5))
        assert generation.usage.completion_tokens <= 3

    async def test_an_assistant_message_at_the_end_is_continued(self, model: LocalModel) -> None:
        prefilled = [*FRUITS, Message("assistant", "1. Bananas\n2.")]
        generation = await model.generate(prefilled, Params(temperature=0, max_tokens=3))
        assert generation.text.startswith(" ")


@needs_weights
@pytest.mark.weights
class TestSeeds:
    async def test_a_seed_fixes_the_text(self, model: LocalModel) -> None:
        params = Params(temperature=1, max_tokens=8, seed=7)
        first, again = [(await model.generate(FRUITS, params)).text for _ in range(2)]
        other = (await model.generate(FRUITS, Params(temperature=1, max_tokens=8, seed=8))).text
        assert first == again != other

    async def test_the_ith_of_n_completions_has_the_seed_plus_i(self, model: LocalModel) -> None:
        many = await model.generate(FRUITS, Params(temperature=1, max_tokens=6, seed=7, n=6))
        single = [
            (await model.generate(FRUITS, Params(temperature=1, max_tokens=6, seed=seed))).text for seed in range(7, 13)
        ]
        assert [completion.text for completion in many.completions] == single
        assert many.usage.prompt_tokens == 34
        assert 6 < many.usage.completion_tokens <= 36

    async def test_large_and_negative_seeds_are_seeds(self, model: LocalModel) -> None:
        for seed in (2**32 - 1, 2**63, -1):
            params = Params(temperature=1, max_tokens=6, seed=seed)
            texts = {(await model.generate(FRUITS, params)).text for _ in range(3)}
            assert len(texts) == 1

    async def test_neighbours_and_cached_prefixes_do_not_change_a_bit(self, model: LocalModel) -> None:
        params = Params(temperature=0, max_tokens=6, logprobs=2)
        rules = Message("system", "You answer in a few words and never say more than is asked of you.")
        questions = [[rules, Message("user", f"What is {i} plus one? " + "Think about it. " * i)] for i in (1, 2, 5, 9)]
        alone = [(await model.generate(question, params)).completions for question in questions]
        noise = [model.generate([rules, Message("user", f"Say {i}.")], Params(max_tokens=i, seed=i)) for i in (3, 9)]
        together, _ = await asyncio.gather(
            asyncio.gather(*(model.generate(question, params) for question in reversed(questions))),
            asyncio.gather(*noise),
        )
        assert [generation.completions for generation in reversed(together)] == alone


@needs_weights
class TestLogprobs:
    async def test_greedy_decoding_reports_the_real_distribution(self, model: LocalModel) -> None:
        params = Params(temperature=0, max_tokens=4, logprobs=5)
        (completion,) = (await model.generate(FRUITS, params)).completions
        assert completion.logprobs is not None
        first = completion.logprobs[0]
        assert first.token == first.top[0][0] == "1"
        assert first.logprob == first.top[0][1]
        assert len(first.top) == 5
        assert [logprob for _, logprob in first.top] == sorted((p for _, p in first.top), reverse=True)
        assert 0.3 < sum(math.exp(logprob) for _, logprob in first.top) < 1
        sampled = await model.generate(FRUITS, Params(temperature=2, seed=1, max_tokens=1, logprobs=5))
        assert sampled.completions[0].logprobs is not None
        assert sampled.completions[0].logprobs[0].top == first.top

    @pytest.mark.weights
    async def test_tokens_held_back_for_a_stop_string_keep_their_names(self, model: LocalModel) -> None:
        params = Params(temperature=0, max_tokens=30, stop=("\n3",), logprobs=2)
        (completion,) = (await model.generate(FRUITS, params)).completions
        assert completion.logprobs is not None
        assert "".join(token.token for token in completion.logprobs) == completion.text
        assert "\n" in [token.token for token in completion.logprobs]

    @pytest.mark.weights
    async def test_several_completions_have_their_own(self, model: LocalModel) -> None:
        generation = await model.generate(FRUITS, Params(temperature=1, seed=7, max_tokens=4, n=2, logprobs=1))
        counts = [len(completion.logprobs or ()) for completion in generation.completions]
        assert sum(counts) == generation.usage.completion_tokens


@needs_weights
class TestSchemas:
    async def test_the_text_satisfies_the_schema_in_one_spelling(self, model: LocalModel) -> None:
        params = Params(temperature=1, seed=3, max_tokens=60, schema=RATING)
        text = (await model.generate([Message("user", "Rate this film in JSON.")], params)).text
        value = json.loads(text)
        assert 1 <= value["rating"] <= 5
        assert text == json.dumps(value, ensure_ascii=False)

    @pytest.mark.parametrize(
        ("schema", "reason"),
        [
            ({"type": "objekt"}, r"unrecognized type objekt"),
            ({"type": "object", "properties": {"a": 3}}, r"#/properties/a"),
            ({"$ref": "#/nowhere"}, r"cannot resolve"),
            ({"type": "array", "items": {"type": "string"}, "uniqueItems": True}, r"use only types"),
            ({"type": "integer", "minimum": 5, "maximum": 1}, r"use only types"),
        ],
    )
    async def test_a_schema_that_cannot_be_enforced_is_refused(
        self, model: LocalModel, schema: dict[str, object], reason: str, capfd: pytest.CaptureFixture[str]
    ) -> None:
        with pytest.raises(UsageError, match=reason):
            await model.generate(FRUITS, Params(max_tokens=2, schema=schema))
        assert capfd.readouterr() == ("", "")


@needs_weights
@pytest.mark.weights
class TestLimits:
    async def test_a_prompt_beyond_the_context_is_refused_in_numbers(self, model: LocalModel) -> None:
        with pytest.raises(ModelError, match=r"prompt has \d{4} tokens.*room for 1024.*`context`"):
            await model.generate([Message("user", "word " * 1500)], Params(max_tokens=2))

    async def test_the_end_of_the_context_ends_the_text(self) -> None:
        async with LocalModel("builtin", ModelOptions(extra={"context": 64, "slots": 1})) as small:
            # llama.cpp rounds the context up to 256
            prompt = [Message("user", "word " * 190)]
            generation = await small.generate(prompt, Params(temperature=2, seed=1, max_tokens=400))
        assert generation.completions[0].finish == "length"
        assert generation.usage.tokens <= 257

    async def test_a_cancelled_request_frees_its_slots(self, model: LocalModel) -> None:
        long = Params(temperature=1.2, seed=1, max_tokens=900, n=4)
        task = asyncio.create_task(model.generate([Message("user", "Tell a long story.")], long))
        await asyncio.sleep(0.2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await model.generate(FRUITS, Params(temperature=0, max_tokens=2, n=4))).text

    async def test_nothing_is_printed(self, capfd: pytest.CaptureFixture[str]) -> None:
        async with LocalModel("builtin", OPTIONS) as quiet:
            await quiet.generate(FRUITS, Params(max_tokens=2))
        assert capfd.readouterr() == ("", "")

    async def test_a_closed_model_says_so(self) -> None:
        closed = LocalModel("builtin", OPTIONS)
        await closed.aclose()
        with pytest.raises(UsageError, match="closed"):
            await closed.generate(FRUITS, Params())

    def test_one_model_serves_several_event_loops(self, model: LocalModel) -> None:
        async def several() -> list[str]:
            ask = [model.generate(FRUITS, Params(temperature=0, max_tokens=2)) for _ in range(6)]
            return [generation.text for generation in await asyncio.gather(*ask)]

        assert asyncio.run(several()) == asyncio.run(several())


@needs_weights
class TestLoading:
    def test_the_fingerprint_names_file_and_engine(self, model: LocalModel) -> None:
        fingerprint = model.fingerprint()
        assert fingerprint["sha256"] == weights.RECOMMENDED["builtin"].sha256
        assert fingerprint["file"].endswith(".gguf")
        assert fingerprint["engine"].startswith("xllamacpp 20")
        assert fingerprint["context"] == 1024
        assert LocalModel.free
        assert model.features == {"likelihood", "logprobs", "schema", "seed"}

    @pytest.mark.weights
    async def test_a_file_works_by_path(self) -> None:
        path = weights.installed("builtin")
        async with LocalModel(str(path), OPTIONS) as model:
            assert model.spec == f"local/{path}"
            assert (await model.generate(FRUITS, Params(temperature=0, max_tokens=2))).text

    async def test_a_damaged_file_is_reported_in_one_sentence(
        self, tmp_path: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        damaged = tmp_path / "damaged.gguf"
        damaged.write_bytes(b"GGUF" + bytes(100))
        async with LocalModel(str(damaged), OPTIONS) as model:
            with pytest.raises(UsageError, match=r"cannot load .*damaged"):
                await model.generate(FRUITS, Params())
        assert capfd.readouterr() == ("", "")


def test_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert "[local]'" in str(LocalModel.unavailable())
    with pytest.raises(MissingExtraError):
        LocalModel("builtin", OPTIONS)


@pytest.mark.skipif(importlib.util.find_spec("xllamacpp") is None, reason="needs [local]'")
class TestMistakes:
    def test_missing_weights_name_the_command(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("EVENHAND_CACHE", str(tmp_path))
        monkeypatch.setattr(weights, "_in_package", lambda _: None)
        with pytest.raises(UsageError, match="evenhand models pull builtin"):
            LocalModel("builtin", OPTIONS)

    def test_an_unknown_name_lists_the_known_ones(self) -> None:
        with pytest.raises(UsageError, match=r"builtin.*local/path/to/model\.gguf"):
            LocalModel("smollm9", OPTIONS)

    def test_a_missing_file_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match=r"no file .*missing\.gguf"):
            LocalModel(str(tmp_path / "missing.gguf"), OPTIONS)

    def test_another_format_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "model.gguf").write_bytes(b"PK\3\4")
        with pytest.raises(UsageError, match="not a GGUF file"):
            LocalModel(str(tmp_path / "model.gguf"), OPTIONS)

    @pytest.mark.parametrize("extra", [{"slots": 0}, {"slots": 17}, {"context": "big"}, {"threads": 0}])
    def test_options_are_checked(self, extra: dict[str, object], tmp_path: Path) -> None:
        (tmp_path / "model.gguf").write_bytes(b"GGUF")
        with pytest.raises(UsageError, match=f"option {next(iter(extra))} must be"):
            LocalModel(str(tmp_path / "model.gguf"), ModelOptions(extra=extra))

    def test_concurrency_bounds_the_slots(self, tmp_path: Path) -> None:
        (tmp_path / "model.gguf").write_bytes(b"GGUF")
        path = str(tmp_path / "model.gguf")
        assert LocalModel(path, ModelOptions(concurrency=3)).slots == 3
        assert LocalModel(path, ModelOptions()).slots == local.DEFAULT_SLOTS


def test_a_container_limit_bounds_the_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: "150000 100000\n")
    assert 1 <= local.usable_cores() <= 2
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: "max 100000\n")
    assert local.usable_cores() >= 1
