"""What training leaves out because it costs time and changes no number."""

from typing import Any

import pytest

from evenhand.training.chat import Encoded
from evenhand.training.options import SFTOptions

torch: Any = pytest.importorskip("torch", reason="needs pip install 'evenhand[train]'")
transformers: Any = pytest.importorskip("transformers", reason="needs pip install 'evenhand[train]'")
pytest.importorskip("peft", reason="needs pip install 'evenhand[train]'")

from evenhand.training import gradients, losses, models  # noqa: E402 - they need torch
from evenhand.training.reward import RewardModel  # noqa: E402
from evenhand.training.rollout import Rollout, logprobs_and_entropies  # noqa: E402

HERE, SHORTER = models.Machine("cpu", "float32"), models.Machine("cpu", "bfloat16")
ROWS = [Encoded((2, 5, 4), (6, 1)), Encoded((2, 5, 6, 7, 8, 4), (9, 10, 11, 12, 1))]


def inputs_of(model: Any, seen: list[Any]) -> None:
    model.register_forward_pre_hook(lambda _module, _given, named: seen.append(named), with_kwargs=True)


def adapted_gradients(tiny: str, at: models.Machine, *, prepared: bool) -> tuple[Any, list[Any]]:
    """Return the log probabilities of two answers and the gradients of all adapters."""
    torch.manual_seed(0)
    model = models.with_adapters(models.load_causal(tiny, at, trained=False), 4)
    for name, weight in models.trainable(model).items():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, 0, 0.1)
    if prepared:
        models.prepare(model, SFTOptions.model_construct(gradient_checkpointing=False), at)
    chat = models.load_chat(tiny, model)
    logprobs = losses.answer_logprobs(model, chat, ROWS, at)
    (-logprobs.sum()).backward()
    return logprobs.detach(), [each.grad for each in models.trainable(model).values()]


def test_adapters_have_the_gradients_that_peft_has(tiny: str):
    (plain, expected), (fast, found) = (adapted_gradients(tiny, HERE, prepared=each) for each in (False, True))

    torch.testing.assert_close(fast, plain)
    assert all(each.abs().sum() > 0 for each in expected)
    torch.testing.assert_close(found, expected)


def test_adapters_take_bfloat16_as_it_comes_and_err_no_more_than_peft(tiny: str):
    _, exact = adapted_gradients(tiny, HERE, prepared=False)

    def error(prepared: bool) -> float:
        _, found = adapted_gradients(tiny, SHORTER, prepared=prepared)
        assert {each.dtype for each in found} == {torch.float32}
        return sum((one - two).norm().item() for one, two in zip(found, exact, strict=True))

    assert 0 < error(prepared=True) < 1.1 * error(prepared=False)


def test_adapters_that_are_off_change_nothing(tiny: str):
    plain = models.load_causal(tiny, HERE, trained=False)
    model = models.with_adapters(models.load_causal(tiny, HERE, trained=False), 4)
    for name, weight in models.trainable(model).items():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, 0, 0.1)
    models.prepare(model, SFTOptions.model_construct(gradient_checkpointing=False), HERE)
    chat = models.load_chat(tiny, plain)
    expected = losses.answer_logprobs(plain, chat, ROWS, HERE).tolist()

    with models.as_reference(model, None) as reference:
        assert losses.answer_logprobs(reference, chat, ROWS, HERE).tolist() == expected
    assert losses.answer_logprobs(model, chat, ROWS, HERE).tolist() != expected


