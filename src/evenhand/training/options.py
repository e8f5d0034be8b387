"""What can be chosen for each stage of training; the defaults are the paper's, or DECISIONS where it is silent."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from evenhand.errors import UsageError
from evenhand.training.chat import MAX_LENGTH

Precision = Literal["float32", "bfloat16"]
Algorithm = Literal["ppo", "rloo", "grpo", "remax"]
GROUPED = ("rloo", "grpo")
"""Algorithms that compare several answers to each prompt."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """What all stages share."""

    model: str
    """Where to begin: a folder, an adapter's folder, a GGUF file, a name on the hub, or local/NAME."""
    data: Path
    """A folder by `evenhand pairs`, or one of its files."""
    out: Path
    batch: int
    rate: float
    micro_batch: int | None = None
    """Rows computed at once; the gradients of a batch add up, so this changes memory and not the result."""
    gradient_checkpointing: bool = False
    """Compute layers again for their gradients instead of keeping what they computed: less memory, more time."""
    epochs: float = 1
    steps: int | None = None
    """Stop after this many steps, instead of by epochs."""
    max_length: int = MAX_LENGTH
    lora: int | None = None
    """Train low-rank adapters of this rank instead of all weights."""
    keep_adapter: bool = False
    """Save the adapter alone instead of merging it into the weights."""
    dtype: Precision | None = None
    """What is computed in; weights that are trained are float32 all the same. None: bfloat16 on GPUs."""
    device: str | None = None
    seed: int = 0
    save_every: int = 100
    chat_template: Path | None = None
    pad_token: str | None = None

    def __post_init__(self) -> None:
        _check_counts(self, "batch", "micro_batch", "steps", "max_length", "lora", "save_every")
        _check_amounts(self, "rate", "epochs")
        if self.keep_adapter and self.lora is None:
            raise UsageError("There is an adapter to keep only with --lora.")

    def total_steps(self, rows: int) -> int:
        """How many steps there are with this many rows of data."""
        return self.steps or max(1, math.ceil(self.epochs * math.ceil(rows / self.batch)))

    def as_json(self) -> dict[str, Any]:
        """Every option as plain values, without where the result goes."""
        values = {name: str(value) if isinstance(value, Path) else value for name, value in asdict(self).items()}
        del values["out"]
        return values


@dataclass(frozen=True, kw_only=True)
class SFTOptions(Options):
    """Supervised fine-tuning on low-bias answers."""

    batch: int = 16
    rate: float = 2e-5


@dataclass(frozen=True, kw_only=True)
class RewardOptions(Options):
    """The reward model."""

    batch: int = 32
    rate: float = 3e-5


@dataclass(frozen=True, kw_only=True)
class DPOOptions(Options):
    """Direct preference optimization: the policy learns from the pairs themselves, without a reward model."""

    batch: int = 16
    rate: float = 1e-6
    beta: float = 0.1
    """The price of a nat of divergence from the reference."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_amounts(self, "beta")


@dataclass(frozen=True, kw_only=True)
class PPOOptions(Options):
    """Proximal policy optimization against a reward model, and its relatives without a critic."""

    reward: str
    """The folder of the reward model."""
    algorithm: Algorithm = "ppo"
    """What an answer's advantage is measured against."""
    answers: int | None = None
    """Answers to each prompt of a batch; only rloo and grpo compare several (None: 4)."""
    batch: int = 4
    rate: float = 5e-6
    critic_rate: float = 3e-5
    passes: int = 4
    """Updates with each batch of answers."""
    max_new_tokens: int = 128
    temperature: float = 1.0
    beta: float = 0.05
    """The price of a nat of divergence from the reference."""
    clip: float = 0.2
    gamma: float = 1.0
    lam: float = 0.95
    no_end_penalty: float = 0.5
    """Taken from the reward of an answer that was cut off before it ended."""
    kl_limit: float = 20.0
    """Training stops once answers diverge by more than this many nats."""
    sample_every: int | None = None
    """Steps between answers that are kept for reading (None: as between checkpoints)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_counts(self, "passes", "max_new_tokens", "answers", "sample_every")
        _check_amounts(self, "critic_rate", "temperature", "clip", "kl_limit")
        if self.max_new_tokens >= self.max_length:
            raise UsageError(f"max-new-tokens ({self.max_new_tokens}) leaves no room for prompts in {self.max_length}.")
        if self.algorithm not in get_args(Algorithm):
            raise UsageError(f"algorithm must be one of {', '.join(get_args(Algorithm))}, not {self.algorithm!r}.")
        if self.answers is not None and self.algorithm not in GROUPED:
            raise UsageError(f"Several answers to a prompt are for {' and '.join(GROUPED)}, not for {self.algorithm}.")
        if self.per_prompt == 1 and self.algorithm in GROUPED:
            raise UsageError(f"{self.algorithm} compares the answers to a prompt, so it needs 2 or more.")

    @property
    def per_prompt(self) -> int:
        """How many answers each prompt gets."""
        return (self.answers or 4) if self.algorithm in GROUPED else 1

    @property
    def at_once(self) -> int:
        """How many answers are computed at once."""
        return self.micro_batch or self.batch * self.per_prompt


def _check_counts(options: Options, *names: str) -> None:
    for name in names:
        value = getattr(options, name)
        if value is not None and (not isinstance(value, int) or value < 1):
            raise UsageError(f"{name.replace('_', '-')} must be a whole number above 0, not {value!r}.")


def _check_amounts(options: Options, *names: str) -> None:
    for name in names:
        value = getattr(options, name)
        if not isinstance(value, int | float) or not value > 0:
            raise UsageError(f"{name.replace('_', '-')} must be a number above 0, not {value!r}.")
