"""Losses and advantages: small functions of tensors. A mask is 1 at tokens that count and 0 elsewhere."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from evenhand.core.lazy import torch
from evenhand.training.chat import Chat, Encoded, Packed
from evenhand.training.models import Machine, as_reference

if TYPE_CHECKING:
    from torch import Tensor


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    return (values * mask).sum() / mask.sum().clamp(min=1)


def centered(values: Tensor, mask: Tensor) -> Tensor:
    """Shift values to mean 0 over the masked tokens, and scale them down if their standard deviation is above 1.

    They are never scaled up: where all answers earn the same, only noise is left, and it must stay small.
    """
    values = (values - masked_mean(values, mask)) * mask
    return values / masked_mean(values**2, mask).sqrt().clamp(min=1)


# Log probabilities


def token_logprobs(logits: Tensor, tokens: Tensor) -> Tensor:
    """Return the log probability of each token; `logits` are already shifted to the token's position."""
    loss: Any = torch.nn.functional.cross_entropy  # fewer passes over the logits than logsumexp and gather
    return -loss(logits.float().flatten(0, -2), tokens.flatten(), reduction="none").view(tokens.shape)


def token_entropies(logits: Tensor) -> Tensor:
    """Return the entropy at each token, without gradients."""
    logprobs = logits.detach().float().log_softmax(-1)
    return -(logprobs.exp() * logprobs).sum(-1)


def answer_logprobs(model: Any, chat: Chat, rows: Sequence[Encoded], machine: Machine) -> Tensor:
    """Return the log probability of each row's answer (float32)."""
    packed = chat.pack(rows, machine.device)
    return _row_sums(token_logprobs(_answer_logits(model, packed, machine), packed.next), packed, len(rows))


def spread(values: Tensor, at: Tensor) -> Tensor:
    """Put values at the positions where they were taken, with 0 elsewhere."""
    return values.new_zeros(at.shape).masked_scatter(at, values)


def answer_losses(
    model: Any, reference: Any, chat: Chat, rows: Sequence[Encoded], kept: Sequence[Encoded], machine: Machine
) -> tuple[Tensor, Tensor]:
    """Return minus the log probability of each row's answer, and the divergence from the reference over each kept one.

    That is the KL divergence over the whole vocabulary, which says more than the reference's own answer as the target:
    its mean over the tokens, plus a mean in which token t weighs 1/t. In the first alone the first tokens of a long
    answer hardly count, and they decide its form. The reference reads kept rows only, or any row if there is none,
    since all processes of a team must take the same passes.
    """
    gradients: Any = importlib.import_module("evenhand.training.gradients")  # it imports torch
    with torch.no_grad(), as_reference(model, reference) as untrained:
        target = _answer_logits(untrained, chat.pack(kept or rows[:1], machine.device), machine)
    packed = chat.pack([*rows, *kept], machine.device)
    here = sum(len(row.answer) - (not row.prompt) for row in rows)
    logits: Any = _answer_logits(model, packed, machine)
    learned, own = logits.split([here, len(packed.next) - here])
    apart = gradients.Divergences.apply(own, target[: len(own)]) * _weights(kept, own)
    found = _row_sums(torch.cat([-token_logprobs(learned, packed.next[:here]), apart]), packed, len(rows) + len(kept))
    return found[: len(rows)], found[len(rows) :]


def _weights(kept: Sequence[Encoded], like: Tensor) -> Tensor:
    """The weights of the tokens of kept answers; those of an answer add up to 2."""
    weights = [torch.empty(0)]
    for row in kept:
        early = 1 / torch.arange(1, len(row.answer) + 1)
        weights.append(1 / len(row.answer) + early / early.sum())
    return torch.cat(weights).to(like.device)


def _row_sums(values: Tensor, packed: Packed, rows: int) -> Tensor:
    return values.new_zeros(rows).index_add(0, packed.row, values)


def _answer_logits(model: Any, packed: Packed, machine: Machine) -> Tensor:
    """Return the logits of the answers' tokens (tokens × vocabulary)."""

    def chosen(_head: object, given: tuple[Tensor, ...]) -> tuple[Tensor]:
        return (given[0].flatten(0, 1)[packed.at],)

    # Logits take most of the memory, so only those of answers are computed.
    hook = model.get_output_embeddings().register_forward_pre_hook(chosen)
    try:
        with machine.autocast():
            # Rows of a line start at position 0, by which transformers tells them apart.
            return model(input_ids=packed.ids, position_ids=packed.positions, use_cache=False).logits
    finally:
        hook.remove()


# Pairs


