"""Operations whose gradients are written by hand: fewer kernels and less memory than autograd's. They need torch."""

# pyright: basic

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

_CHUNK = 512
"""Tokens whose probabilities are held in float32 at once."""


class Adapted(Function):
    """A linear layer with a LoRA adapter, x·Wᵀ + bias + scaling·(x·Aᵀ)·Bᵀ, of which only A and B are trained."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, a: Tensor, b: Tensor, scaling: float):
        rows, a, b = x.reshape(-1, x.shape[-1]), a.to(x.dtype), _scaled(b, scaling, x.dtype)
        inner = rows @ a.t()
        out = rows @ weight.t() if bias is None else torch.addmm(bias, rows, weight.t())
        ctx.save_for_backward(rows, weight, a, b, inner)
        ctx.scaling, ctx.shape = scaling, x.shape
        return out.addmm_(inner, b.t()).view(*x.shape[:-1], -1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor):
        rows, weight, a, b, inner = ctx.saved_tensors
        grad = grad.reshape(-1, grad.shape[-1])
        of_inner = grad @ b
        of_x = (grad @ weight).addmm_(of_inner, a).view(ctx.shape) if ctx.needs_input_grad[0] else None
        return of_x, None, None, (of_inner.t() @ rows).float(), _scaled(grad.t() @ inner, ctx.scaling), None


def _scaled(values: Tensor, factor: float, dtype: torch.dtype = torch.float32) -> Tensor:
    """Multiply and convert in one kernel."""
    return torch.mul(values, factor, out=torch.empty_like(values, dtype=dtype))


class Divergences(Function):
    """The KL divergence of each token's probabilities from those of the target's logits, in float32."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor):
        found, grad = logits.new_empty(len(logits), dtype=torch.float32), torch.empty_like(logits)
        for start in range(0, len(logits), _CHUNK):
            here = slice(start, start + _CHUNK)
            own, wanted = (each[here].float().log_softmax(-1) for each in (logits, target))
            shares = wanted.exp()
            found[here] = (shares * wanted.sub_(own)).sum(-1)
            grad[here] = own.exp_().sub_(shares)
        ctx.save_for_backward(grad)
        return found

    @staticmethod
    def backward(ctx: Any, grad: Tensor):
        (own,) = ctx.saved_tensors
        return torch.mul(own, grad[:, None], out=torch.empty_like(own)), None
