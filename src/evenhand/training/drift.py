"""How far a policy's answers have drifted from those of the reference to the same prompts, and the limits of that.

A reward model can be pleased in wrong ways: by very short answers, or by one answer to everything. The reward does not
show this, but the answers do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from evenhand.training.options import PPOOptions

_OPENING = 5
"""Words."""
_MOST_TRUNCATED = 0.1
"""Above this share of truncated answers of the reference, there is a warning."""


@dataclass(frozen=True, slots=True)
class Measures:
    """What is measured on a policy's answers."""

    length: float
    """Tokens."""
    entropy: float
    """Nats per token."""
    kl: float
    """Nats per token, from the reference."""
    openings: float
    """The share of answers that begin with the most frequent opening."""
    unfinished: float
    """The share of truncated answers."""
    reward: float
    """The quantity that training optimises, unscaled."""
    score: float | None = None
    """What the scorer of `choose_by` says, from 0 to 1, higher for better answers."""

    def as_metrics(self) -> dict[str, float]:
        return {f"check_{name}": value for name, value in asdict(self).items() if value is not None}


def most_frequent_opening(texts: Sequence[str]) -> float:
    """Return the share of texts that begin with the same words as most do."""
    openings = Counter(" ".join(text.lower().split()[:_OPENING]) for text in texts)
    return openings.most_common(1)[0][1] / len(texts)


def too_short(truncated: float, max_new_tokens: int) -> str | None:
    """Return a warning if too many answers of the reference do not end within the limit, or None."""
    if truncated <= _MOST_TRUNCATED:
        return None
    return (
        f"{truncated:.0%} of the answers do not end within {max_new_tokens} tokens before anything is trained, and "
        "only what there is of them is scored. Start again with a higher max-new-tokens, e.g. "
        f"--max-new-tokens {2 * max_new_tokens} (in a recipe --set ppo.max_new_tokens={2 * max_new_tokens})."
    )


def breach(now: Measures, reference: Measures, limits: PPOOptions) -> str | None:
    """Return which limit the answers have left, as the end of a sentence, or None."""
    if not limits.shortest * reference.length <= now.length <= limits.longest * reference.length:
        return (
            f"answers have {now.length:.1f} tokens, not {limits.shortest:g} to {limits.longest:g} times the "
            f"reference's {reference.length:.1f}"
        )
    if now.entropy < limits.min_entropy * reference.entropy:
        return (
            f"the entropy is {now.entropy:.2f} nats per token, below {limits.min_entropy:g} times the reference's "
            f"{reference.entropy:.2f}"
        )
    if now.kl > limits.max_kl:
        return f"the KL from the reference is {now.kl:.2f} nats per token, above {limits.max_kl:g}"
    if now.openings > reference.openings + limits.max_openings:
        return (
            f"{now.openings:.0%} of answers begin with the same words, more than the reference's "
            f"{reference.openings:.0%} plus {limits.max_openings:.0%}"
        )
    if now.unfinished > reference.unfinished + limits.max_unfinished:
        return (
            f"{now.unfinished:.0%} of answers are truncated, more than the reference's {reference.unfinished:.0%} plus "
            f"{limits.max_unfinished:.0%}"
        )
    return None
