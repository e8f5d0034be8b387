"""The options of each training stage. Defaults are the paper's; where it gives none, they are ours."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from evenhand.core.errors import UsageError
from evenhand.core.specs import spec_parts
from evenhand.scorers.base import SCORERS
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
}


def current_name(stage: str, option: str) -> str:
    """Return the current name of an option that an old command or record may give by its former name."""
    return (_RENAMED_IN_PPO if stage == "ppo" else _RENAMED).get(option, option)


@dataclass(frozen=True, kw_only=True)
class StageOptions:
    """Options of every stage."""

    model: str
    """The model to start from: a folder, an adapter's folder, a GGUF file, a name on the hub, or local/NAME."""
    data: Path
    """A folder written by `evenhand train pairs`, or one of its files."""
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
        return self.steps or max(1, math.ceil(self.epochs * batch_count(rows, self.batch)))

    def as_json(self) -> dict[str, Any]:
        """Return every option except `out` as a JSON value."""
        values = {name: str(value) if isinstance(value, Path) else value for name, value in asdict(self).items()}
        del values["out"]
        return values


@dataclass(frozen=True, kw_only=True)
class SFTOptions(StageOptions):
    """Supervised fine-tuning on low-bias answers."""

    batch: int = 16
    lr: float = 2e-5


