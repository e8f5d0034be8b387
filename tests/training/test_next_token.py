"""When the Triton kernels are used, and that the plain code takes over where they fail."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from evenhand.core.types import Message

torch: Any = pytest.importorskip("torch", reason="needs pip install 'evenhand[train]'")
pytest.importorskip("peft", reason="needs pip install 'evenhand[train]'")
transformers: Any = pytest.importorskip("transformers", reason="needs pip install 'evenhand[train]'")

from evenhand.training import models, policy_copy  # noqa: E402
from evenhand.training.models import Machine  # noqa: E402
from evenhand.training.rollout import roll_out  # noqa: E402

HERE = Machine("cpu", "float32")
GPU = Machine("cuda", "bfloat16")
SHAPE = 4, 2, 16
PROMPTS = [(Message("user", text),) for text in ("w1", "w2 w3 w4", "w5 w6 w7 w8 w9")]


@pytest.fixture(autouse=True)
def new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was compared yet, and nothing has failed."""
    monkeypatch.setattr(policy_copy, "_agreed", {})
    monkeypatch.setattr(policy_copy, "_failures", [])
    monkeypatch.delenv(policy_copy.SWITCH, raising=False)


@pytest.fixture
def on_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernels may be used here."""
    monkeypatch.setattr(policy_copy, "available", lambda machine: not policy_copy._failures)


class Kernels:
    """Stands for the compiled kernels: the plain code, until something goes wrong."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls = 0
        self.error: Exception | None = None
        self.factor = 1.0
        module = SimpleNamespace(attended_next=self.attended_next, gated=self.gated)
        monkeypatch.setitem(sys.modules, "evenhand.training.kernels", module)

    def attended_next(self, *inputs: Any) -> Any:
        self.calls += 1
        if self.error:
            raise self.error
        return self.factor * policy_copy.attended_next(*inputs)

    def gated(self, gate_up: Any) -> Any:
        return policy_copy.gated(gate_up, torch.nn.SiLU(), 0)


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch, on_gpu: None) -> Kernels:
    return Kernels(monkeypatch)


@pytest.fixture
def policy() -> Any:
    torch.manual_seed(0)
    config = transformers.Qwen2Config(
        vocab_size=40,
        hidden_size=64,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        initializer_range=0.4,
    )
    return transformers.Qwen2ForCausalLM(config).eval()


def answers(policy: Any, tiny: str, *, plain: bool = False) -> list[list[int]]:
    """Greedy answers of a new copy."""
    copy = policy_copy.PolicyCopy(policy, HERE)
    copy._transposes = True  # as on a GPU
    copy.next_token._kernels &= not plain
    policy_copy.keep(policy, copy)
    return roll_out(
        policy, models.load_chat(tiny, policy), PROMPTS, HERE, max_new_tokens=5, temperature=0
    ).tokens.tolist()


def plain_answers(policy: Any, tiny: str) -> list[list[int]]:
    return answers(policy, tiny, plain=True)


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.message.partition(": ")[2] for each in caplog.records]


@pytest.mark.parametrize(
    ("shape", "act", "supported"),
    [
        ((12, 2, 128), torch.nn.SiLU(), True),
        ((9, 3, 64), torch.nn.SiLU(), True),
        ((32, 2, 128), torch.nn.SiLU(), True),
        ((34, 2, 128), torch.nn.SiLU(), False),
        ((32, 32, 96), torch.nn.SiLU(), False),
        ((32, 32, 8), torch.nn.SiLU(), False),
        ((8, 1, 256), torch.nn.SiLU(), False),
        ((12, 2, 128), torch.nn.GELU(), False),
    ],
)
def test_only_some_shapes_have_kernels(shape: tuple[int, int, int], act: Any, supported: bool):
    assert policy_copy.kernels_support(*shape, act) is supported


def test_every_silu_of_transformers_has_kernels():
    activations = transformers.activations.ACT2FN

    assert {name for name in activations if policy_copy.kernels_support(*SHAPE, activations[name])} == {"silu", "swish"}


@pytest.mark.parametrize(
    ("machine", "capability", "switch", "usable"),
    [
        (GPU, (8, 0), None, True),
        (Machine("cuda:1", "bfloat16"), (9, 0), "1", True),
        (GPU, (7, 5), None, False),
        (Machine("cuda", "float32"), (9, 0), None, False),
        (GPU, (9, 0), "0", False),
        (HERE, (9, 0), None, False),
    ],
)
def test_kernels_are_for_newer_gpus_and_bfloat16(
    machine: Machine, capability: Any, switch: str | None, usable: bool, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    if switch is not None:
        monkeypatch.setenv(policy_copy.SWITCH, switch)

    assert policy_copy.available(machine) is usable


def test_kernels_are_compared_once_and_used(policy: Any, tiny: str, kernels: Kernels, caplog: pytest.LogCaptureFixture):
    found = [answers(policy, tiny) for _ in range(2)]

    assert kernels.calls == 2 + 2 * 2 * 4  # the comparison; roll-outs, layers and steps after the prompt
    assert found == [plain_answers(policy, tiny)] * 2
    assert not caplog.records


def test_the_comparison_uses_none_of_the_random_numbers_of_answers(kernels: Kernels):
    before = torch.get_rng_state()

    assert policy_copy.agree(*SHAPE, HERE)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("factor", [1.2, float("nan")])
def test_kernels_that_compute_something_else_are_not_used(
    factor: float, policy: Any, tiny: str, kernels: Kernels, caplog: pytest.LogCaptureFixture
):
    kernels.factor = factor

    found = [answers(policy, tiny) for _ in range(2)]

    assert kernels.calls == 2  # the comparison
    assert found == [plain_answers(policy, tiny)] * 2
    assert len(caplog.records) == 1 and "they differ from the plain code by" in messages(caplog)[0]


def test_without_a_compiler_the_plain_code_answers(
    policy: Any, tiny: str, kernels: Kernels, caplog: pytest.LogCaptureFixture
):
    kernels.error = RuntimeError("Failed to find C compiler.\nPlease specify one")

    found = [answers(policy, tiny) for _ in range(2)]

    assert found == [plain_answers(policy, tiny)] * 2
    assert messages(caplog) == ["RuntimeError: Failed to find C compiler."]


def test_without_triton_the_plain_code_answers(
    policy: Any, tiny: str, on_gpu: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.delitem(sys.modules, "evenhand.training.kernels", raising=False)
    monkeypatch.setitem(sys.modules, "triton", None)

    found = answers(policy, tiny)

    assert found == plain_answers(policy, tiny)
    assert len(caplog.records) == 1 and "triton" in messages(caplog)[0]


def test_a_kernel_that_fails_later_is_replaced(
    policy: Any, tiny: str, kernels: Kernels, caplog: pytest.LogCaptureFixture
):
    answers(policy, tiny)
    kernels.error = ValueError("too little shared memory")

    assert [answers(policy, tiny) for _ in range(2)] == [plain_answers(policy, tiny)] * 2
    assert messages(caplog) == ["ValueError: too little shared memory"]


def test_a_full_gpu_is_no_failure_of_the_kernels(kernels: Kernels, caplog: pytest.LogCaptureFixture):
    kernels.error = torch.OutOfMemoryError("full")

    with pytest.raises(torch.OutOfMemoryError):
        policy_copy.agree(*SHAPE, HERE)
    assert not caplog.records and not policy_copy._failures
