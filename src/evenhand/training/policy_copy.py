"""A copy of the policy for roll-outs, which decodes several times as fast as the model that is trained.

Decoding a few answers is bound by the number of kernels, not by their work. So the copy joins the projections that read
the same input, and their adapters: a layer takes 15 to 20 kernels instead of about 100 (about 12 with Triton's), and 8
more for adapters. The policy itself is never changed.

Adapters stay apart from the weights: added to them in bfloat16, an update below half a rounding step would be lost, and
answers would be those of an older policy.

What is computed between the matrix products of a next token, attention and gates, is plain code that works everywhere.
On a GPU, the Triton kernels in `kernels` compute the same in less time. Before their first use for a shape of heads
they are compared with the plain code. If they fail then or later, the plain code is used for the rest of the process,
and a warning says why. `EVENHAND_KERNELS=0` turns them off.
"""

from __future__ import annotations

import importlib
import logging
import os
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from evenhand.core.lazy import no_grad, torch, transformers
from evenhand.models.hf.decoding import StaticLayer
from evenhand.models.hf.tuning import attend
from evenhand.training.models import Machine, is_plain, unwrapped

if TYPE_CHECKING:
    from torch import Tensor

log = logging.getLogger(__name__)

_FAMILIES = ("llama", "mistral", "qwen2")
"""The values of `model_type` that share this forward pass."""
KEPT_SHARE = 0.1
"""A copy is kept between roll-outs, with its CUDA graphs, if it takes at most this share of the GPU's memory."""

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
kept_copies: WeakKeyDictionary[Any, PolicyCopy] = WeakKeyDictionary()


def policy_copy(policy: Any, machine: Machine) -> PolicyCopy | None:
    """Return a copy with the policy's present weights; None where there can be none and the policy must be used."""
    if machine.team.size > 1 or not supports(policy):
        return None
    copy = kept_copies.get(policy)
    try:
        if copy is not None:
            copy.refresh(policy)
            return copy
        copy = PolicyCopy(policy, machine)
    except RuntimeError as error:
        if type(error).__name__ != "OutOfMemoryError":
            raise
        return None
    if machine.device.startswith("cuda"):
        memory = torch.cuda.get_device_properties(machine.device).total_memory
        if copy.nbytes <= KEPT_SHARE * memory:
            keep(policy, copy)
    return copy


def keep(policy: Any, copy: PolicyCopy) -> None:
    """Keep a copy for the next roll-outs of a policy."""
    copy.kept = True
    kept_copies[policy] = copy


def drop(policy: Any) -> None:
    """Forget the kept copy of a policy, and with it its cache and graphs."""
    kept_copies.pop(policy, None)


def supports(policy: Any) -> bool:
    """Whether a policy is a Llama-like model with ordinary weights, with or without ordinary LoRA adapters."""
    model = unwrapped(policy)
    config = model.config
    if config.model_type not in _FAMILIES or config._attn_implementation != "sdpa":
        return False
    if "sliding_attention" in (getattr(config, "layer_types", None) or ()):
        return False
    if config.model_type == "mistral" and config.sliding_window is not None:
        return False
    if type(model.model.embed_tokens) is not torch.nn.Embedding or type(model.lm_head) is not torch.nn.Linear:
        return False
    return all(
        is_plain(linear) and (linear.bias is None or linear in inputs)
        for layer in model.model.layers
        for inputs in [_inputs(layer.self_attn)]
        for linear in (*inputs, layer.self_attn.o_proj, *_gates(layer.mlp), layer.mlp.down_proj)
    )


@dataclass(slots=True)
class _Matrix:
    """The weights of projections with the same input as one matrix, and their adapters as two narrow ones."""

    weight: Any = None
    bias: Tensor | None = None
    inner: Any = None
    """All adapters' A, one below the other (None without adapters)."""
    outer: Any = None
    """Their B, times their scaling, each in the rows of its projection and the columns of its A."""

    def of(self, hidden: Tensor) -> Tensor:
        """Return the outputs for some inputs (rows × inputs)."""
        return self._adapted(torch.nn.functional.linear(hidden, self.weight, self.bias), hidden)

    def add(self, hidden: Tensor, inputs: Tensor) -> None:
        """Add the outputs to a hidden state, in place."""
        self._adapted(hidden.addmm_(inputs, self.weight.t()), inputs)

    def transposed(self, hidden: Tensor) -> Tensor:
        """Return the outputs transposed (outputs × rows)."""
        output = torch.mm(self.weight, hidden.t())
        return output if self.inner is None else output.addmm_(self.outer, torch.mm(self.inner, hidden.t()))

    def _adapted(self, output: Tensor, inputs: Tensor) -> Tensor:
        return output if self.inner is None else output.addmm_(torch.mm(inputs, self.inner.t()), self.outer.t())


