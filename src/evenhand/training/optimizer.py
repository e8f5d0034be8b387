"""AdamW over named weights, whose whole state is tensors by name: what a checkpoint holds."""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evenhand.errors import UsageError
from evenhand.training import parallel
from evenhand.training.parallel import Team

_MOMENTS = ("exp_avg", "exp_avg_sq", "step")


@dataclass(frozen=True, slots=True)
class Schedule:
    """The share of the learning rate at a step: it rises at first and then, where asked to, falls to zero."""

    steps: int
    warm_up: float = 0.03
    falls: bool = True

    def share(self, number: int) -> float:
        rising = max(1, round(self.warm_up * self.steps))
        if number < rising:
            return (number + 1) / rising
        return (self.steps - number) / max(1, self.steps - rising) if self.falls else 1.0


class Optimizer:
    """Groups of named weights, each with its learning rate; gradients longer than `longest` are shortened."""

    def __init__(
        self,
        groups: Sequence[tuple[Mapping[str, Any], float]],
        schedule: Schedule,
        *,
        longest: float = 1.0,
        team: Team | None = None,
    ) -> None:
        torch: Any = importlib.import_module("torch")
        self.team = team or Team()
        self._named = {name: weight for named, _ in groups for name, weight in named.items()}
        self._rates = [rate for _, rate in groups]
        self._schedule = schedule
        self._longest = longest
        self._adam = torch.optim.AdamW(
            [{"params": list(named.values()), "lr": rate} for named, rate in groups], weight_decay=0.0
        )

    def begin(self, number: int) -> None:
        """Take the learning rate of a step."""
        for group, rate in zip(self._adam.param_groups, self._rates, strict=True):
            group["lr"] = rate * self._schedule.share(number)

    def update(self) -> float:
        """Move the weights along the gradients gathered so far in all processes; the gradients' length."""
        torch: Any = importlib.import_module("torch")
        self.team.sum_gradients(list(self._named.values()))
        clipped: Any = torch.nn.utils.clip_grad_norm_
        lengths = [float(parallel.whole(clipped(group["params"], self._longest))) for group in self._adam.param_groups]
        if not all(math.isfinite(length) for length in lengths):
            raise UsageError("The gradient is not a number; a lower --lr or --dtype float32 may help.")
        self._adam.step()
        self._adam.zero_grad(set_to_none=True)
        return lengths[0]

    def state(self) -> dict[str, Any]:
        """Weights and moments by name; every process must ask for them, and the main one gets them."""
        tensors = {f"weight/{name}": weight.detach() for name, weight in self._named.items()}
        for name, weight in self._named.items():
            moments = self._adam.state.get(weight, {})
            tensors |= {f"{moment}/{name}": moments[moment] for moment in _MOMENTS if moment in moments}
        found: dict[str, Any] = {}
        for name, tensor in tensors.items():
            full = parallel.whole(tensor)
            if self.team.is_main:
                found[name] = full.cpu().contiguous()
        return found

    def restore(self, tensors: Mapping[str, Any]) -> None:
        """Go back to a state; raises KeyError or RuntimeError where it is one of other weights."""
        torch: Any = importlib.import_module("torch")
        with torch.no_grad():
            for name, weight in self._named.items():
                weight.copy_(parallel.like(tensors[f"weight/{name}"], weight))
                moments = {each: tensors[f"{each}/{name}"] for each in _MOMENTS if f"{each}/{name}" in tensors}
                self._adam.state[weight] = {
                    each: tensor if each == "step" else parallel.like(tensor, weight)
                    for each, tensor in moments.items()
                }
