"""Steps in fixed shapes, which GPUs record, give what transformers gives; here they are computed unrecorded."""

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest

from evenhand.models.hf import steps as hf_steps
from evenhand.models.hf.steps import FixedSteps, GrowingSteps, Steps, can_be_fixed, steps
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
    monkeypatch.setattr(hf_steps, "_AHEAD", 4)  # so that memory is set apart three times
    monkeypatch.setattr(hf_steps, "_ALIGNED", 1)
    if tuned:
        tune(model)
    assert torch.allclose(written(model, growing), written(model, fixed), atol=1e-5)


def test_what_is_not_written_yet_is_not_seen(model: Any) -> None:
    mask, cache = read(model)
    steps = FixedSteps(model, cache, mask, positions(mask), room=64, most=40)
    for layer in cache.layers:
        layer.keys[:, :, mask.shape[1] :] = 1e3
        layer.values[:, :, mask.shape[1] :] = 1e3
    mask, cache = read(model)
    other = FixedSteps(model, cache, mask, positions(mask), room=64, most=40)
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

    def recordable(model: Any, cache: Any, mask: Any) -> Steps:
        return FixedSteps(model, cache, mask, positions(mask), room=64, most=10, recorded=True)

    assert torch.allclose(written(model, growing), written(model, recordable), atol=1e-5)
    assert [each.message.partition(": ")[2] for each in caplog.records] == ["operation not permitted"]


def test_steps_of_other_models_grow(model: Any) -> None:
    mask, cache = read(model)
    assert isinstance(steps(model, cache, mask, positions(mask), room=64, most=9), FixedSteps)
    mask, cache = read(model)
    model.set_attn_implementation("eager")
    assert isinstance(steps(model, cache, mask, positions(mask), room=64, most=9), GrowingSteps)
    model.set_attn_implementation("sdpa")
    sliding = transformers.DynamicCache(config=transformers.MistralConfig(**SIZES, sliding_window=4))
    model(IDS, attention_mask=MASK, past_key_values=sliding, use_cache=True)
    assert not can_be_fixed(model, sliding)


def written(model: Any, begin: Any) -> Any:
    """The logits of ten steps, after four of which a line ends and another is doubled."""
    mask, cache = read(model)
    following: Steps = begin(model, cache, mask)
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


def growing(model: Any, cache: Any, mask: Any) -> Steps:
    return GrowingSteps(model, cache, mask, positions(mask), room=64)


def fixed(model: Any, cache: Any, mask: Any) -> Steps:
    return FixedSteps(model, cache, mask, positions(mask), room=64, most=10)


def read(model: Any) -> tuple[Any, Any]:
    output = model(IDS, attention_mask=MASK, position_ids=positions(MASK), use_cache=True)
    return MASK, output.past_key_values


def positions(mask: Any) -> Any:
    return (mask.cumsum(-1) - 1).clamp(min=0)
