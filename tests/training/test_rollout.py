"""Roll-outs: the copy that samples is the policy, and no short cut changes an answer."""

import gc
import weakref
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest

from evenhand.core.progress import ignore
from evenhand.core.types import Message
from evenhand.models.hf.decoding import StaticDecoder
from evenhand.training.parallel import Team

torch: Any = pytest.importorskip("torch", reason="needs pip install 'evenhand[train]'")
pytest.importorskip("peft", reason="needs pip install 'evenhand[train]'")
transformers: Any = pytest.importorskip("transformers", reason="needs pip install 'evenhand[train]'")

from evenhand.training import models, policy_copy, rollout  # noqa: E402 - they need torch
from evenhand.training.chat import Chat  # noqa: E402
from evenhand.training.policy_copy import PolicyCopy  # noqa: E402
from evenhand.training.rollout import Rollout, answer_all, logprobs_and_entropies, roll_out  # noqa: E402

HERE = models.Machine("cpu", "float32")
SIZES: dict[str, Any] = {
    "vocab_size": 40,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "bos_token_id": None,
    "eos_token_id": 1,
    "initializer_range": 0.4,
}
COPIED: dict[str, dict[str, Any]] = {
    "Llama": {"num_key_value_heads": 2},
    "Qwen2": {"num_key_value_heads": 1, "tie_word_embeddings": True},
    "Mistral": {"num_key_value_heads": 4, "sliding_window": None},
}
NOT_COPIED: dict[str, dict[str, Any]] = {
    "Mistral": {"num_key_value_heads": 2, "sliding_window": 4},
    "Gemma": {"num_key_value_heads": 2, "head_dim": 8},
}
PROMPTS = [(Message("user", text),) for text in ("w1", "w2 w3 w4", "w1", "w5 w6 w7 w8 w9", "sun", "w2 w3 w4", "moon")]


def model_of(family: str, settings: dict[str, Any]) -> Any:
    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(**SIZES, **settings)
    model = getattr(transformers, f"{family}ForCausalLM")(config).eval()
    for name, weight in model.named_parameters():
        if "bias" in name or "norm" in name:
            torch.nn.init.normal_(weight, 1 if "norm" in name else 0, 0.3)
    return model


def adapted(model: Any) -> Any:
    """A frozen model with adapters that change its answers."""
    policy = models.with_adapters(model, 4)
    for name, weight in policy.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, 0, 0.3)
    return policy


_MOST_TELLING = ("Qwen2", True)
"""Biases, tied embeddings and adapters; `make test` tries this one."""


@pytest.fixture(
    params=[
        pytest.param((family, lora), marks=() if (family, lora) == _MOST_TELLING else pytest.mark.slow)
        for family in COPIED
        for lora in (False, True)
    ],
    ids=str,
)
def policy(request: pytest.FixtureRequest) -> Any:
    family, lora = request.param
    model = model_of(family, COPIED[family])
    return adapted(model) if lora else model


@pytest.fixture
def chat(tiny: str) -> Chat:
    return models.load_chat(tiny, models.load_causal(tiny, HERE, trained=True))


