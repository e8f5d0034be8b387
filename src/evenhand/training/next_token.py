"""What a policy copy computes for the next token of each answer between matrix products: attention and gates.

The plain code here works everywhere. On a GPU, the Triton kernels in `kernels` compute the same faster. Before their
first use for a shape of heads they are compared with the plain code. If they fail then or later, the plain code is used
for the rest of the process, and a warning says why. `EVENHAND_KERNELS=0` turns them off.
"""

from __future__ import annotations

import importlib
import logging
import os
from functools import partial
from typing import Any

from evenhand.training.models import Machine

torch: Any = importlib.import_module("torch")

log = logging.getLogger(__name__)

SWITCH = "EVENHAND_KERNELS"
_SIZES = (16, 32, 64, 128)
_LARGEST_GROUP = 16
TOLERANCE = 0.02
"""How far kernels may be from the plain code in float32, relative to values above 1; the plain code itself is up to
0.006 off in bfloat16."""

_agreed: dict[tuple[int, int, int, str, str], bool] = {}
"""Whether kernels and plain code agree, for each shape of heads, device and precision that was compared."""
_failures: list[str] = []
"""Why the kernels are no longer used in this process."""


class NextToken:
    """Computes attention and gates, with kernels where they can be used."""

    def __init__(self, heads: int, kv_heads: int, size: int, act: Any, machine: Machine) -> None:
        self._heads, self._act = (heads, kv_heads), act
        shape = heads, kv_heads, size
        self._kernels = supports(*shape, act) and available(machine) and agree(*shape, machine)

    @property
    def uses_kernels(self) -> bool:
        return self._kernels and not _failures

    def attended(self, qkv: Any, cos: Any, sin: Any, *others: Any) -> Any:
        """As `attended_next`, without the numbers of heads."""
        inputs = (qkv, cos, sin, *self._heads, *others)
        found = by_kernel("attended_next", *inputs) if self.uses_kernels else None
        return attended_next(*inputs) if found is None else found

    def gated(self, gate_up: Any) -> Any:
        """As `gated` of the first dimension."""
        found = by_kernel("gated", gate_up) if self.uses_kernels else None
        return gated(gate_up, self._act, 0) if found is None else found


