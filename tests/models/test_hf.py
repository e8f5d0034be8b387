"""The transformers backend, on a tiny random model with a tiny tokenizer, both made here."""

import asyncio
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evenhand.core.errors import MissingExtraError, ModelError, UsageError
from evenhand.core.types import Message, Params
from evenhand.models import weights
from evenhand.models.base import ModelOptions
from evenhand.models.hf import HFModel
from evenhand.models.hf.decoding import DynamicDecoder
from evenhand.models.hf.tuning import NAME, use_float32_head
from evenhand.models.load import load_model
from support.tiny import make_model

torch: Any = pytest.importorskip("torch", reason="needs pip install 'evenhand[hf]'")
transformers: Any = pytest.importorskip("transformers", reason="needs pip install 'evenhand[hf]'")

QUESTIONS = [
    [Message("user", "cat dog")],
    [Message("system", "tree sun moon"), Message("user", "river cat cat dog tree sun")],
    [Message("user", "moon")],
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    make_model(folder)
    return folder


@pytest.fixture(scope="module")
def model(folder: Path) -> Iterator[HFModel]:
    model = HFModel(str(folder), ModelOptions(extra={"batch": 4}))
    yield model
    asyncio.run(model.aclose())


async def texts(model: HFModel, params: Params) -> list[str]:
    """The answers to all questions, asked at once."""
    return [g.text for g in await asyncio.gather(*(model.generate(question, params) for question in QUESTIONS))]


async def test_greedy_is_what_transformers_itself_generates(model: HFModel) -> None:
    generation = await model.generate(QUESTIONS[1], Params(max_tokens=12))
    ids = model._encode(QUESTIONS[1])
    own = model.model.generate(
        torch.tensor([ids]), attention_mask=torch.ones(1, len(ids)), max_new_tokens=12, do_sample=False, pad_token_id=0
    )
    assert generation.text == model._text(own[0, len(ids) :].tolist())
    assert generation.usage.prompt_tokens == len(ids)
    assert generation.usage.completion_tokens == own.shape[1] - len(ids)
    assert generation.model == model.spec


@pytest.mark.parametrize("params", [Params(max_tokens=10), Params(temperature=1.3, top_p=0.9, seed=5, max_tokens=10)])
async def test_a_row_is_the_same_alone_and_in_a_batch(model: HFModel, params: Params) -> None:
    alone = [(await model.generate(question, params)).text for question in QUESTIONS]
    assert await texts(model, params) == alone


async def test_more_requests_than_a_batch_holds_are_all_answered(model: HFModel) -> None:
    answers = await asyncio.gather(*(model.generate(QUESTIONS[i % 3], Params(max_tokens=3)) for i in range(11)))
    assert len({generation.text for generation in answers}) <= 3


async def test_a_batch_prefers_requests_with_the_same_token_limit(
    model: HFModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches: list[list[int]] = []
    compute = model._compute

    def observed(rows: list[Any]) -> None:
        batches.append([row.params.max_tokens for row in rows])
        compute(rows)

    monkeypatch.setattr(model, "_compute", observed)
    limits = [2, 5, 2, 5, 2, 5, 2, 7]
    await asyncio.gather(*(model.generate(QUESTIONS[0], Params(max_tokens=limit)) for limit in limits))
    assert batches == [[2, 2, 2, 2], [5, 5, 5, 7]]


async def test_a_seed_fixes_the_text_and_n_counts_it_up(model: HFModel) -> None:
    many = await model.generate(QUESTIONS[0], Params(temperature=1.5, seed=3, max_tokens=8, n=3))
    single = [
        (await model.generate(QUESTIONS[0], Params(temperature=1.5, seed=seed, max_tokens=8))).text
        for seed in (3, 4, 5)
    ]
    assert [completion.text for completion in many.completions] == single
    assert len(set(single)) > 1
    assert many.usage.calls == 1


async def test_without_a_seed_sampling_varies(model: HFModel) -> None:
    generation = await model.generate(QUESTIONS[0], Params(temperature=3, max_tokens=12, n=6))
    assert len({completion.text for completion in generation.completions}) > 1


async def test_a_tiny_top_p_is_greedy(model: HFModel) -> None:
    assert await texts(model, Params(temperature=1, top_p=1e-9, seed=1, max_tokens=6)) == await texts(
        model, Params(temperature=0, max_tokens=6)
    )


async def test_sampling_follows_the_distribution(model: HFModel) -> None:
    params = Params(temperature=1, seed=0, max_tokens=1, n=400, logprobs=3)
    completions = (await model.generate(QUESTIONS[0], params)).completions
    first = [completion.logprobs[0] for completion in completions if completion.logprobs]
    token, logprob = first[0].top[0]
    share = sum(each.token == token for each in first) / len(first)
    assert abs(share - math.exp(logprob)) < 0.1


async def test_logprobs_are_those_of_the_raw_logits(model: HFModel) -> None:
    params = Params(temperature=2, seed=1, max_tokens=3, logprobs=40)
    (completion,) = (await model.generate(QUESTIONS[0], params)).completions
    assert completion.logprobs is not None
    assert sum(math.exp(logprob) for _, logprob in completion.logprobs[0].top) == pytest.approx(1, abs=1e-5)
    expected = model.next_token_logits([model._encode(QUESTIONS[0])])[0].log_softmax(-1)
    assert completion.logprobs[0].top[0][1] == pytest.approx(float(expected.max()), abs=1e-5)
    assert completion.logprobs[0].logprob in [logprob for _, logprob in completion.logprobs[0].top]


async def test_a_stop_string_ends_the_text_before_it(model: HFModel) -> None:
    whole = await model.generate(QUESTIONS[0], Params(max_tokens=8))
    words = whole.text.split()
    stop = next(word for word in words[2:] if word not in words[:2])
    cut = await model.generate(QUESTIONS[0], Params(max_tokens=8, stop=("absent", stop), logprobs=1))
    assert cut.text == whole.text[: whole.text.index(stop)]
    assert cut.completions[0].finish == "stop"
    assert [token.token for token in cut.completions[0].logprobs or ()] == cut.text.split()


async def test_an_end_token_stops_and_the_limit_is_a_length(model: HFModel) -> None:
    many = await model.generate(QUESTIONS[0], Params(temperature=3, seed=1, n=12))
    finishes = {completion.finish for completion in many.completions}
    assert finishes <= {"stop", "length"}
    assert "stop" in finishes
    short = await model.generate(QUESTIONS[0], Params(max_tokens=1))
    assert short.usage.completion_tokens == 1


async def test_an_assistant_message_at_the_end_is_continued(model: HFModel) -> None:
    begun = [*QUESTIONS[0], Message("assistant", "tree sun")]
    assert model._encode(begun) == model._encode(QUESTIONS[0]) + model.tokenizer("tree sun")["input_ids"]


def test_next_token_logits_do_not_depend_on_padding(model: HFModel) -> None:
    prompts = [[5, 6], [5, 6, 7, 8, 9], [10]]
    together = model.next_token_logits(prompts)
    assert together.shape == (3, 40)
    for prompt, row in zip(prompts, together, strict=True):
        assert torch.allclose(model.next_token_logits([prompt])[0], row, atol=1e-5)


async def test_a_prompt_beyond_the_context_fails_alone(model: HFModel) -> None:
    long = model.generate([Message("user", "cat " * 70)], Params(max_tokens=2))
    good = model.generate(QUESTIONS[0], Params(max_tokens=2))
    failed, fine = await asyncio.gather(long, good, return_exceptions=True)
    assert isinstance(failed, ModelError)
    assert "73 tokens" in str(failed)
    assert "takes 64" in str(failed)
    assert not isinstance(fine, BaseException)


async def test_what_the_template_refuses_is_a_model_error(model: HFModel) -> None:
    with pytest.raises(ModelError, match="one system"):
        await model.generate([Message("user", "cat"), Message("system", "dog")], Params(max_tokens=2))


async def test_a_cancelled_request_leaves_the_batch(model: HFModel) -> None:
    task = asyncio.create_task(model.generate(QUESTIONS[0], Params(max_tokens=40)))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await model.generate(QUESTIONS[0], Params(max_tokens=2))).text


async def test_a_cancelled_request_that_waits_is_not_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with HFModel(str(folder), ModelOptions(extra={"batch": 1})) as model:
        read: list[int] = []
        forward = model._forward

        def noted(ids: Any, *rest: Any) -> Any:
            read.append(ids.shape[1])
            return forward(ids, *rest)

        monkeypatch.setattr(model, "_forward", noted)
        first = asyncio.create_task(model.generate(QUESTIONS[0], Params(max_tokens=40)))
        others = [asyncio.create_task(model.generate(QUESTIONS[1], Params(max_tokens=2))) for _ in range(3)]
        with model._computing:  # nothing is read before the others are cancelled
            await asyncio.sleep(0.05)
            for each in others:
                each.cancel()
            await asyncio.gather(*others, return_exceptions=True)
        await first
        assert read == [len(model._encode(QUESTIONS[0]))]


async def test_a_base_model_needs_to_be_told(tmp_path: Path) -> None:
    make_model(tmp_path, template=None)
    async with HFModel(str(tmp_path), ModelOptions()) as base:
        with pytest.raises(UsageError, match=r"no chat template.*template=none"):
            await base.generate(QUESTIONS[0], Params(max_tokens=2))
    async with HFModel(str(tmp_path), ModelOptions(extra={"template": "none"})) as raw:
        generation = await raw.generate(QUESTIONS[0], Params(max_tokens=2))
    assert generation.usage.prompt_tokens == 2


def test_the_fingerprint_changes_with_the_files(
    tmp_path: Path, folder: Path, model: HFModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVENHAND_CACHE", str(tmp_path))
    before = model.fingerprint()
    assert "transformers" in before["engine"]
    (folder / "note.txt").write_text("another adapter")
    after = model.fingerprint()
    (folder / "note.txt").unlink()
    assert before["sha256"] != after["sha256"]
    assert model.features == {"likelihood", "logits", "logprobs", "seed"}
    assert HFModel.free


async def test_a_closed_model_says_so(folder: Path) -> None:
    model = HFModel(str(folder), ModelOptions())
    await model.aclose()
    with pytest.raises(UsageError, match="closed"):
        await model.generate(QUESTIONS[0], Params())


@pytest.mark.parametrize("name", ["/no/such/folder", "missing.gguf", "one-word"])
def test_a_missing_path_is_one_sentence(name: str) -> None:
    with pytest.raises(UsageError, match=r"no model folder or GGUF file.*hf/OWNER/NAME"):
        HFModel(name, ModelOptions())


async def test_a_folder_without_a_model_is_one_sentence(tmp_path: Path) -> None:
    async with HFModel(str(tmp_path), ModelOptions()) as empty:
        with pytest.raises(UsageError, match="transformers cannot load"):
            await empty.generate(QUESTIONS[0], Params())


async def test_an_unreachable_hub_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: object, **__: object) -> None:
        raise OSError("We couldn't connect to 'https://huggingface.co' to load the files.\nCheck your connection.")

    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", unreachable)
    async with HFModel("owner/model", ModelOptions()) as model:
        with pytest.raises(UsageError, match=r"the hub may not be reachable.*couldn't connect[^\n]*$"):
            await model.generate(QUESTIONS[0], Params())


def test_missing_packages(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert "[hf]'" in str(HFModel.unavailable())
    with pytest.raises(MissingExtraError):
        HFModel(str(folder), ModelOptions())


@pytest.mark.weights
async def test_the_builtin_model_says_the_same_in_both_engines() -> None:
    path = weights.installed("builtin")
    if path is None:
        pytest.skip("the built-in weights are not installed: evenhand models pull builtin")
    pytest.importorskip("xllamacpp", reason="needs pip install 'evenhand[local]'")
    question = [Message("user", "Name three fruits.")]
    params = Params(temperature=0, max_tokens=4, logprobs=3)
    async with HFModel(str(path), ModelOptions()) as hf:
        ours = await hf.generate(question, params)
    async with load_model("local/builtin", ModelOptions(extra={"slots": 1, "context": 512})) as local:
        theirs = await local.generate(question, params)
    assert ours.text == theirs.text
    assert ours.usage == theirs.usage


async def test_many_prompts_are_read_in_pieces_with_the_same_answers(
    model: HFModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    params = Params(max_tokens=8)
    whole = await texts(model, params)
    monkeypatch.setattr("evenhand.models.hf._PREFILL_TOKENS", 1)
    assert await texts(model, params) == whole


async def test_rows_that_end_early_change_nothing_for_the_others(model: HFModel) -> None:
    limits = [3, 12, 5, 9]
    alone = [(await model.generate(QUESTIONS[1], Params(max_tokens=each))).text for each in limits]
    together = await asyncio.gather(*(model.generate(QUESTIONS[1], Params(max_tokens=each)) for each in limits))
    assert [each.text for each in together] == alone


@pytest.mark.parametrize("params", [Params(), Params(temperature=1.3, top_p=0.9, seed=5)])
async def test_those_that_wait_join_a_running_batch_with_the_same_answers(
    folder: Path, params: Params, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evenhand.models.hf._JOIN_EVERY", 2)
    limits = [30, 4, 9, 5, 12, 6, 1, 3, 20, 7, 11, 2]  # more than the batch takes, prompts of three lengths
    asked = [(QUESTIONS[i % 3], replace(params, max_tokens=limit)) for i, limit in enumerate(limits)]
    async with HFModel(str(folder), ModelOptions(extra={"batch": 4})) as model:
        alone = [(await model.generate(*each)).text for each in asked]
        started: list[int] = []
        widths: list[int] = []
        compute, forward = model._compute, model._forward

        def counted(rows: list[Any]) -> None:
            started.append(len(rows))
            compute(rows)

        def read(ids: Any, *rest: Any) -> Any:
            widths.append(len(ids))
            return forward(ids, *rest)

        monkeypatch.setattr(model, "_compute", counted)
        monkeypatch.setattr(model, "_forward", read)
        together = await asyncio.gather(*(model.generate(*each) for each in asked))
    assert [each.text for each in together] == alone
    assert started == [4]  # the first has 30 tokens, and the others came and went beside it
    assert len(widths) > 3
    assert max(widths) <= 4


async def test_what_joins_and_does_not_fit_is_computed_later(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evenhand.models.hf._JOIN_EVERY", 2)
    asked = [(QUESTIONS[i % 3], Params(max_tokens=limit)) for i, limit in enumerate([20, 3, 20, 3, 8, 9])]
    async with HFModel(str(folder), ModelOptions(extra={"batch": 4})) as model:
        alone = [(await model.generate(*each)).text for each in asked]
        joined = model._joined
        refused: list[int] = []

        def full(decoder: Any, kept: Any, rows: Any) -> Any:
            if rows and not refused:
                refused.append(len(rows))
                raise OutOfMemoryError
            return joined(decoder, kept, rows)

        monkeypatch.setattr(model, "_joined", full)
        together = await asyncio.gather(*(model.generate(*each) for each in asked))
        assert refused == [2]
        assert model.batch == 2
    assert [each.text for each in together] == alone


def test_grouped_attention_is_attention(model: HFModel) -> None:
    config = model.model.config
    assert config._attn_implementation == NAME
    assert config.num_key_value_heads < config.num_attention_heads
    ids, mask = model._padded([[5, 6, 7], [8]])
    with torch.inference_mode():
        found = []
        for implementation in (NAME, "eager"):
            model.model.set_attn_implementation(implementation)
            positions = (mask.cumsum(-1) - 1).clamp(min=0)
            _, cache = model._forward(ids, mask, positions)
            following = DynamicDecoder(model.model, cache, mask, positions, max_length=64)
            found.append(following.next(torch.tensor([[9], [4]])))
        model.model.set_attn_implementation(NAME)
    assert torch.allclose(*found, atol=1e-5)
    assert not torch.allclose(found[0][0], found[0][1], atol=1e-2)


class OutOfMemoryError(RuntimeError):
    """Has the name of torch's own."""


async def test_batches_that_do_not_fit_are_halved(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    params = Params(temperature=1.0, max_tokens=6, seed=3)
    async with HFModel(str(folder), ModelOptions(extra={"batch": 4})) as model:
        fitting = await texts(model, params)
        forward = model._forward

        def short_of_memory(ids: Any, *rest: Any) -> Any:
            if len(ids) > 1:
                raise OutOfMemoryError
            return forward(ids, *rest)

        monkeypatch.setattr(model, "_forward", short_of_memory)
        assert await texts(model, params) == fitting
        assert model.batch == 1


async def test_a_request_that_never_fits_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with HFModel(str(folder), ModelOptions()) as model:

        def full(*_: Any) -> Any:
            raise OutOfMemoryError

        monkeypatch.setattr(model, "_forward", full)
        with pytest.raises(ModelError, match="ran out of memory with a single request"):
            await model.generate(QUESTIONS[0], Params(max_tokens=2))


def test_logits_of_small_weights_are_not_rounded(folder: Path) -> None:
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).eval()
    ids = torch.tensor([[5, 6, 7]])
    with torch.inference_mode():
        rounded = model(ids).logits
        use_float32_head(model)
        exact = model(ids).logits
    assert (rounded.dtype, exact.dtype) == (torch.bfloat16, torch.float32)
    assert torch.allclose(rounded.float(), exact, atol=0.05)
    assert not torch.equal(rounded.float(), exact)
    assert model.get_input_embeddings().weight.dtype == torch.bfloat16


def test_answers_of_an_adapter_are_not_reused_in_other_runs_because_its_base_may_change(tmp_path: Path) -> None:
    """Its folder does not hold the weights below it, so the sum of its files does not tell which these are."""
    (tmp_path / "whole").mkdir()
    (tmp_path / "adapter").mkdir()
    (tmp_path / "adapter" / "adapter_config.json").write_text('{"base_model_name_or_path": "../base"}')

    fixed = [HFModel(str(tmp_path / name), ModelOptions()).fixed for name in ("whole", "adapter")]

    assert fixed == [True, False]
