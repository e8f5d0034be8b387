"""Given texts and their likelihoods: what the providers that can score them share."""

from __future__ import annotations

from collections.abc import Sequence

from evenhand.core.types import TokenLogprob

START = "\n"
"""What each text is read after, so that its first token has a probability, too."""


def log_likelihood(tokens: Sequence[TokenLogprob], after: int = 0) -> tuple[float, int]:
    """Return the sum of the log-probabilities, and the number, of the tokens that end behind character `after`."""
    total, count, end = 0.0, 0, 0
    for token in tokens:
        end += len(token.token)
        if end > after:
            total, count = total + token.logprob, count + 1
    return total, count
