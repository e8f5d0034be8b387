"""Triton kernels for next tokens in bfloat16; `next_token` decides whether they are used.

`attended_next` is the rotary embedding, the writing of the cache and grouped attention as one kernel: a program for
each answer and key-value head. The first call compiles them, for which Triton needs a C compiler.
"""

# pyright: basic, reportMissingImports=false, reportArgumentType=false, reportIndexIssue=false

from typing import Any

import triton
import triton.language as tl

_BLOCK = 64
QUERIES = 16
"""The smallest number of rows of a Triton matrix product; a group of heads is padded to it, and must not be larger."""


@triton.jit
def _attend(
    qkv,
    cos,
    sin,
    keys,
    values,
    slot,
    mask,
    out,
    scaling,
    cache_row,
    cache_head,
    mask_row,
    heads: tl.constexpr,
    kv_heads: tl.constexpr,
    size: tl.constexpr,
    padded: tl.constexpr,
    length: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    group: tl.constexpr = heads // kv_heads
    column = tl.arange(0, size)
    partner = (column + size // 2) % size
    cosine = tl.load(cos + row * size + column).to(tl.float32)
    sine = tl.load(sin + row * size + column).to(tl.float32)
    own = qkv + row * (heads + 2 * kv_heads) * size
    dtype = keys.dtype.element_ty

    number = tl.arange(0, padded)
    real = (number < group)[:, None]
    queries = own + (head * group + number)[:, None] * size
    straight = tl.load(queries + column[None, :], mask=real, other=0.0).to(tl.float32)
    turned = tl.load(queries + partner[None, :], mask=real, other=0.0).to(tl.float32)
    query = (straight * cosine[None, :] + turned * sine[None, :]).to(dtype)

    new = own + (heads + head) * size
    key = tl.load(new + column).to(tl.float32) * cosine + tl.load(new + partner).to(tl.float32) * sine
    key = key.to(dtype)
    value = tl.load(own + (heads + kv_heads + head) * size + column)
    last = tl.load(slot).to(tl.int32)
    cached = row * cache_row + head * cache_head
    tl.store(keys + cached + last * size + column, key)
    tl.store(values + cached + last * size + column, value)

    # The new token is seen by itself in any case; the others are added block by block.
    highest = tl.sum(query.to(tl.float32) * key.to(tl.float32)[None, :], 1) * scaling
    total = tl.full([padded], 1.0, tl.float32)
    summed = tl.zeros([padded, size], tl.float32) + value.to(tl.float32)[None, :]
    for start in range(0, last, length):
        token = start + tl.arange(0, length)
        known = token < last
        places = cached + token[:, None] * size + column[None, :]
        block = tl.load(keys + places, mask=known[:, None], other=0.0)
        hidden = tl.load(mask + row * mask_row + token, mask=known, other=float("-inf")).to(tl.float32)
        scores = tl.dot(query, tl.trans(block)) * scaling + hidden[None, :]
        higher = tl.maximum(highest, tl.max(scores, 1))
        shrunk = tl.exp(highest - higher)
        weights = tl.exp(scores - higher[:, None])
        block = tl.load(values + places, mask=known[:, None], other=0.0)
        total = total * shrunk + tl.sum(weights, 1)
        summed = summed * shrunk[:, None] + tl.dot(weights.to(dtype), block)
        highest = higher
    answers = out + (row * heads + head * group + number)[:, None] * size + column[None, :]
    tl.store(answers, (summed / total[:, None]).to(dtype), mask=real)


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
    """As `next_token.attended_next`."""
    rows, size = len(qkv), qkv.shape[-1]
    assert qkv.is_contiguous() and cos.is_contiguous() and sin.is_contiguous()
    assert keys.stride() == values.stride() and keys.stride()[2:] == (size, 1) and mask.stride(-1) == 1
    assert keys.stride(0) < 2**31  # places within a row are 32-bit numbers
    out = qkv.new_empty(rows, 1, heads, size)
    shape = {"heads": heads, "kv_heads": kv_heads, "size": size, "padded": QUERIES, "length": _BLOCK}
    strides = (keys.stride(0), keys.stride(1), mask.stride(0))
    _attend[(rows, kv_heads)](qkv, cos, sin, keys, values, slot, mask, out, scaling, *strides, **shape)
    return out


@triton.jit
def _gate(gate_up, out, half, length: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * length + tl.arange(0, length)
    known = place < half
    gate = tl.load(gate_up + place, mask=known).to(tl.float32)
    up = tl.load(gate_up + half + place, mask=known).to(tl.float32)
    tl.store(out + place, (gate / (1 + tl.exp(-gate)) * up).to(out.dtype.element_ty), mask=known)


def gated(gate_up: Any) -> Any:
    """As `next_token.gated`, with SiLU and gates above the other half (2 × inner, answers)."""
    assert gate_up.is_contiguous()
    out = gate_up.new_empty(len(gate_up) // 2, gate_up.shape[1])
    _gate[(triton.cdiv(out.numel(), 1024),)](gate_up, out, out.numel(), length=1024)
    return out
