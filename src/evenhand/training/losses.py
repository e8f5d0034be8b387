"""The losses of training as small functions of tensors; masks are 1 where a token counts."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from evenhand.training.chat import Chat, Encoded
from evenhand.training.models import Machine

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


def gae(rewards: Any, values: Any, mask: Any, *, gamma: float, lam: float) -> Any:
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


def leave_one_out(returns: Any, answers: int) -> Any:
    """RLOO (Ahmadian et al., 2024): each return less the mean of the other answers' returns."""
    groups = returns.view(-1, answers)
    others = (groups.sum(1, keepdim=True) - groups) / (answers - 1)
    return (groups - others).flatten()


def group_normalized(returns: Any, answers: int) -> Any:
    """GRPO (Shao et al., 2024): each return less the mean of its group, in standard deviations of the group."""
    groups = returns.view(-1, answers)
    spread = groups.std(1, keepdim=True) + 1e-4  # a group whose answers are all alike teaches nothing
    return ((groups - groups.mean(1, keepdim=True)) / spread).flatten()


def over_greedy(returns: Any, greedy: Any) -> Any:
    """ReMax (Li et al., 2023): each return less what the likeliest answer to the same prompt gets."""
    return returns - greedy


def answer_logprobs(model: Any, chat: Chat, rows: Sequence[Encoded], machine: Machine) -> Any:
    """The log probability of every answer token, and 0 at all other places (float32, rows × width)."""
    batch = chat.padded(rows, machine.device)
    with machine.autocast():
        logits = model(input_ids=batch.ids, attention_mask=batch.mask, use_cache=False).logits
    return token_logprobs(logits[:, :-1], batch.ids[:, 1:]) * batch.answer[:, 1:]
