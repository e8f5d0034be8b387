"""The losses of training as small functions of tensors; masks are 1 where a token counts."""

from __future__ import annotations

import importlib
from typing import Any

torch: Any = importlib.import_module("torch")


def masked_mean(values: Any, mask: Any) -> Any:
    return (values * mask).sum() / mask.sum().clamp(min=1)


def whitened(values: Any, mask: Any) -> Any:
    """Mean 0 and variance 1 over the tokens that count."""
    mean = masked_mean(values, mask)
    spread = masked_mean((values - mean) ** 2, mask)
    return (values - mean) * (spread + 1e-8).rsqrt() * mask


def ranking_loss(chosen: Any, rejected: Any) -> Any:
    """−log σ(chosen − rejected), averaged over pairs."""
    return -torch.nn.functional.logsigmoid(chosen - rejected).mean()


def token_logprobs(logits: Any, tokens: Any) -> Any:
    """The log probability of each token; logits are those of its place."""
    logits = logits.float()
    return logits.gather(-1, tokens.unsqueeze(-1)).squeeze(-1) - logits.logsumexp(-1)


def token_entropies(logits: Any) -> Any:
    logprobs = logits.float().log_softmax(-1)
    return -(logprobs.exp() * logprobs).sum(-1)


def token_rewards(scores: Any, logprobs: Any, reference: Any, mask: Any, beta: float) -> Any:
    """−β·(log π − log π_ref) at every token, and the answer's score on top at its last one."""
    rewards = -beta * (logprobs - reference) * mask
    last = mask.sum(1).long() - 1
    rewards[torch.arange(len(rewards), device=rewards.device), last] += scores
    return rewards


def clipped_policy_loss(logprobs: Any, before: Any, advantages: Any, mask: Any, clip: float) -> tuple[Any, Any]:
    """PPO's loss, and the share of tokens where the clip holds the policy back."""
    ratio = (logprobs - before).exp()
    free, held = -advantages * ratio, -advantages * ratio.clamp(1 - clip, 1 + clip)
    return masked_mean(torch.maximum(free, held), mask), masked_mean((held > free).float(), mask)


def clipped_value_loss(values: Any, before: Any, returns: Any, mask: Any, clip: float) -> Any:
    """Half the squared error of the critic, whose values may move only by `clip` from those at the roll-out."""
    held = before + (values - before).clamp(-clip, clip)
    return 0.5 * masked_mean(torch.maximum((values - returns) ** 2, (held - returns) ** 2), mask)
