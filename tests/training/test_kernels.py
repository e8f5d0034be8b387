"""The Triton kernels compute what the plain code does; without a GPU, in Triton's interpreter."""

import importlib
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from evenhand.core.types import Message

torch: Any = pytest.importorskip("torch", reason="needs pip install 'evenhand[train]'")
transformers: Any = pytest.importorskip("transformers", reason="needs pip install 'evenhand[train]'")
pytest.importorskip("triton", reason="needs Triton, which comes with torch for GPUs")

from evenhand.training import policy_copy  # noqa: E402
from evenhand.training.models import Machine  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:Conversion of an array with ndim > 0")  # of older interpreters
HAS_GPU = torch.cuda.is_available()
DEVICE = "cuda" if HAS_GPU else "cpu"
DTYPES = ["bfloat16"] if HAS_GPU else ["float32", "float16"]
"""The interpreter has no arithmetic in bfloat16."""
LARGEST = {"float32": 1e-5, "float16": 3e-3, "bfloat16": 2e-2}
NAME = "evenhand.training.kernels"


@pytest.fixture(scope="module", autouse=True)
def kernels() -> Iterator[Any]:
    """The kernels; Triton decides when it is imported whether it interprets, so it is imported anew."""
    with pytest.MonkeyPatch.context() as patch:
        if not HAS_GPU:
            patch.setenv("TRITON_INTERPRET", "1")
            for name in [each for each in sys.modules if each.partition(".")[0] == "triton" or each == NAME]:
                if not name.startswith("triton._C"):
                    del sys.modules[name]
        found = importlib.import_module(NAME)
        try:
            found.attended_next(*inputs((1, 1, 16), [0], 1, 16, DTYPES[0]))
        except Exception as error:
            if "only 0-dimensional arrays can be converted" not in str(error):
                raise
            pytest.skip("the interpreter of this Triton needs an older NumPy")
        yield found


def inputs(shape: tuple[int, int, int], paddings: list[int], last: int, width: int, dtype: str) -> list[Any]:
    """Random inputs of `attended_next` with room for one row more, as in a batch that some answers have left."""
    heads, kv_heads, size = shape
    rows = len(paddings)
    torch.manual_seed(0)
    place = torch.arange(width)
    seen = ((place >= torch.tensor(paddings)[:, None]) & (place < last)) | (place == last)
    mask = torch.zeros(rows, 1, 1, width).masked_fill(~seen[:, None, None], float("-inf"))
    angles = torch.randn(rows, 1, 1, size)
    tensors = [torch.randn(rows, 1, heads + 2 * kv_heads, size), angles.cos(), angles.sin()]
    cache = [torch.randn(rows + 1, kv_heads, width, size) for _ in range(2)]
    qkv, cos, sin, keys, values, mask = (each.to(DEVICE, getattr(torch, dtype)) for each in (*tensors, *cache, mask))
    slot = torch.tensor([last], device=DEVICE)
    return [qkv, cos, sin, heads, kv_heads, keys[:rows], values[:rows], slot, mask, 2 * size**-0.5]


def in_float32(given: list[Any]) -> list[Any]:
    return [each.float() if torch.is_tensor(each) and each.is_floating_point() else each for each in given]