def attended_next(
    qkv: Any,
    cos: Any,
    sin: Any,
    heads: int,
    kv_heads: int,
    keys: Any,
    values: Any,
    slot: Any,
    mask: Any,
    scaling: float,
) -> Any:
    """Store the keys and values of one token of each row, and return what its queries attend to.

    All heads of a group attend to the same keys, so they are passed as several queries of one head.
    """
    query, key, value = rotated(qkv, cos, sin, heads, kv_heads)
    keys.index_copy_(2, slot, key)
    values.index_copy_(2, slot, value)
    rows, size = len(qkv), qkv.shape[-1]
    grouped = query.view(rows, kv_heads, heads // kv_heads, size)
    attention = torch.nn.functional.scaled_dot_product_attention
    return attention(grouped, keys, values, mask, scale=scaling).reshape(rows, 1, heads, size)


def rotated(qkv: Any, cos: Any, sin: Any, heads: int, kv_heads: int) -> tuple[Any, Any, Any]:
    """Return queries, keys and values (rows × heads × tokens × size), the first two with the rotary embedding."""
    turned = qkv.roll(qkv.shape[-1] // 2, -1)[:, :, :-kv_heads]
    query_key = torch.addcmul(qkv[:, :, :-kv_heads] * cos, turned, sin).transpose(1, 2)
    return query_key[:, :heads], query_key[:, heads:], qkv[:, :, -kv_heads:].transpose(1, 2)


def gated(gate_up: Any, act: Any, dim: int) -> Any:
    """Return the activated gates times the other half."""
    gate, up = gate_up.chunk(2, dim)
    return act(gate).mul_(up)


def supports(heads: int, kv_heads: int, size: int, act: Any) -> bool:
    """Whether the kernels can compute these shapes and this activation."""
    is_silu = type(act).__name__ in ("SiLU", "SiLUActivation")
    return is_silu and size in _SIZES and heads % kv_heads == 0 and heads // kv_heads <= _LARGEST_GROUP


def available(machine: Machine) -> bool:
    """Whether a machine can run the kernels and nobody turned them off."""
    if _failures or os.environ.get(SWITCH) == "0":
        return False
    on_nvidia = machine.device.startswith("cuda") and torch.version.hip is None
    return on_nvidia and machine.dtype == "bfloat16" and torch.cuda.get_device_capability(machine.device) >= (8, 0)


def agree(heads: int, kv_heads: int, size: int, machine: Machine) -> bool:
    """Whether the kernels compute what the plain code does; this is found out once for each shape."""
    case = heads, kv_heads, size, machine.device, machine.dtype
    if case not in _agreed:
        found = _difference(heads, kv_heads, size, machine)
        if found is not None and not found <= TOLERANCE:  # it may be NaN
            _give_up(f"with {heads} heads on {kv_heads} of size {size}, they differ from the plain code by {found:.3g}")
        _agreed[case] = found is not None and found <= TOLERANCE
    return _agreed[case]


def by_kernel(name: str, *inputs: Any) -> Any:
    """Return what a kernel computes from tensors; None if it cannot."""
    try:
        kernels: Any = importlib.import_module("evenhand.training.kernels")
        with torch.cuda.device_of(inputs[0]):  # Triton computes on the current device
            return getattr(kernels, name)(*inputs)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # no Triton, no C compiler, too little shared memory, …
        _give_up(f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}")
        return None


def _give_up(reason: str) -> None:
    if not _failures:
        log.warning("Roll-outs use no Triton kernels in this process and are slower: %s", reason)
    _failures.append(reason)


def _difference(heads: int, kv_heads: int, size: int, machine: Machine) -> float | None:
    """Return how far kernels and plain code are apart for some random inputs; None if the kernels fail.

    One row sees all tokens, one is padded on the left by more than a block, and one sees nothing but itself.
    """
    random = torch.Generator().manual_seed(0)  # not torch's own numbers, with which answers are sampled

    def given(values: Any) -> Any:
        return values.to(machine.device, getattr(torch, machine.dtype))

    def drawn(*shape: int) -> Any:
        return given(torch.randn(shape, generator=random))

    rows, width, found = 3, 208, [0.0]
    for last in (80, 150):
        place = torch.arange(width)
        seen = (place >= torch.tensor([0, 70, last])[:, None]) & (place <= last)
        mask = given(torch.zeros(rows, 1, 1, width).masked_fill(~seen[:, None, None], float("-inf")))
        angles = torch.randn(rows, 1, 1, size, generator=random)
        inputs = [drawn(rows, 1, heads + 2 * kv_heads, size), given(angles.cos()), given(angles.sin())]
        cache = [drawn(rows + 1, kv_heads, width, size)[:rows] for _ in range(2)]
        gates = drawn(2 * size, rows)
        slot, exact = torch.tensor([last], device=machine.device), [each.float() for each in cache]

        def attended(compute: Any, inputs: Any, cache: Any, mask: Any, slot: Any = slot) -> Any:
            return compute(*inputs, heads, kv_heads, *cache, slot, mask, size**-0.5)

        expected = attended(attended_next, [each.float() for each in inputs], exact, mask.float())
        computed = attended(partial(by_kernel, "attended_next"), inputs, cache, mask)
        activated = None if computed is None else by_kernel("gated", gates)
        if activated is None:
            return None
        pairs: list[tuple[Any, Any]] = [(computed, expected), *zip(cache, exact, strict=True)]
        pairs.append((activated, gated(gates.float(), torch.nn.functional.silu, 0)))
        found += [float(((one.float() - other).abs() / (1 + other.abs())).max()) for one, other in pairs]
    return float(torch.tensor(found).max())