def test_divergences_are_those_of_autograd(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(gradients, "_CHUNK", 2)
    torch.manual_seed(0)
    target, weights = torch.randn(5, 7), torch.rand(5)
    one, two = (torch.randn(5, 7, generator=torch.Generator().manual_seed(1), requires_grad=True) for _ in range(2))
    ours = gradients.Divergences.apply(one, target)
    theirs = (target.softmax(-1) * (target.log_softmax(-1) - two.log_softmax(-1))).sum(-1)

    for each in (ours, theirs):
        (each * weights).sum().backward()

    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(one.grad, two.grad)


def test_padding_at_the_end_needs_no_mask(tiny: str):
    model, seen = models.load_causal(tiny, HERE, trained=True), list[Any]()
    chat = models.load_chat(tiny, model)
    alone = [losses.answer_logprobs(model, chat, [row], HERE).sum().item() for row in ROWS]
    inputs_of(model, seen)

    both = losses.answer_logprobs(model, chat, ROWS, HERE)

    assert "attention_mask" not in seen[0]
    assert both.tolist() == pytest.approx(alone, rel=1e-5)


def test_rows_that_share_a_line_do_not_see_each_other(tiny: str):
    model = models.load_causal(tiny, HERE, trained=True)
    chat = models.load_chat(tiny, model)
    rows = [*ROWS, Encoded((2, 7), (8, 1)), Encoded((3,), (5, 9, 1)), Encoded((), (4, 6, 1))]

    packed = chat.pack(rows, "cpu")

    assert packed.ids.shape == (3, 11)  # padded: five lines
    expected: list[float] = []
    for row in rows:
        ids = [*row.prompt, *row.answer]
        logprobs = model(torch.tensor([ids])).logits[0].log_softmax(-1)
        told = range(max(1, len(row.prompt)), len(ids))  # nothing comes before the first token of all
        expected.append(sum(logprobs[place - 1, ids[place]].item() for place in told))
    assert losses.answer_logprobs(model, chat, rows, HERE).tolist() == pytest.approx(expected, rel=1e-5)


def test_rows_of_a_model_that_does_not_tell_them_apart_have_lines_of_their_own(tiny: str):
    model = models.load_causal(tiny, HERE, trained=True)
    config = transformers.OPTConfig(
        vocab_size=model.config.vocab_size,
        hidden_size=16,
        word_embed_proj_dim=16,
        ffn_dim=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=64,
        dropout=0.0,
    )
    other = transformers.OPTForCausalLM(config)
    chat = models.load_chat(tiny, other)
    rows = [*ROWS, Encoded((2, 7), (8, 1)), Encoded((3,), (5, 9, 1))]

    assert other.training
    assert chat.pack(rows, "cpu").ids.shape[0] == len(rows)
    assert models.load_chat(tiny, model).pack(rows, "cpu").ids.shape[0] < len(rows)
    alone = [losses.answer_logprobs(other, chat, [row], HERE).item() for row in rows]
    assert losses.answer_logprobs(other, chat, rows, HERE).tolist() == pytest.approx(alone, rel=1e-5)


def test_nor_does_a_reward_model(tiny: str):
    causal = models.load_causal(tiny, HERE, trained=True)
    chat = models.load_chat(tiny, causal)
    reward, seen = RewardModel(models.classifier_of(causal, chat, 0), chat, HERE), list[Any]()
    alone = [reward.outputs([row]).item() for row in ROWS]
    inputs_of(reward.model.base_model, seen)

    assert reward.outputs(ROWS).flatten().tolist() == pytest.approx(alone, rel=1e-5)
    assert "attention_mask" not in seen[0]


def test_entropies_have_no_gradient_and_nothing_is_computed_after_the_end(tiny: str):
    model = models.load_causal(tiny, HERE, trained=True)
    ids = torch.tensor([[2, 5, 4, 6, 1, 0], [2, 6, 4, 7, 8, 1]])
    answer = torch.tensor([[1.0, 1, 0], [1, 1, 1]])
    mask = torch.cat([torch.ones(2, 3), answer], 1).long()

    logprobs, entropies = logprobs_and_entropies(
        model, Rollout(ids, mask, answer, ["", ""], [True, True], answer), HERE
    )

    assert logprobs.requires_grad
    assert not entropies.requires_grad
    assert (logprobs[0, 2], entropies[0, 2]) == (0, 0)