CASES = {
    "1.5B": ((12, 2, 128), [0, 1, 69, 70, 30], 70, 80),
    "135M": ((9, 3, 64), [64, 0, 100], 129, 144),
    "a group of one": ((3, 3, 32), [5, 0], 20, 32),
    "the largest group": ((16, 1, 16), [0], 30, 32),
    "nothing before": ((4, 2, 32), [0, 0, 0], 0, 16),
    "one before": ((4, 2, 32), [0, 1], 1, 16),
    "a whole block before": ((4, 2, 32), [0, 63, 64], 64, 80),
    "the last place": ((4, 2, 32), [0, 40], 79, 80),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", CASES)
def test_attention_is_that_of_the_plain_code(case: str, dtype: str, kernels: Any):
    given = inputs(*CASES[case], dtype)
    exact = in_float32(given)
    expected = policy_copy.attended_next(*exact)

    found = kernels.attended_next(*given)

    assert found.shape == expected.shape and found.dtype == given[0].dtype
    for one, other in zip((found, *given[5:7]), (expected, *exact[5:7]), strict=True):
        torch.testing.assert_close(one.float(), other, rtol=LARGEST[dtype], atol=LARGEST[dtype])


@pytest.mark.parametrize("dtype", DTYPES)
def test_only_the_new_token_is_written(dtype: str, kernels: Any):
    given = inputs((4, 2, 32), [0, 7], 20, 32, dtype)
    whole = [given[place]._base for place in (5, 6)]
    before = [each.clone() for each in whole]

    kernels.attended_next(*given)

    for old, new in zip(before, whole, strict=True):
        written = (old != new).any(-1).nonzero()
        assert {(row, place) for row, _, place in written.tolist()} == {(0, 20), (1, 20)}


def test_rows_beyond_32_bits_are_found(kernels: Any):
    given = inputs((2, 1, 16), [0, 3, 9], 20, 32, DTYPES[-1])
    expected = policy_copy.attended_next(*in_float32(given))
    far = 2**30  # the third row begins at 2**31; memory that is not used is not taken
    memory = torch.empty(2 * far + 2 * 32 * 16, dtype=given[0].dtype, device=DEVICE)
    for place in (5, 6):
        moved = memory[(place - 5) * 32 * 16 :].as_strided((3, 1, 32, 16), (far, 32 * 16, 16, 1))
        given[place] = moved.copy_(given[place])

    found = kernels.attended_next(*given)

    torch.testing.assert_close(found.float(), expected, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.filterwarnings("ignore:overflow encountered in exp")  # as intended: the gate of -100 is 0
@pytest.mark.parametrize(("inner", "rows"), [(1, 1), (24, 5), (1536, 3), (700, 3)])
def test_gates_are_those_of_the_plain_code(inner: int, rows: int, dtype: str, kernels: Any):
    torch.manual_seed(0)
    gate_up = torch.cat([10 * torch.randn(inner, rows), torch.randn(inner, rows)]).to(DEVICE, getattr(torch, dtype))
    gate_up[0, 0] = -100

    found = kernels.gated(gate_up)

    expected = policy_copy.gated(gate_up.float(), torch.nn.SiLU(), 0)
    torch.testing.assert_close(found.float(), expected, rtol=LARGEST[dtype], atol=LARGEST[dtype])


@pytest.mark.parametrize("change", ["rows apart", "values elsewhere", "too long a row"])
def test_other_arrangements_of_memory_are_refused(change: str, kernels: Any):
    given = inputs((4, 2, 32), [0, 7], 20, 32, DTYPES[0])
    if change == "rows apart":
        given[0] = given[0].repeat(1, 1, 1, 2)[..., ::2]
    elif change == "values elsewhere":
        given[6] = given[6].transpose(1, 2).contiguous().transpose(1, 2)
    else:
        given[5:7] = (each[:1].as_strided((1, 2, 32, 32), (2**31, 32 * 32, 32, 1)) for each in given[5:7])

    with pytest.raises(AssertionError):
        kernels.attended_next(*given)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(12, 2, 128), (9, 3, 64)])
def test_the_check_before_the_first_use_passes(
    shape: tuple[int, int, int], dtype: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(policy_copy, "_agreed", {})
    monkeypatch.setattr(policy_copy, "_failures", [])

    assert policy_copy.agree(*shape, Machine(DEVICE, dtype))
    assert not caplog.records


@pytest.mark.skipif(HAS_GPU, reason="in bfloat16, greedy answers may differ")
def test_answers_are_those_of_transformers(tiny: str, monkeypatch: pytest.MonkeyPatch):
    from evenhand.training import models, policy_copy
    from evenhand.training.rollout import roll_out

    monkeypatch.setattr(policy_copy, "available", lambda machine: True)
    sizes = {"vocab_size": 40, "hidden_size": 96, "intermediate_size": 48, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 6, "num_key_value_heads": 2}
    torch.manual_seed(0)
    config = transformers.Qwen2Config(**sizes, **heads, initializer_range=0.4, eos_token_id=1)
    policy = transformers.Qwen2ForCausalLM(config).eval()
    machine = Machine("cpu", "float32")
    copy = policy_copy.PolicyCopy(policy, machine)
    copy._transposes = True  # as on a GPU
    policy_copy.keep(policy, copy)
    chat = models.load_chat(tiny, policy)
    prompts = [(Message("user", text),) for text in ("w1", "w2 w3 w4", "sun")]

    found = roll_out(policy, chat, prompts, machine, max_new_tokens=5, temperature=0)

    assert copy.next_token.uses_kernels
    for row, kept, prompt in zip(found.tokens, found.answer.bool(), prompts, strict=True):
        ids = torch.tensor([chat.encode_prompt(prompt, 5)])
        greedy = {"do_sample": False, "max_new_tokens": 5, "pad_token_id": 0, "eos_token_id": 1}
        expected = policy.generate(input_ids=ids, attention_mask=ids * 0 + 1, **greedy)[0, ids.shape[1] :]
        assert row[kept].tolist() == expected.tolist()
