"""Advantages without a critic: how much better an answer was than other answers to the same prompt.

A return is what an answer earned in all, one number; those of the answers to one prompt follow each other. Where a
critic guesses what was to be expected, these algorithms sample it.
"""

from __future__ import annotations

from typing import Any


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