@pytest.fixture
def keeping(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Copies are kept between roll-outs, as on a GPU."""

    def copied(policy: Any, machine: models.Machine) -> PolicyCopy:
        if policy not in policy_copy.kept_copies:
            policy_copy.keep(policy, PolicyCopy(policy, machine))
        found = policy_copy.policy_copy(policy, machine)
        assert found is not None
        return found

    monkeypatch.setattr(rollout, "policy_copy", copied)
    yield


def answers(found: Rollout) -> list[list[int]]:
    return [row[:n] for row, n in zip(found.tokens.tolist(), found.answer.sum(1).int().tolist(), strict=True)]


def generated(policy: Any, chat: Chat, limit: int) -> list[list[int]]:
    """What transformers writes greedily, one prompt at a time."""
    found: list[list[int]] = []
    for prompt in PROMPTS:
        ids = torch.tensor([chat.encode_prompt(prompt, limit)])
        greedy = {"do_sample": False, "max_new_tokens": limit, "pad_token_id": 0, "eos_token_id": 1}
        found.append(policy.generate(input_ids=ids, attention_mask=ids * 0 + 1, **greedy)[0, ids.shape[1] :].tolist())
    return found


def test_greedy_answers_are_those_of_transformers(policy: Any, chat: Chat):
    found = roll_out(policy, chat, PROMPTS, HERE, max_new_tokens=12, temperature=0)

    assert policy_copy.supports(policy)
    assert answers(found) == generated(policy, chat, 12)
    assert found.ended == [1 in row for row in answers(found)]


@pytest.mark.parametrize("family", NOT_COPIED)
def test_other_models_answer_by_themselves(family: str, chat: Chat):
    model = model_of(family, NOT_COPIED[family])

    assert policy_copy.policy_copy(model, HERE) is None
    found = roll_out(model, chat, PROMPTS, HERE, max_new_tokens=12, temperature=0)
    assert answers(found) == generated(model, chat, 12)


@pytest.mark.parametrize("settings", [{"use_dora": True}, {"lora_bias": True}, {"modules_to_save": ["embed_tokens"]}])
def test_other_adapters_are_not_merged(settings: dict[str, Any]):
    import peft

    config = peft.LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM", **settings)
    assert not policy_copy.supports(peft.get_peft_model(model_of("Qwen2", {"num_key_value_heads": 1}), config))


def test_a_team_computes_with_its_shared_policy():
    model = model_of("Llama", COPIED["Llama"])

    assert policy_copy.policy_copy(model, models.Machine("cpu", "float32", Team(0, 2))) is None


def test_without_memory_for_a_copy_the_policy_answers(monkeypatch: pytest.MonkeyPatch, chat: Chat):
    def full(*_: Any) -> None:
        raise torch.OutOfMemoryError

    model = model_of("Llama", COPIED["Llama"])
    expected = generated(model, chat, 6)
    monkeypatch.setattr(PolicyCopy, "refresh", full)

    assert answers(roll_out(model, chat, PROMPTS, HERE, max_new_tokens=6, temperature=0)) == expected


def test_the_copy_has_the_log_probabilities_of_the_policy(policy: Any, chat: Chat):
    torch.manual_seed(1)
    found = roll_out(policy, chat, PROMPTS, HERE, max_new_tokens=6)
    copy = PolicyCopy(policy, HERE)
    positions = (found.mask.cumsum(-1) - 1).clamp(min=0)
    width = found.ids.shape[1] - found.answer.shape[1]

    expected, _ = logprobs_and_entropies(policy, found, HERE)

    for step in range(found.answer.shape[1]):
        read = slice(None, width + step)
        output = copy(input_ids=found.ids[:, read], attention_mask=found.mask[:, read], position_ids=positions[:, read])
        copied = output.logits[:, -1].log_softmax(-1).gather(1, found.tokens[:, step : step + 1])[:, 0]
        at = found.answer[:, step].bool()
        torch.testing.assert_close(copied[at], expected[at, step], rtol=1e-4, atol=1e-4)


def test_answers_have_the_log_probabilities_of_the_policy(policy: Any, chat: Chat):
    found = roll_out(policy, chat, PROMPTS * 3, HERE, max_new_tokens=12, temperature=0.7)

    expected, _ = logprobs_and_entropies(policy, found, HERE, 0.7)

    torch.testing.assert_close(found.logprobs, expected * found.answer, rtol=1e-4, atol=1e-4)


def test_a_small_update_of_an_adapter_reaches_the_sampler():
    """The change of the logits by an adapter, in bfloat16, is on average the one that float32 computes."""
    torch.manual_seed(0)
    sizes = SIZES | {"hidden_size": 256, "num_hidden_layers": 1, "num_key_value_heads": 4}
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes)).eval()
    model.model.embed_tokens.weight.data += 1.0  # inputs are alike, so that many small changes of weights add up
    policy = models.with_adapters(model.bfloat16(), 4)
    for name, weight in policy.named_parameters():
        if "lora_A" in name:
            torch.nn.init.constant_(weight, 1.0)
        elif "lora_B" in name:
            torch.nn.init.normal_(weight, 0, 1e-4)
    ids = torch.randint(2, 40, (64, 6))
    inputs = {"input_ids": ids, "attention_mask": ids * 0 + 1, "position_ids": torch.arange(6).expand(64, 6)}

    def logits(dtype: str) -> Any:
        with torch.no_grad():
            return PolicyCopy(policy, models.Machine("cpu", dtype))(**inputs).logits[:, -1].float()

    def change(dtype: str) -> Any:
        on = logits(dtype)
        with policy.disable_adapter():
            return (on - logits(dtype)).flatten()

    exact = change("float32")
    assert float(exact @ change("bfloat16") / (exact @ exact)) == pytest.approx(1, abs=0.1)  # 0.5 if it is merged


def test_transposed_gates_give_the_same_answers(policy: Any, chat: Chat):
    copy = PolicyCopy(policy, HERE)
    copy._transposes = True  # as on a GPU
    policy_copy.keep(policy, copy)
    expected = generated(policy, chat, 6)

    assert answers(roll_out(policy, chat, PROMPTS, HERE, max_new_tokens=6, temperature=0)) == expected


def test_the_copy_follows_the_active_adapter(chat: Chat):
    policy = adapted(model_of("Qwen2", COPIED["Qwen2"]))
    plain = generated(model_of("Qwen2", COPIED["Qwen2"]), chat, 12)

    with models.as_reference(policy, None) as reference:
        found = roll_out(reference, chat, PROMPTS, HERE, max_new_tokens=12, temperature=0)

    assert answers(found) == plain != generated(policy, chat, 12)


def test_the_policy_is_not_changed(policy: Any, chat: Chat):
    before = {name: each.clone() for name, each in policy.state_dict().items()}

    roll_out(policy, chat, PROMPTS, HERE, max_new_tokens=6)

    after = policy.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


@pytest.mark.usefixtures("keeping")
def test_a_kept_copy_follows_training_and_takes_other_prompts(policy: Any, chat: Chat):
    roll_out(policy, chat, PROMPTS, HERE, max_new_tokens=6)
    with torch.no_grad():
        for weight in models.trainable(policy).values():
            weight.add_(0.1 * torch.randn_like(weight))

    longer = [*PROMPTS[1:], (Message("user", " ".join(f"w{i}" for i in range(20))),)]
    roll_out(policy, chat, longer, HERE, max_new_tokens=12, temperature=0)
    found = roll_out(policy, chat, PROMPTS, HERE, max_new_tokens=12, temperature=0)

    assert answers(found) == generated(policy, chat, 12)


@pytest.mark.usefixtures("keeping")
def test_a_kept_batch_is_used_again(chat: Chat, monkeypatch: pytest.MonkeyPatch):
    begun: list[int] = []
    begin = rollout.decoder

    def counted(*args: Any, **settings: Any) -> Any:
        begun.append(1)
        return begin(*args, **settings)

    monkeypatch.setattr(rollout, "decoder", counted)
    policy = model_of("Llama", COPIED["Llama"])
    for prompts in (PROMPTS, PROMPTS[::-1], PROMPTS):
        torch.manual_seed(3)
        found = roll_out(policy, chat, prompts, HERE, max_new_tokens=12)

    assert len(begun) == 1
    other = model_of("Llama", COPIED["Llama"])
    torch.manual_seed(3)
    assert answers(found) == answers(roll_out(other, chat, PROMPTS, HERE, max_new_tokens=12))


@pytest.mark.usefixtures("keeping")
def test_moved_weights_are_read_where_they_are(chat: Chat):
    policy = adapted(model_of("Llama", COPIED["Llama"]))
    roll_out(policy, chat, PROMPTS, HERE, max_new_tokens=2)
    copy = policy_copy.kept_copies[policy]
    assert copy.decoding is not None

    for weight in policy.parameters():
        weight.data = weight.data.clone()
    copy.refresh(policy)

    assert copy.decoding is None


@pytest.mark.usefixtures("keeping")
def test_a_kept_copy_goes_with_its_policy(chat: Chat):
    policy = model_of("Llama", COPIED["Llama"])
    roll_out(policy, chat, PROMPTS, HERE, max_new_tokens=2)
    alive = weakref.ref(policy)

    del policy
    gc.collect()

    assert alive() is None


def test_a_batch_that_does_not_fit_into_memory_is_halved(policy: Any, chat: Chat, monkeypatch: pytest.MonkeyPatch):
    prompts = [(Message("user", "word " * n),) for n in (5, 1, 4, 2, 3)]
    limits: dict[str, Any] = {"max_new_tokens": 4, "temperature": 0, "observe": ignore}
    together, asked = answer_all(policy, chat, prompts, HERE, **limits), list[int]()

    def small(policy: Any, chat: Chat, some: Any, *others: Any, **settings: Any) -> Rollout:
        asked.append(len(some))
        if len(some) > 1:
            raise torch.OutOfMemoryError
        return roll_out(policy, chat, some, *others, **settings)

    monkeypatch.setattr(rollout, "roll_out", small)
    assert answer_all(policy, chat, prompts, HERE, **limits) == together
    assert asked == [5, 2, 1, 1, 1, 1, 1]


def test_a_seed_repeats_answers_also_when_finished_ones_stay(policy: Any, chat: Chat, monkeypatch: pytest.MonkeyPatch):
    def sampled() -> Rollout:
        torch.manual_seed(5)
        return roll_out(policy, chat, PROMPTS * 3, HERE, max_new_tokens=30)

    def unchanged(count: int, needed: int) -> int:
        del needed
        return count

    first, again = sampled(), sampled()
    monkeypatch.setattr(rollout, "halved", unchanged)
    staying = sampled()

    assert any(first.ended)
    assert answers(first) == answers(again) == answers(staying)
    assert torch.equal(first.mask, staying.mask)


def test_random_numbers_are_those_of_multinomial(chat: Chat):
    policy = model_of("Llama", COPIED["Llama"])
    torch.manual_seed(7)
    found = roll_out(policy, chat, PROMPTS, HERE, max_new_tokens=1, temperature=0.7)

    torch.manual_seed(7)
    last = [policy(torch.tensor([chat.encode_prompt(prompt, 1)])).logits[0, -1] for prompt in PROMPTS]
    expected = torch.multinomial((torch.stack(last) / 0.7).softmax(-1), 1)
    assert found.tokens.tolist() == expected.tolist()


def test_equal_prompts_are_read_once(chat: Chat, monkeypatch: pytest.MonkeyPatch):
    read: list[int] = []
    compute = PolicyCopy.__call__

    def counted(self: PolicyCopy, **inputs: Any) -> Any:
        read.append(len(inputs["input_ids"]))
        return compute(self, **inputs)

    monkeypatch.setattr(PolicyCopy, "__call__", counted)
    roll_out(model_of("Llama", COPIED["Llama"]), chat, PROMPTS, HERE, max_new_tokens=2)

    assert read == [5, 7]


class Recorded:
    """Stands for a CUDA graph: a step that is recorded is not computed, a replayed one writes into the same memory."""

    recording: "Recorded | None" = None
    replays = 0
    compute = StaticDecoder._step

    def __init__(self) -> None:
        self.decoder: Any = None

    def __enter__(self) -> None:
        Recorded.recording = self

    def __exit__(self, *_: Any) -> None:
        Recorded.recording = None

    def pool(self) -> None:
        return None

    def replay(self) -> None:
        Recorded.replays += 1
        assert self.decoder._count == self.count
        self.output.copy_(Recorded.compute(self.decoder))

    def step(self, decoder: Any) -> Any:
        self.decoder, self.count = decoder, decoder._count
        self.output = torch.zeros(self.count, 1, dtype=torch.long)
        return self.output


@pytest.mark.usefixtures("keeping")
def test_recorded_steps_give_the_same_answers(policy: Any, chat: Chat, monkeypatch: pytest.MonkeyPatch):
    def sampled(seed: int, prompts: list[Any]) -> list[list[int]]:
        torch.manual_seed(seed)
        return answers(roll_out(policy, chat, prompts, HERE, max_new_tokens=30))

    def step(self: Any) -> Any:
        return Recorded.recording.step(self) if Recorded.recording else Recorded.compute(self)

    def recording(*args: Any, use_graphs: bool, **settings: Any) -> StaticDecoder:
        return StaticDecoder(*args, use_graphs=use_graphs, **settings)

    batches = [(0, PROMPTS * 3), (1, PROMPTS[::-1] * 3), (2, PROMPTS * 3)]
    expected = [sampled(*batch) for batch in batches]
    policy_copy.kept_copies.clear()
    monkeypatch.setattr(StaticDecoder, "_step", step)
    monkeypatch.setattr(rollout, "decoder", recording)
    monkeypatch.setattr(rollout, "pace", lambda _: (4, 5))
    monkeypatch.setattr(torch.cuda, "graph", lambda graph, **_: graph)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Recorded)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: None)
    monkeypatch.setattr(torch.cuda, "stream", lambda _: nullcontext())

    assert [sampled(*batch) for batch in batches] == expected
    assert Recorded.replays > 20


def test_a_named_gpu_is_the_current_one(monkeypatch: pytest.MonkeyPatch):
    current: list[str] = []
    monkeypatch.setattr(torch, "empty", lambda *_, device: None)
    monkeypatch.setattr(torch.cuda, "set_device", current.append)

    for device in ("cpu", "cuda", "cuda:1"):
        assert models.machine(device).device == device

    assert current == ["cuda:1"]


@pytest.mark.parametrize(("count", "needed", "size"), [(64, 33, 64), (64, 32, 32), (64, 3, 4), (5, 3, 3), (1, 0, 1)])
def test_batches_are_halved(count: int, needed: int, size: int):
    assert rollout.halved(count, needed) == size
