"""The options of each training stage. Defaults are the paper's; where it gives none, they are ours."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args, get_origin

from pydantic import BeforeValidator, ModelWrapValidatorHandler, ValidationError, field_validator, model_validator
from pydantic.fields import FieldInfo

from evenhand.core.errors import UsageError
from evenhand.core.options import Request, argument, bare_type, bounds_of, option
from evenhand.core.specs import scalar, spec_parts
from evenhand.scorers.base import SCORERS
from evenhand.training.chat import MAX_LENGTH

Precision = Literal["float32", "bfloat16"]
Algorithm = Literal["ppo", "rloo", "grpo", "remax"]
KLPlace = Literal["loss", "reward"]
Decay = Literal["constant", "linear", "cosine"]
GROUPED = ("rloo", "grpo")
"""Algorithms that compare several answers to each prompt."""
_DRIFT: Mapping[str, Any] = {"min_entropy": 0.0, "max_kl": 1.0, "max_openings": 1.0}
"""Right answers to questions are short, sure and often alike, so these limits would stop a training that goes well."""
FROM_BASE = "from_base"
"""The option of a recipe's reward model by which it starts from the base model, as RLDF's authors have it."""


def listed(value: Any) -> tuple[str, ...]:
    """Return the parts of a text with commas, or of a list, each once."""
    parts = value.split(",") if isinstance(value, str) else map(str, value or ())
    return tuple(dict.fromkeys(name for part in parts if (name := part.strip())))


Listed = Annotated[Sequence[str], BeforeValidator(listed)]
"""Names: a list, or on the command line one text with commas."""


def read_stage_settings(texts: Iterable[str]) -> dict[str, dict[str, object]]:
    """Parse STAGE.OPTION=VALUE into options by stage."""
    stages: dict[str, dict[str, object]] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        stage, _, name = key.partition(".")
        if not equals:
            raise UsageError(f"--set takes STAGE.OPTION=VALUE, e.g. ppo.lr=1e-5, not {text!r}.")
        stages.setdefault(stage, {})[name] = scalar(value)
    return stages


class CheckedOptions(Request):
    """Options that refuse a wrong value by its name, also where they are made without `parse`."""

    @model_validator(mode="wrap")
    @classmethod
    def _in_one_sentence(cls, values: object, validate: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            return validate(values)
        except ValidationError as error:
            first = error.errors()[0]
            name = str(first["loc"][0]) if first["loc"] else ""
            if name not in cls.model_fields or first["type"] == "missing":
                raise
            allowed = _allowed(cls.model_fields[name])
            raise UsageError(f"{name.replace('_', '-')} must be {allowed}, not {first['input']!r}.") from error


class TrainingOptions(CheckedOptions):
    """Options of every training."""

    model: str = option(
        ...,
        "The model to start from: a folder, an adapter's folder, a name on the hub, a .gguf file, or local/builtin.",
        short="-m",
        metavar="MODEL",
        common=True,
    )
    out: Path = option(..., "A new folder for the model.", short="-o", metavar="FOLDER", common=True)
    seed: int = option(0, "Seed of all random numbers.")

    def as_json(self) -> dict[str, object]:
        """Return every option except `out` as a JSON value."""
        return self.model_dump(mode="json", exclude={"out"})


class SharedOptions(TrainingOptions):
    """Options that all stages share."""

    data: Path = argument("A folder written by `evenhand train pairs`, or one of its files.", metavar="PAIRS")
    micro_batch: int | None = option(None, "Rows computed at once, to save memory; same result.", gt=0)
    gradient_checkpointing: bool = option(False, "Less memory, more time; same result.")
    max_length: int = option(
        MAX_LENGTH, "Tokens of a conversation; prompts are truncated on the left.", gt=0, common=True
    )
    lora: int | None = option(None, "Rank of LoRA adapters (default: all weights are trained).", gt=0, common=True)
    lora_layers: str | None = option(
        None, "With --lora: only these layers, e.g. q_proj,v_proj (default: all linear ones).", metavar="NAMES"
    )
    keep_adapter: bool = option(False, "With --lora: save the adapter alone, not merged.")
    dtype: Precision | None = option(
        None, "Precision of the computation; weights stay float32 (default: bfloat16 on a GPU, else float32)."
    )
    device: str | None = option(None, "cpu, cuda, cuda:1, … (default: a GPU if there is one).", common=True)
    save_every: int = option(100, "Steps between checkpoints.", gt=0)
    chat_template: Path | None = option(None, "A Jinja file, for a model without a chat template.")
    pad_token: str | None = option(None, "A token of the tokenizer, if it has no padding token.")

    @property
    def has_adapters(self) -> bool:
        return self.lora is not None

    @model_validator(mode="after")
    def _has_an_adapter(self) -> Self:
        for name in ("keep_adapter", "lora_layers"):
            if getattr(self, name) and not self.has_adapters:
                raise UsageError(f"--{name.replace('_', '-')} works only with --lora.")
        return self


class StageOptions(SharedOptions):
    """Options of every stage."""

    batch: int = option(16, "Rows per step.", gt=0, common=True)
    lr: float = option(2e-5, "Learning rate.", gt=0, common=True)
    epochs: float = option(1, "Passes over the data.", gt=0, common=True)
    steps: int | None = option(None, "Number of steps; overrides --epochs.", gt=0, common=True)
    warmup: int | None = option(None, "Steps in which learning rates rise to their value (default: 3 % of all).", ge=0)
    lr_decay: Decay = option("linear", "Learning rates after their warm-up: constant, or falling to 0.")

    def total_steps(self, rows: int) -> int:
        """Return the number of steps for this many rows of data."""
        return self.steps or max(1, math.ceil(self.epochs * batch_count(rows, self.batch)))


class FixedDataOptions(StageOptions):
    """Options of stages that learn from given answers; the passes of a PPO step must agree, so it has no dropout."""

    lora_dropout: float = option(0.0, "With --lora: dropout of what goes into the adapters.", ge=0, le=0.9)

    @model_validator(mode="after")
    def _drops_from_an_adapter(self) -> Self:
        if self.lora_dropout and not self.has_adapters:
            raise UsageError("--lora-dropout works only with --lora.")
        return self


class SFTOptions(FixedDataOptions):
    """Supervised fine-tuning on low-bias answers."""


class RewardOptions(FixedDataOptions):
    """The reward model."""

    batch: int = option(32, "Rows per step.", gt=0, common=True)
    lr: float = option(3e-5, "Learning rate.", gt=0, common=True)
    negatives: float = option(
        0.1, "Share of added pairs with a padded, doubled or off-topic answer.", ge=0, le=1, common=True
    )
    margin_weight: float = option(
        0.0,
        "Weight of the referee's margin in the loss: rewards should differ by this much per point; 0 leaves it out.",
        ge=0,
        le=10,
    )
    ensemble: int = option(
        1, "Heads; with several, the reward is their mean minus their standard deviation.", gt=0, common=True
    )


class DPOOptions(FixedDataOptions):
    """Direct preference optimization, which learns from the pairs without a reward model."""

    lr: float = option(1e-6, "Learning rate.", gt=0, common=True)
    beta: float = option(0.1, "DPO's β: the weight of the KL divergence from the reference.", gt=0, common=True)


class PPOOptions(StageOptions):
    """Proximal policy optimization against a reward model, and its variants without a critic."""

    reward: str = option(..., "The folder of the reward model.", metavar="FOLDER", common=True)
    algorithm: Algorithm = option("ppo", "How the baseline of an answer's advantage is estimated.", common=True)
    answers: int | None = option(None, "Answers per prompt, for rloo and grpo (default 4).", gt=0, common=True)
    batch: int = option(32, "Prompts per step, that is, per roll-out.", gt=0, common=True)
    mini_batch: int | None = option(4, "Prompts per update.", gt=0)
    lr: float = option(5e-6, "Learning rate.", gt=0, common=True)
    lr_decay: Decay = option("constant", "Learning rates after their warm-up: constant, or falling to 0.")
    weight_decay: float = option(0.0, "AdamW's weight decay.", ge=0)
    critic_lr: float = option(3e-5, "Learning rate of the critic.", gt=0)
    critic_warmup: int | None = option(
        None, "First steps, which train only the critic (default: a tenth, at most 20).", ge=0
    )
    ppo_epochs: int = option(4, "Passes over each roll-out.", gt=0)
    max_new_tokens: int = option(384, "Maximum length of an answer.", gt=0, common=True)
    temperature: float = option(1.0, "Sampling temperature; 0 decodes greedily, so that remax learns nothing.", ge=0)
    reward_range: float = option(
        3.0, "Rewards count in SDs of the reference's and saturate at ± this many; 0: as they are.", ge=0
    )
    kl_coefficient: float = option(0.05, "β: the weight of the KL divergence from the reference.", common=True)
    kl_in: KLPlace = option(
        "loss",
        "The KL as a loss of each token (its gradient: that of KL(reference‖policy) of the next token), or as a reward "
        "of each token and those before it (that of KL(policy‖reference) of answers, as in the paper).",
    )
    kl_target: float | None = option(None, "Adapt the KL coefficient to this KL, in nats per token.", gt=0)
    importance_cap: float | None = option(
        None, "Weight tokens by their probability in training over that in sampling, up to this (default: not).", gt=0
    )
    clip: float = option(0.2, "ε: the clip range of probability ratios.", gt=0)
    value_clip: float = option(1.0, "Clip range of the critic's values.", gt=0)
    gamma: float = option(1.0, "Discount factor.")
    lam: float = option(1.0, "GAE's λ for the policy; the critic always learns whole returns (λ = 1).")
    rollout_replicas: int | None = option(
        None, "Sample answers by this many copies of the policy on Ray (default: the trainer does).", metavar="N", gt=0
    )
    staleness: int | None = option(
        None, "With --rollout-replicas: how many updates old their weights may be (default 0: the trainer waits)."
    )
    save_every: int = option(10, "Steps between checkpoints, and between checks of the limits below.", gt=0)
    drift_limits: bool = option(
        True, "Stop and go back to the last good checkpoint when answers leave the limits below."
    )
    shortest: float = option(0.6, "Lowest mean length, in multiples of the reference's.", ge=0)
    longest: float = option(1.6, "Highest mean length, in multiples of the reference's.", gt=0)
    min_entropy: float = option(0.3, "Lowest entropy per token, in multiples of the reference's.", ge=0)
    max_kl: float = option(0.3, "Highest KL from the reference, in nats per token.", gt=0)
    max_openings: float = option(0.3, "Highest rise of the share of answers with the same opening.", ge=0)
    max_unfinished: float = option(0.2, "Highest rise of the share of truncated answers.", ge=0)
    choose_by: str | None = option(
        None,
        "Keep the checkpoint whose answers to held-out prompts this scorer rates best, e.g. opinion:JUDGE "
        "(default: the last one).",
        metavar="SCORER",
    )
    sample_every: int | None = option(
        None, "Steps between answers written to samples.jsonl (default: as --save-every).", gt=0
    )

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if self.max_new_tokens >= self.max_length:
            raise UsageError(
                f"max-new-tokens ({self.max_new_tokens}) leaves no room for prompts in max-length ({self.max_length})."
            )
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
        return self

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


class VerifiableOptions(TrainingOptions):
    """A training on questions whose answer is known; options of its single stages are in `sft` and `rl`."""

    data: Path | None = option(None, "Rows of your own instead of generated questions.", metavar="ROWS", common=True)
    rows: int | None = option(
        None, "Questions, held-out ones included (default 21000; of --data: all).", gt=0, common=True
    )
    forms: Listed = option((), "Answer forms (default: all).", metavar="FORM,…", common=True)
    languages: Listed = option((), "Languages of the questions (default: all).", metavar="CODE,…", common=True)
    general: float = option(0.3, "Share of the model's own answers to general prompts.", ge=0, lt=1, common=True)
    keep: float = option(
        4.0,
        "How strongly it is held to its untrained self on these; 0: only to its answers as text.",
        ge=0,
        le=100,
        common=True,
    )
    general_tokens: int = option(320, "Maximum length of an answer to a general prompt.", gt=0, common=True)
    probes: int = option(
        200,
        "Requests of each area asked before and after, to see what was forgotten; 0: none.",
        ge=0,
        le=5000,
        common=True,
    )
    allow_loss: float = option(
        2.0,
        "Points that an area may lose; the length of answers may change by five times as many percent. Beyond them the "
        "exit code is 5 (see `evenhand train forgets`).",
        ge=0,
        common=True,
    )
    lora: int | None = option(16, "Rank of the adapters; 0 trains all weights.", ge=0, common=True)
    merge: bool = option(False, "Save merged weights instead of the adapter.", common=True)
    max_new_tokens: int = option(128, "Maximum length of a sampled answer.", gt=0, common=True)
    shared: Mapping[str, Any] = {}
    """Options of both stages, for example the device."""
    sft: Mapping[str, Any] = {}
    rl: Mapping[str, Any] | None = None
    """None: no RL."""

    @field_validator("lora")
    @classmethod
    def _all_weights(cls, rank: int | None) -> int | None:
        return rank or None

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if self.merge and self.lora is None:
            raise UsageError("All weights are trained, so there is nothing to merge; remove --merge.")
        self.sft_options()
        self.rl_options()
        return self

    def sft_options(self) -> SFTOptions:
        """Return the options of the fine-tuning."""
        full = self.lora is None
        own: dict[str, Any] = {"batch": 32, "lr": 5e-5 if full else 3e-4}
        return SFTOptions(
            model=self.model,
            data=self.out / "questions",
            out=self.out / "sft",
            lora=self.lora,
            keep_adapter=not full and not (self.merge and self.rl is None),
            seed=self.seed,
            **(own | dict(self.shared) | dict(self.sft)),
        )

    def rl_options(self) -> PPOOptions | None:
        """Return the options of RL, which goes on with the adapter of the fine-tuning; None without RL."""
        if self.rl is None:
            return None
        full = self.lora is None
        own: dict[str, Any] = {"algorithm": "rloo", "batch": 32, "micro_batch": 16, "ppo_epochs": 1, "steps": 60}
        own |= {"lr": 1e-6 if full else 2e-5, "kl_coefficient": 0.02, "mini_batch": None, "reward_range": 0.0}
        own |= dict(_DRIFT)
        own |= dict(self.shared) | dict(self.rl)
        if own["algorithm"] == "ppo":
            raise UsageError("ppo needs a critic, and a grader has none; choose rloo, grpo or remax.")
        if own["algorithm"] in GROUPED:
            own.setdefault("answers", 8)
        return PPOOptions(
            model=str(self.out / "sft"),
            data=self.out / "questions",
            out=self.out / "rl",
            reward="grader",
            lora=self.lora,
            keep_adapter=not full and not self.merge,
            seed=self.seed,
            max_new_tokens=self.max_new_tokens,
            **own,
        )


def batch_count(rows: int, batch: int) -> int:
    """Return the number of batches that rows make: a rest of less than half a batch joins the last one."""
    return max(1, (2 * rows + batch) // (2 * batch))


def _allowed(field: FieldInfo) -> str:
    """Say what values a field may have."""
    kind, bounds = bare_type(field.annotation), bounds_of(field)
    if get_origin(kind) is Literal:
        return f"one of {', '.join(map(str, get_args(kind)))}"
    whole = "a whole number" if kind is int else "a number"
    if kind not in (int, float):
        return "true or false" if kind is bool else "a text"
    for end, to in (("le", "to"), ("lt", "to below")):
        if bounds.keys() == {"ge", end}:
            return f"{whole} from {bounds['ge']} {to} {bounds[end]}"
    return whole + (
        f" above {bounds['gt']}" if "gt" in bounds else f" from {bounds['ge']} up" if "ge" in bounds else ""
    )