@dataclass(slots=True)
class _Layer:
    """The weights of a layer."""

    qkv: _Matrix
    output: _Matrix
    gate_up: _Matrix
    down: _Matrix
    norm: Any = None
    mlp_norm: Any = None


class PolicyCopy:
    """A Llama-like model that computes next tokens only; called as a transformers model is."""

    is_causal = True

    def __init__(self, policy: Any, machine: Machine) -> None:
        model = unwrapped(policy)
        attention = model.model.layers[0].self_attn
        self.config = model.config
        self.num_key_value_groups = attention.num_key_value_groups
        self.kept = False
        """Whether the copy is used again by the next roll-out."""
        self.decoding: Any = None
        """What a roll-out leaves for the next one."""
        self._dtype = getattr(torch, machine.dtype)
        self._transposes = machine.device.startswith("cuda")
        """Whether the gates of next tokens are computed transposed: both halves are contiguous, which a GPU likes."""
        self._size, self._scaling = attention.head_dim, attention.scaling
        self._heads = self.config.num_attention_heads
        self._kv_heads = self._heads // self.num_key_value_groups
        self._epsilon = self.config.rms_norm_eps
        self._act, self._rotary = model.model.layers[0].mlp.act_fn, model.model.rotary_emb
        shape = self._heads, self._kv_heads, self._size
        self.next_token = NextToken(*shape, self._act, machine)
        self._embedding: Any = None
        self._norm: Any = None
        self._head: Any = None
        self._layers = [_Layer(_Matrix(), _Matrix(), _Matrix(), _Matrix()) for _ in model.model.layers]
        self.refresh(policy)

    @property
    def nbytes(self) -> int:
        """The size of the copied weights; frozen ones are shared with the policy, but count as well."""
        layers = [each for layer in self._layers for each in (layer.norm, layer.mlp_norm)]
        matrices = [each for layer in self._layers for each in (layer.qkv, layer.output, layer.gate_up, layer.down)]
        tensors = [self._embedding, self._norm, *(() if self._head is self._embedding else (self._head,)), *layers]
        tensors += [getattr(each, name) for each in matrices for name in _Matrix.__slots__]
        return sum(each.nbytes for each in tensors if each is not None)

    @no_grad
    def refresh(self, policy: Any) -> None:
        """Copy the policy's present weights, with its active adapters."""
        model = unwrapped(policy)
        tied = model.lm_head.weight is model.model.embed_tokens.weight
        self._embedding = self._shared(self._embedding, model.model.embed_tokens.weight)
        self._norm = self._shared(self._norm, model.model.norm.weight)
        self._head = self._embedding if tied else self._shared(self._head, model.lm_head.weight)
        for own, layer in zip(self._layers, model.model.layers, strict=True):
            own.norm = self._shared(own.norm, layer.input_layernorm.weight)
            self._join(own.qkv, *_inputs(layer.self_attn))
            self._join(own.output, layer.self_attn.o_proj)
            own.mlp_norm = self._shared(own.mlp_norm, layer.post_attention_layernorm.weight)
            self._join(own.gate_up, *_gates(layer.mlp))
            self._join(own.down, layer.mlp.down_proj)

    def __call__(
        self, *, input_ids: Tensor, attention_mask: Tensor, position_ids: Tensor, past_key_values: Any = None, **_: Any
    ) -> Any:
        """Return the logits of the last position, and the cache."""
        functional = torch.nn.functional
        cache = past_key_values
        if cache is None:
            cache = transformers.DynamicCache()
        rows, length = input_ids.shape
        hidden = functional.embedding(input_ids, self._embedding)
        cos, sin = self._turns(hidden, position_ids)
        mask = _additive(attention_mask, self._dtype)
        hidden = hidden.view(rows * length, -1)
        for number, layer in enumerate(self._layers):
            qkv = layer.qkv.of(self._normed(hidden, layer.norm)).view(rows, length, -1, self._size)
            attended = self._attended(qkv, cos, sin, cache, number, mask)
            layer.output.add(hidden, attended.reshape(rows * length, -1))
            layer.down.add(hidden, self._gated(self._normed(hidden, layer.mlp_norm), layer, length))
        last = self._normed(hidden.view(rows, length, -1)[:, -1:], self._norm)
        return SimpleNamespace(logits=functional.linear(last, self._head), past_key_values=cache)

    def _attended(self, qkv: Tensor, cos: Tensor, sin: Tensor, cache: Any, number: int, mask: Tensor) -> Tensor:
        """Return what new tokens attend to, after their keys and values were stored."""
        static = cache.layers[number] if number < len(cache.layers) else None
        if not isinstance(static, StaticLayer):
            query, key, value = rotated(qkv, cos, sin, self._heads, self._kv_heads)
            key, value = cache.update(key, value, number)
            return attend(self, query, key, value, mask, scaling=self._scaling)[0]
        keys, values = static.keys[: len(qkv)], static.values[: len(qkv)]
        return self.next_token.attended(qkv, cos, sin, keys, values, static.slot, mask, self._scaling)

    def _gated(self, hidden: Tensor, layer: _Layer, length: int) -> Tensor:
        if self._transposes and length == 1:
            return self.next_token.gated(layer.gate_up.transposed(hidden)).t()
        return gated(layer.gate_up.of(hidden), self._act, -1)

    def _turns(self, hidden: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        """Return the cosines and signed sines of the rotary embedding: turned = x·cos + roll(x)·sin."""
        cos, sin = self._rotary(hidden, position_ids)
        half = self._size // 2
        return cos[:, :, None], torch.cat([-sin[..., :half], sin[..., half:]], -1)[:, :, None]

    def _normed(self, hidden: Tensor, weight: Tensor) -> Tensor:
        return torch.nn.functional.rms_norm(hidden, (hidden.shape[-1],), weight, self._epsilon)

    def _join(self, own: _Matrix, *linears: Any) -> None:
        """Take the weights and active adapters of some layers, in the memory of the old ones if there are any."""
        if len(linears) == 1:
            own.weight = self._shared(own.weight, linears[0].weight)
        else:
            own.weight = self._stored(own.weight, torch.cat([each.weight for each in linears]))
        if linears[0].bias is not None:
            own.bias = self._stored(own.bias, torch.cat([each.bias for each in linears]))
        if any(hasattr(each, "lora_A") for each in linears):
            inner, outer = zip(*map(_adapters, linears), strict=True)
            own.inner = self._stored(own.inner, torch.cat(inner))
            own.outer = self._stored(own.outer, torch.block_diag(*outer))

    def _shared(self, old: Tensor | None, weight: Tensor) -> Tensor:
        """Return a frozen weight itself, and a copy of a trained one."""
        if weight.dtype != self._dtype or weight.requires_grad:
            return self._stored(old, weight)
        if old is not None and old.data_ptr() != weight.data_ptr():
            self.decoding = None  # its CUDA graphs read the weight where it was
        return weight.data

    def _stored(self, old: Tensor | None, new: Tensor) -> Tensor:
        """Return the weight, in the memory of the old one if there is one, since CUDA graphs read it there."""
        if old is not None and old.shape == new.shape:
            return old.copy_(new)
        self.decoding = None
        return new.to(self._dtype, copy=True)


def _inputs(attention: Any) -> tuple[Any, ...]:
    return attention.q_proj, attention.k_proj, attention.v_proj


def _gates(mlp: Any) -> tuple[Any, ...]:
    return mlp.gate_proj, mlp.up_proj


def _adapters(linear: Any) -> tuple[Tensor, Tensor]:
    """Return A and B of a layer's active adapters, B times their scaling; zeros if they are off."""
    if not hasattr(linear, "lora_A"):
        return linear.weight[:0], linear.weight[:, :0]
    active = [] if linear.disable_adapters else [name for name in linear.active_adapters if name in linear.lora_A]
    names = active or [*linear.lora_A][:1]
    outer = [linear.lora_B[name].weight * (linear.scaling[name] if active else 0.0) for name in names]
    return torch.cat([linear.lora_A[name].weight for name in names]), torch.cat(outer, 1)


def _additive(mask: Tensor, dtype: Any) -> Tensor:
    """Return what is added to attention scores, from a mask of the cache or of left-padded prompts (rows × tokens)."""
    seen = mask
    if mask.dim() == 2:
        length = mask.shape[1]
        causal = torch.ones(length, length, dtype=torch.bool, device=mask.device).tril()
        itself = torch.eye(length, dtype=torch.bool, device=mask.device)  # padding must see something
        seen = (causal & mask.bool()[:, None, None, :]) | itself
    return torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill_(~seen, float("-inf"))


class NextToken:
    """Computes attention and gates, with kernels where they can be used."""

    def __init__(self, heads: int, kv_heads: int, size: int, act: Any, machine: Machine) -> None:
        self._heads, self._act = (heads, kv_heads), act
        shape = heads, kv_heads, size
        self._kernels = kernels_support(*shape, act) and available(machine) and agree(*shape, machine)

    @property
    def uses_kernels(self) -> bool:
        return self._kernels and not _failures

    def attended(self, qkv: Tensor, cos: Tensor, sin: Tensor, *others: Any) -> Tensor:
        """As `attended_next`, without the numbers of heads."""
        inputs = (qkv, cos, sin, *self._heads, *others)
        found = by_kernel("attended_next", *inputs) if self.uses_kernels else None
        return attended_next(*inputs) if found is None else found

    def gated(self, gate_up: Tensor) -> Tensor:
        """As `gated` of the first dimension."""
        found = by_kernel("gated", gate_up) if self.uses_kernels else None
        return gated(gate_up, self._act, 0) if found is None else found


def attended_next(
    qkv: Tensor,
    cos: Tensor,
    sin: Tensor,
    heads: int,
    kv_heads: int,
    keys: Tensor,
    values: Tensor,
    slot: Tensor,
    mask: Tensor,
    scaling: float,
) -> Tensor:
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


def rotated(qkv: Tensor, cos: Tensor, sin: Tensor, heads: int, kv_heads: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return queries, keys and values (rows × heads × tokens × size), the first two with the rotary embedding."""
    turned = qkv.roll(qkv.shape[-1] // 2, -1)[:, :, :-kv_heads]
    query_key = torch.addcmul(qkv[:, :, :-kv_heads] * cos, turned, sin).transpose(1, 2)
    return query_key[:, :heads], query_key[:, heads:], qkv[:, :, -kv_heads:].transpose(1, 2)


def gated(gate_up: Tensor, act: Any, dim: int) -> Tensor:
    """Return the activated gates times the other half."""
    gate, up = gate_up.chunk(2, dim)
    return act(gate).mul_(up)


def kernels_support(heads: int, kv_heads: int, size: int, act: object) -> bool:
    """Whether the kernels can compute these shapes and this activation."""
    is_silu = type(act).__name__ in ("SiLU", "SiLUActivation")
    return is_silu and size in _SIZES and heads % kv_heads == 0 and heads // kv_heads <= _LARGEST_GROUP


def available(machine: Machine) -> bool:
    """Whether the machine can run the kernels and they are not turned off."""
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

    def given(values: Tensor) -> Tensor:
        return values.to(machine.device, getattr(torch, machine.dtype))

    def drawn(*shape: int) -> Tensor:
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

        def attended(compute: Any, inputs: list[Tensor], cache: list[Tensor], mask: Tensor, slot: Tensor = slot) -> Any:
            return compute(*inputs, heads, kv_heads, *cache, slot, mask, size**-0.5)

        expected = attended(attended_next, [each.float() for each in inputs], exact, mask.float())
        computed = attended(partial(by_kernel, "attended_next"), inputs, cache, mask)
        activated = None if computed is None else by_kernel("gated", gates)
        if activated is None:
            return None
        pairs: list[tuple[Any, Tensor]] = [(computed, expected), *zip(cache, exact, strict=True)]
        pairs.append((activated, gated(gates.float(), torch.nn.functional.silu, 0)))
        found += [float(((one.float() - other).abs() / (1 + other.abs())).max()) for one, other in pairs]
    return float(torch.tensor(found).max())
