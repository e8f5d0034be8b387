"""Decoding with static shapes gives what transformers gives; CUDA graphs are not captured here."""

from collections.abc import Iterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from evenhand.models.hf import decoding
from evenhand.models.hf.decoding import Decoder, DynamicDecoder, StaticDecoder, decoder, supports_static_cache
from evenhand.models.hf.tuning import tune

torch: Any = pytest.importorskip("torch", reason="needs pip install 'evenhand[hf]'")
transformers: Any = pytest.importorskip("transformers", reason="needs pip install 'evenhand[hf]'")

SIZES: dict[str, Any] = {
    "vocab_size": 40,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "initializer_range": 0.4,
}
IDS = torch.tensor([[0, 0, 5, 6, 7], [1, 2, 3, 4, 5], [0, 0, 0, 0, 8]])
MASK = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1], [0, 0, 0, 0, 1]])


@pytest.fixture(params=["Llama", "Qwen2"])
def model(request: pytest.FixtureRequest) -> Iterator[Any]:
    torch.manual_seed(0)
    config = getattr(transformers, f"{request.param}Config")(**SIZES)
    with torch.inference_mode():
        yield getattr(transformers, f"{request.param}ForCausalLM")(config).eval()


@pytest.mark.parametrize("tuned", [False, True])
def test_fixed_steps_are_those_of_transformers(model: Any, tuned: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "_TOKENS_AHEAD", 4)  # so that room is reserved three times
    monkeypatch.setattr(decoding, "_ALIGNMENT", 1)
    if tuned:
        tune(model)
    assert torch.allclose(written(model, growing), written(model, fixed), atol=1e-5)


def test_what_is_not_written_yet_is_not_seen(model: Any) -> None:
    mask, cache = read(model)
    steps = StaticDecoder(model, cache, mask, positions(mask), max_length=64, max_new_tokens=40)
    for layer in cache.layers:
        layer.keys[:, :, mask.shape[1] :] = 1e3
        layer.values[:, :, mask.shape[1] :] = 1e3
    mask, cache = read(model)
    other = StaticDecoder(model, cache, mask, positions(mask), max_length=64, max_new_tokens=40)
    tokens = torch.tensor([[9], [3], [1]])
    assert torch.equal(steps.next(tokens), other.next(tokens))


def test_steps_that_cannot_be_recorded_are_computed_and_told_once(
    model: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(*_: Any, **__: Any) -> Any:
        raise RuntimeError("operation not permitted\nand much advice")

    monkeypatch.setattr(torch.cuda, "graph", refused)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: None)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: None)
    monkeypatch.setattr(torch.cuda, "stream", lambda _: nullcontext())

    def recordable(model: Any, cache: Any, mask: Any) -> Decoder:
        return StaticDecoder(model, cache, mask, positions(mask), max_length=64, max_new_tokens=10, use_graphs=True)

    assert torch.allclose(written(model, growing), written(model, recordable), atol=1e-5)
    assert [each.message.partition(": ")[2] for each in caplog.records] == ["operation not permitted"]


@pytest.mark.parametrize(("current", "captured"), [(1, True), (0, False)])
def test_graphs_are_of_the_current_device(current: int, captured: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "current_device", lambda: current)
    monkeypatch.setattr(decoding, "supports_static_cache", lambda *_: True)
    monkeypatch.setattr(decoding, "StaticDecoder", lambda *_, use_graphs, **__: use_graphs)
    mask = SimpleNamespace(is_cuda=True, device=torch.device("cuda", 1))

    assert decoder(None, None, mask, None, max_length=64, max_new_tokens=9) is captured


def test_steps_of_other_models_grow(model: Any) -> None:
    mask, cache = read(model)
    assert isinstance(decoder(model, cache, mask, positions(mask), max_length=64, max_new_tokens=9), StaticDecoder)
    mask, cache = read(model)
    model.set_attn_implementation("eager")
    assert isinstance(decoder(model, cache, mask, positions(mask), max_length=64, max_new_tokens=9), DynamicDecoder)
    model.set_attn_implementation("sdpa")
    sliding = transformers.DynamicCache(config=transformers.MistralConfig(**SIZES, sliding_window=4))
    model(IDS, attention_mask=MASK, past_key_values=sliding, use_cache=True)
    assert not supports_static_cache(model, sliding)


@pytest.mark.parametrize("early", [False, True], ids=["longer than the batch", "shorter than the batch"])
def test_what_joins_continues_as_if_it_were_alone(model: Any, early: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StaticDecoder, "_capture", StaticDecoder._step)  # counts are rounded as for graphs
    mask, cache = read(model)
    lines = torch.tensor([0, 1, 2] * 6)
    batch = StaticDecoder(model, cache, mask, positions(mask), max_length=64, max_new_tokens=40, use_graphs=True)
    batch.keep(lines)
    alone = [fixed(model, cache, mask) for mask, cache in (read(model), read(model))]
    tokens = torch.tensor([[9], [3], [1]])
    for _ in range(1 if early else 8):
        batch.next(tokens[lines])
        tokens = alone[0].next(tokens).argmax(-1, keepdim=True)
    left, own = torch.tensor([2]), torch.tensor([1, 0])  # the first of all is the shortest: columns move
    batch.keep(left)
    mask, cache = read(model)
    batch.join(cache, mask, positions(mask), own, max_new_tokens=40)
    assert batch.count == 16
    others = torch.tensor([[9], [3], [1]])
    for _ in range(4):
        given = torch.zeros(batch.count, 1, dtype=torch.long)
        given[:3] = torch.cat([tokens[left], others[own]])
        found = batch.next(given)[:3]
        first, second = alone[0].next(tokens), alone[1].next(others)
        assert torch.allclose(found, torch.cat([first[left], second[own]]), atol=1e-5)
        tokens, others = first.argmax(-1, keepdim=True), second.argmax(-1, keepdim=True)


def written(model: Any, begin: Any) -> Any:
    """The logits of ten steps, after four of which a line ends and another is doubled."""
    mask, cache = read(model)
    following: Decoder = begin(model, cache, mask)
    tokens, found = torch.tensor([[9], [3], [1]]), []
    for step in range(10):
        if step == 4:
            lines = torch.tensor([2, 0, 0, 2])
            following.keep(lines)
            tokens = tokens[lines]
        logits = following.next(tokens)
        found.append(logits.clone())
        tokens = logits.argmax(-1, keepdim=True)
    return torch.cat(found)


def growing(model: Any, cache: Any, mask: Any) -> Decoder:
    return DynamicDecoder(model, cache, mask, positions(mask), max_length=64)


def fixed(model: Any, cache: Any, mask: Any) -> Decoder:
    return StaticDecoder(model, cache, mask, positions(mask), max_length=64, max_new_tokens=10)


def read(model: Any) -> tuple[Any, Any]:
    output = model(IDS, attention_mask=MASK, position_ids=positions(MASK), use_cache=True)
    return MASK, output.past_key_values


def positions(mask: Any) -> Any:
    return (mask.cumsum(-1) - 1).clamp(min=0)