def ranking_loss(chosen: Tensor, rejected: Tensor) -> Tensor:
    """−log σ(chosen − rejected), averaged over pairs."""
    return -torch.nn.functional.logsigmoid(chosen - rejected).mean()


# PPO


def kl_rewards(logprobs: Tensor, reference: Tensor, mask: Tensor, kl_coefficient: float) -> Tensor:
    """Return −β·(log π − log π_ref) at every token (the estimate k1).

    As part of the returns of the tokens up to it, its policy gradient is that of −β·KL(π‖π_ref) of whole answers.
    """
    return -kl_coefficient * (logprobs - reference) * mask


def with_scores(rewards: Tensor, scores: Tensor, mask: Tensor) -> Tensor:
    """Return token rewards with each answer's score added at its last token."""
    last = mask.sum(1).long() - 1
    return rewards.index_put((torch.arange(len(rewards), device=rewards.device), last), scores, accumulate=True)


def kl_estimates(logprobs: Tensor, reference: Tensor) -> Tensor:
    """Return ρ − 1 − log ρ with ρ = π_ref/π at every token (the estimate k3).

    Its mean estimates KL(π‖π_ref), but the gradient of that mean is the gradient of KL(π_ref‖π) of the next token,
    averaged over the prefixes that π writes. What a token changes about later prefixes is not counted.
    """
    log_ratio = reference - logprobs
    return log_ratio.exp() - 1 - log_ratio


def clipped_policy_loss(
    logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, mask: Tensor, clip: float
) -> tuple[Tensor, Tensor]:
    """Return PPO's policy loss and the clip fraction: the share of tokens whose ratio was clipped."""
    ratio = (logprobs - old_logprobs).exp()
    unclipped, clipped = -advantages * ratio, -advantages * ratio.clamp(1 - clip, 1 + clip)
    return masked_mean(torch.maximum(unclipped, clipped), mask), masked_mean((clipped > unclipped).float(), mask)


def clipped_value_loss(values: Tensor, old_values: Tensor, returns: Tensor, mask: Tensor, clip: float) -> Tensor:
    """Half the squared error of the critic, with value clipping: values stay within ±`clip` of the old ones."""
    clipped = old_values + (values - old_values).clamp(-clip, clip)
    return 0.5 * masked_mean(torch.maximum((values - returns) ** 2, (clipped - returns) ** 2), mask)


# Advantages


def gae(rewards: Tensor, values: Tensor, mask: Tensor, *, gamma: float, lam: float) -> Tensor:
    """Generalized advantage estimation (Schulman et al., 2016) per token (tensors, answers × tokens).

    With δ_t = r_t + γ·V_{t+1} − V_t, the advantage is A_t = δ_t + γλ·A_{t+1}. V and A are 0 after the end of an answer.
    """
    values = values * mask
    advantages = values * 0
    next_value = next_advantage = values[:, 0] * 0
    for t in range(values.shape[1] - 1, -1, -1):
        delta = rewards[:, t] + gamma * next_value - values[:, t]
        next_advantage = (delta + gamma * lam * next_advantage) * mask[:, t]
        next_value = values[:, t]
        advantages[:, t] = next_advantage
    return advantages


def returns(rewards: Tensor, mask: Tensor, *, gamma: float) -> Tensor:
    """Return the discounted sum of the rewards from each token on: what the critic should predict."""
    return gae(rewards, rewards * 0, mask, gamma=gamma, lam=1.0)


# Without a critic, the baseline of an answer is sampled instead of predicted. Returns are those of answers, or of
# their tokens (answers × tokens); those of the answers to one prompt are adjacent.


def leave_one_out(returns: Tensor, answers: int) -> Tensor:
    """RLOO (Ahmadian et al., 2024): each return minus the mean return of the other answers to the prompt."""
    groups = returns.view(-1, answers, *returns.shape[1:])
    others = (groups.sum(1, keepdim=True) - groups) / (answers - 1)
    return (groups - others).flatten(0, 1)


def group_normalized(returns: Tensor, answers: int) -> Tensor:
    """GRPO (Shao et al., 2024): each return minus the mean of its group, in standard deviations of the group."""
    groups = returns.view(-1, answers, *returns.shape[1:])
    deviation = groups.std(1, keepdim=True) + 1e-4  # equal returns give an advantage of 0, not a division by 0
    return ((groups - groups.mean(1, keepdim=True)) / deviation).flatten(0, 1)


def over_greedy(returns: Tensor, greedy: Tensor) -> Tensor:
    """ReMax (Li et al., 2023): each return minus the reward of the greedy answer to the same prompt."""
    return returns - greedy
