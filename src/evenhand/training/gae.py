"""Generalized advantage estimation (Schulman et al., 2016): how much better each token was than expected."""

from __future__ import annotations

from typing import Any


def advantages(rewards: Any, values: Any, mask: Any, *, gamma: float, lam: float) -> Any:
    """Advantages of tokens (tensors, answers × tokens), where `mask` is 1 on an answer and 0 after its end.

    With δ_t = r_t + γ·V_{t+1} − V_t, the advantage is A_t = δ_t + γλ·A_{t+1}; after the end there is nothing to gain,
    so V and A are 0 there. The returns that the critic is to predict are A + V.
    """
    values = values * mask
    found = values * 0
    following = ahead = values[:, 0] * 0
    for t in range(values.shape[1] - 1, -1, -1):
        delta = rewards[:, t] + gamma * following - values[:, t]
        ahead = (delta + gamma * lam * ahead) * mask[:, t]
        following = values[:, t]
        found[:, t] = ahead
    return found
