"""The options of each training stage. Defaults are the paper's; where it gives none, they are ours."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from evenhand.errors import UsageError
from evenhand.training.chat import MAX_LENGTH

Precision = Literal["float32", "bfloat16"]
Algorithm = Literal["ppo", "rloo", "grpo", "remax"]
KLPlace = Literal["loss", "reward"]
GROUPED = ("rloo", "grpo")
"""Algorithms that compare several answers to each prompt."""
_RENAMED: Mapping[str, str] = {"rate": "lr"}
_RENAMED_IN_PPO: Mapping[str, str] = {
    **_RENAMED,
    "critic_rate": "critic_lr",
    "passes": "ppo_epochs",
    "beta": "kl_coefficient",
    "no_end_penalty": "missing_eos_penalty",
}


def current_name(stage: str, option: str) -> str:
    """Return the current name of an option that an old command or record may give by its former name."""
    return (_RENAMED_IN_PPO if stage == "ppo" else _RENAMED).get(option, option)


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of every stage."""

    model: str
    """The model to start from: a folder, an adapter's folder, a GGUF file, a name on the hub, or local/NAME."""
    data: Path
    """A folder written by `evenhand pairs`, or one of its files."""
    out: Path
    batch: int
    lr: float
    """Learning rate."""
    micro_batch: int | None = None
    """Rows computed at once. Gradients are accumulated over a batch, so this changes memory but not the result."""
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass instead of storing them: less memory, more time."""
    epochs: float = 1
    steps: int | None = None
    """Number of steps; overrides `epochs`."""
    max_length: int = MAX_LENGTH
    """Tokens of a conversation."""
    lora: int | None = None
    """Rank of LoRA adapters; None trains all weights."""
    keep_adapter: bool = False
    """Save the adapter alone instead of merging it into the weights."""
    dtype: Precision | None = None
    """Precision of the computation; trained weights are always float32. None: bfloat16 on GPUs, else float32."""
    device: str | None = None
    seed: int = 0
    save_every: int = 100
    """Steps between checkpoints."""
    chat_template: Path | None = None
    pad_token: str | None = None

    def __post_init__(self) -> None:
        _check_counts(self, "batch", "micro_batch", "steps", "max_length", "lora", "save_every")
        _check_amounts(self, "lr", "epochs")
        if self.keep_adapter and self.lora is None:
            raise UsageError("--keep-adapter works only with --lora.")

    def total_steps(self, rows: int) -> int:
        """Return the number of steps for this many rows of data."""
        return self.steps or max(1, math.ceil(self.epochs * math.ceil(rows / self.batch)))

    def as_json(self) -> dict[str, Any]:
        """Return every option except `out` as a JSON value."""
        values = {name: str(value) if isinstance(value, Path) else value for name, value in asdict(self).items()}
        del values["out"]
        return values


@dataclass(frozen=True, kw_only=True)
class SFTOptions(Options):
    """Supervised fine-tuning on low-bias answers."""

    batch: int = 16
    lr: float = 2e-5


@dataclass(frozen=True, kw_only=True)
class RewardOptions(Options):
    """The reward model."""

    batch: int = 32
    lr: float = 3e-5
    negatives: float = 0.1
    """Pairs with an empty, cut or off-topic rejected answer that are added, as a share of the pairs."""
    margin_weight: float = 0.0
    """Weight of the referee's margin in the loss: rewards should differ by this much per point; 0 leaves it out."""
    ensemble: int = 1
    """Number of heads. With several, the reward is their mean minus their standard deviation."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_counts(self, "ensemble")
        for name, most in (("negatives", 1), ("margin_weight", 10)):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not 0 <= value <= most:
                raise UsageError(f"{name.replace('_', '-')} must be a number from 0 to {most}, not {value!r}.")


@dataclass(frozen=True, kw_only=True)
class DPOOptions(Options):
    """Direct preference optimization, which learns from the pairs without a reward model."""

    batch: int = 16
    lr: float = 1e-6
    beta: float = 0.1
    """DPO's β: the weight of the KL divergence from the reference."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_amounts(self, "beta")


@dataclass(frozen=True, kw_only=True)
class PPOOptions(Options):
    """Proximal policy optimization against a reward model, and its variants without a critic."""

    reward: str
    """The folder of the reward model."""
    algorithm: Algorithm = "ppo"
    """How the baseline of an answer's advantage is estimated."""
    answers: int | None = None
    """Answers sampled per prompt, for rloo and grpo only (None: 4)."""
    batch: int = 4
    """Prompts per step."""
    lr: float = 5e-6
    critic_lr: float = 3e-5
    ppo_epochs: int = 4
    """Updates with each batch of answers."""
    max_new_tokens: int = 128
    temperature: float = 1.0
    kl_coefficient: float = 0.05
    """β: the weight of the KL divergence from the reference."""
    kl_in: KLPlace | None = None
    """Where the KL counts: per token in the loss, or summed in the reward (None: in the reward for ppo only)."""
    clip: float = 0.2
    """ε: the clip range of probability ratios and of values."""
    gamma: float = 1.0
    """Discount factor."""
    lam: float = 0.95
    """GAE's λ."""
    missing_eos_penalty: float = 0.5
    """Subtracted from the reward of an answer that was truncated before it ended."""
    kl_limit: float = 20.0
    """Training stops when the mean KL divergence of a batch exceeds this many nats."""
    sample_every: int | None = None
    """Steps between answers written to samples.jsonl (None: as `save_every`)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_counts(self, "ppo_epochs", "max_new_tokens", "answers", "sample_every")
        _check_amounts(self, "critic_lr", "temperature", "clip", "kl_limit")
        if self.max_new_tokens >= self.max_length:
            raise UsageError(
                f"max-new-tokens ({self.max_new_tokens}) leaves no room for prompts in max-length ({self.max_length})."
            )
        if self.algorithm not in get_args(Algorithm):
            raise UsageError(f"algorithm must be one of {', '.join(get_args(Algorithm))}, not {self.algorithm!r}.")
        if self.kl_in not in (None, *get_args(KLPlace)):
            raise UsageError(f"kl-in must be one of {', '.join(get_args(KLPlace))}, not {self.kl_in!r}.")
        if self.answers is not None and self.algorithm not in GROUPED:
            raise UsageError(f"Several answers per prompt are for {' and '.join(GROUPED)}, not for {self.algorithm}.")
        if self.answers_per_prompt == 1 and self.algorithm in GROUPED:
            raise UsageError(f"{self.algorithm} compares the answers to a prompt, so it needs 2 or more.")

    @property
    def answers_per_prompt(self) -> int:
        return (self.answers or 4) if self.algorithm in GROUPED else 1

    @property
    def kl_in_loss(self) -> bool:
        return (self.kl_in or ("reward" if self.algorithm == "ppo" else "loss")) == "loss"

    @property
    def answers_at_once(self) -> int:
        """Answers in one forward pass: the micro-batch, or the whole batch."""
        return self.micro_batch or self.batch * self.answers_per_prompt


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