@dataclass(frozen=True, kw_only=True)
class RewardOptions(StageOptions):
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
class DPOOptions(StageOptions):
    """Direct preference optimization, which learns from the pairs without a reward model."""

    batch: int = 16
    lr: float = 1e-6
    beta: float = 0.1
    """DPO's β: the weight of the KL divergence from the reference."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_amounts(self, "beta")


@dataclass(frozen=True, kw_only=True)
class PPOOptions(StageOptions):
    """Proximal policy optimization against a reward model, and its variants without a critic."""

    reward: str
    """The folder of the reward model."""
    algorithm: Algorithm = "ppo"
    """How the baseline of an answer's advantage is estimated."""
    answers: int | None = None
    """Answers sampled per prompt, for rloo and grpo only (None: 4)."""
    batch: int = 32
    """Prompts per step, that is, per roll-out."""
    mini_batch: int | None = 4
    """Prompts per update; None: all of the roll-out."""
    lr: float = 5e-6
    critic_lr: float = 3e-5
    critic_warmup: int | None = None
    """Steps at the beginning that train only the critic (None: a tenth of the steps, at most 20)."""
    ppo_epochs: int = 4
    """Passes over each roll-out."""
    max_new_tokens: int = 384
    temperature: float = 1.0
    reward_range: float = 3.0
    """Rewards count in standard deviations of the reference's and saturate at ± this many; 0: as they are."""
    kl_coefficient: float = 0.05
    """β: the weight of the KL divergence from the reference."""
    kl_in: KLPlace = "loss"
    """Where the KL counts: per token in the loss, or summed in the reward."""
    kl_target: float | None = None
    """Nats per token; β is adapted after each step to reach it. None: β is constant."""
    clip: float = 0.2
    """ε: the clip range of probability ratios."""
    value_clip: float = 1.0
    """The clip range of the critic's values."""
    gamma: float = 1.0
    """Discount factor."""
    lam: float = 1.0
    """GAE's λ for the policy; the critic always learns whole returns (λ = 1)."""
    rollout_replicas: int | None = None
    """Copies of the policy on Ray that sample the answers; None: the trainer samples them."""
    staleness: int | None = None
    """How many updates old the weights of these copies may be (None: 0, the trainer waits for the answers)."""
    save_every: int = 10
    """Steps between checkpoints, and between checks of the limits below."""
    drift_limits: bool = True
    """Whether training stops and goes back to the last good checkpoint when answers leave the limits below."""
    shortest: float = 0.6
    """The lowest mean length, as a multiple of the reference's."""
    longest: float = 1.6
    """The highest mean length, as a multiple of the reference's."""
    min_entropy: float = 0.3
    """The lowest entropy per token, as a multiple of the reference's."""
    max_kl: float = 0.3
    """The highest KL divergence from the reference, in nats per token."""
    max_openings: float = 0.3
    """How far the share of answers with the most frequent opening may rise above the reference's."""
    max_unfinished: float = 0.2
    """How far the share of truncated answers may rise above the reference's."""
    choose_by: str | None = None
    """A scorer; the checkpoint whose answers to held-out prompts it scores best is kept. None: the last one."""
    sample_every: int | None = None
    """Steps between answers written to samples.jsonl (None: as `save_every`)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_counts(self, "mini_batch", "ppo_epochs", "max_new_tokens", "answers", "sample_every", "rollout_replicas")
        _check_amounts(self, "critic_lr", "temperature", "clip", "value_clip", "kl_target", "longest", "max_kl")
        _check_amounts(
            self, "critic_warmup", "reward_range", "shortest", "min_entropy", "max_openings", "max_unfinished", least=0
        )
        if self.max_new_tokens >= self.max_length:
            raise UsageError(
                f"max-new-tokens ({self.max_new_tokens}) leaves no room for prompts in max-length ({self.max_length})."
            )
        if self.algorithm not in get_args(Algorithm):
            raise UsageError(f"algorithm must be one of {', '.join(get_args(Algorithm))}, not {self.algorithm!r}.")
        if self.kl_in not in get_args(KLPlace):
            raise UsageError(f"kl-in must be one of {', '.join(get_args(KLPlace))}, not {self.kl_in!r}.")
        if self.staleness not in (None, *range(17)):
            raise UsageError(f"staleness must be a whole number from 0 to 16, not {self.staleness!r}.")
        if self.staleness is not None and self.rollout_replicas is None:
            raise UsageError("--staleness is about replicas that sample the answers; add --rollout-replicas N.")
        if self.choose_by is not None:
            SCORERS.get(spec_parts(self.choose_by)[0])  # says now if there is no such scorer
        if self.answers is not None and self.algorithm not in GROUPED:
            raise UsageError(f"Several answers per prompt are for {' and '.join(GROUPED)}, not for {self.algorithm}.")
        if self.answers_per_prompt == 1 and self.algorithm in GROUPED:
            raise UsageError(f"{self.algorithm} compares the answers to a prompt, so it needs 2 or more.")

    @property
    def answers_per_prompt(self) -> int:
        return (self.answers or 4) if self.algorithm in GROUPED else 1

    @property
    def answers_per_update(self) -> int:
        return min(self.mini_batch or self.batch, self.batch) * self.answers_per_prompt

    @property
    def answers_at_once(self) -> int:
        """Answers in one forward pass: the micro-batch, or those of one update."""
        return self.micro_batch or self.answers_per_update

    def critic_steps(self, steps: int) -> int:
        """Return how many of the first steps train only the critic."""
        if self.algorithm != "ppo":
            return 0
        return min(20, steps // 10) if self.critic_warmup is None else self.critic_warmup


def batch_count(rows: int, batch: int) -> int:
    """Return the number of batches that rows make: a rest of less than half a batch joins the last one."""
    return max(1, (2 * rows + batch) // (2 * batch))


def _check_counts(options: StageOptions, *names: str) -> None:
    for name in names:
        value = getattr(options, name)
        if value is not None and (not isinstance(value, int) or value < 1):
            raise UsageError(f"{name.replace('_', '-')} must be a whole number above 0, not {value!r}.")


def _check_amounts(options: StageOptions, *names: str, least: int | None = None) -> None:
    """Check for numbers from `least` up, or above 0; options whose default is None may be left at it."""
    for name in names:
        value = getattr(options, name)
        if value is None and options.__dataclass_fields__[name].default is None:
            continue
        if not isinstance(value, int | float) or not (value > 0 if least is None else value >= least):
            allowed = "above 0" if least is None else f"from {least} up"
            raise UsageError(f"{name.replace('_', '-')} must be a number {allowed}, not {value!r}.")
