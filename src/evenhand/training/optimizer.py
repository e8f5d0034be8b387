"""AdamW over named weights. Its whole state is a set of named tensors, which is what a checkpoint stores."""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evenhand.core.errors import UsageError
from evenhand.training import parallel
from evenhand.training.parallel import Team

_MOMENTS = ("exp_avg", "exp_avg_sq", "step")


@dataclass(frozen=True, slots=True)
class Schedule:
    """The learning-rate schedule: linear warm-up, then constant or (by default) linear decay to zero."""

    steps: int
    warmup: float = 0.03
    decays: bool = True

    def factor(self, step: int) -> float:
        """Return the factor of the learning rate at a step."""
        warmup_steps = max(1, round(self.warmup * self.steps))
        if step < warmup_steps:
            return (step + 1) / warmup_steps
        return (self.steps - step) / max(1, self.steps - warmup_steps) if self.decays else 1.0


class Optimizer:
    """AdamW with one learning rate per group of named weights. Clips the gradients of each group to `max_norm`."""

    def __init__(
        self,
        groups: Sequence[tuple[Mapping[str, Any], float]],
        schedule: Schedule,
        *,
        max_norm: float = 1.0,
        team: Team | None = None,
    ) -> None:
        torch: Any = importlib.import_module("torch")
        self.team = team or Team()
        self._named = {name: weight for named, _ in groups for name, weight in named.items()}
        self._learning_rates = [lr for _, lr in groups]
        self._schedule = schedule
        self._max_norm = max_norm
        self.kept: dict[str, Any] = {}
        """Other tensors, by name, that belong to the state of the training."""
        self._adam = torch.optim.AdamW(
            [{"params": list(named.values()), "lr": lr} for named, lr in groups], weight_decay=0.0
        )

    def begin(self, step: int) -> None:
        """Set the learning rates of a step."""
        for group, lr in zip(self._adam.param_groups, self._learning_rates, strict=True):
            group["lr"] = lr * self._schedule.factor(step)

    def update(self) -> float:
        """Update the weights with the gradients of all processes; return the gradient norm of the first group."""
        torch: Any = importlib.import_module("torch")
        self.team.sum_gradients(list(self._named.values()))
        clip: Any = torch.nn.utils.clip_grad_norm_
        norms = [
            float(parallel.full_tensor(clip(group["params"], self._max_norm))) for group in self._adam.param_groups
        ]
        if not all(math.isfinite(norm) for norm in norms):
            raise UsageError("The gradient is not a number; a lower --lr or --dtype float32 may help.")
        self._adam.step()
        self._adam.zero_grad(set_to_none=True)
        return norms[0]

    def state(self) -> dict[str, Any]:
        """Return weights and moments by name. Every process must call this; only the main one gets the tensors."""
        tensors = {f"weight/{name}": weight.detach() for name, weight in self._named.items()}
        for name, weight in self._named.items():
            moments = self._adam.state.get(weight, {})
            tensors |= {f"{moment}/{name}": moments[moment] for moment in _MOMENTS if moment in moments}
        tensors |= {f"kept/{name}": tensor for name, tensor in self.kept.items()}
        state: dict[str, Any] = {}
        for name, tensor in tensors.items():
            full = parallel.full_tensor(tensor)
            if self.team.is_main:
                state[name] = full.cpu().contiguous()
        return state

    def restore(self, tensors: Mapping[str, Any]) -> None:
        """Load a state. Raises KeyError or RuntimeError if it belongs to other weights."""
        torch: Any = importlib.import_module("torch")
        self.kept = {name: tensors[f"kept/{name}"] for name in self.kept}
        with torch.no_grad():
            for name, weight in self._named.items():
                weight.copy_(parallel.sharded_like(tensors[f"weight/{name}"], weight))
                moments = {each: tensors[f"{each}/{name}"] for each in _MOMENTS if f"{each}/{name}" in tensors}
                self._adam.state[weight] = {
                    each: tensor if each == "step" else parallel.sharded_like(tensor, weight)
                    for each, tensor in moments.items()
                }
