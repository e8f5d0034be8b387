"""Roll-outs by copies of the policy on Ray, while the trainer trains.

Before each step the trained weights (with LoRA, the adapter alone) are sent to all replicas. With a staleness of 0 the
trainer then waits for the answers, which are those that it would have sampled itself. With a staleness of n the
replicas already answer the prompts of the step that is n steps ahead, so that answers are at most n updates old when
they are learned from. PPO's ratio then compares with the log probabilities with which they were sampled.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evenhand.core.errors import EndpointError, UsageError
from evenhand.core.lazy import torch
from evenhand.models.ray.connect import check_resources, connect, end, enter, is_lost
from evenhand.models.ray.replica import Failure
from evenhand.training import models
from evenhand.training.chat import Chat
from evenhand.training.data import Prompt
from evenhand.training.models import Machine
from evenhand.training.rollout import Rollout, roll_out

if TYPE_CHECKING:
    from torch import Tensor

Load = Callable[[Machine], tuple[Any, Chat]]
"""Loads the policy as the trainer did; its trained weights are replaced."""
_PATIENCE = 300.0
"""Seconds to wait for room on the cluster."""
_MOST_LOSSES = 3
"""A batch that was lost with this many replicas in a row is given up."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How answers are sampled."""

    max_new_tokens: int
    temperature: float


@dataclass(frozen=True, slots=True)
class Part:
    """The answers of one replica."""

    rollout: Rollout
    random_state: Tensor
    steps: int
    """Tokens of the longest answer; the replica has drawn random numbers so often."""


@dataclass(frozen=True, slots=True)
class Answers:
    """The answers to the prompts of a step, on the CPU."""

    rollout: Rollout
    random_state: Tensor
    """Of torch, as it would be after sampling them here."""
    staleness: int
    """How many updates ago the weights were sent."""


class RolloutReplica:
    """The actor: a policy that takes weights and answers prompts."""

    def __init__(self, load: Load, device: str, dtype: str, folder: str) -> None:
        enter(folder)
        self._machine = models.machine(device, dtype)
        self._policy, self._chat = load(self._machine)
        self._weights = models.trainable(self._policy)

    def answer(
        self, weights: Mapping[str, Tensor], prompts: Sequence[Prompt], rows: Sequence[int], seed: int, how: Sampling
    ) -> Part | Failure:
        """Sample answers to some of the prompts with these weights."""
        try:
            with torch.no_grad():
                for name, weight in self._weights.items():
                    weight.copy_(weights[name])
                return self._answer(prompts, rows, seed, how)
        except Exception as error:
            return Failure.of(error)

    def _answer(self, prompts: Sequence[Prompt], rows: Sequence[int], seed: int, how: Sampling) -> Part:
        torch.manual_seed(seed)
        rollout = roll_out(
            self._policy,
            self._chat,
            prompts,
            self._machine,
            max_new_tokens=how.max_new_tokens,
            temperature=how.temperature,
            rows=rows,
        )
        return Part(rollout.to("cpu"), torch.get_rng_state(), rollout.answer.shape[1])


@dataclass(slots=True)
class _Request:
    """Answers that replicas work on: what each was asked, and its promise."""

    version: int
    asked: list[tuple[Any, ...]]
    promises: list[Any]


class RolloutReplicas:
    """The driver's side: sends weights and prompts, and puts the answers together."""

    def __init__(self, load: Load, count: int, machine: Machine, staleness: int) -> None:
        ray = self._ray = connect()
        gpus = float(machine.device.startswith("cuda") and ray.cluster_resources().get("GPU", 0) >= 1)
        check_resources(ray, f"{count} replicas for roll-outs", GPU=gpus * count, CPU=count)
        _wait_for_room(ray, count, {"CPU": 1.0, "GPU": gpus})
        kind = ray.remote(RolloutReplica).options(num_gpus=gpus, num_cpus=1, scheduling_strategy="SPREAD")
        device = "cuda" if gpus else "cpu"
        self._start = lambda: kind.remote(load, device, machine.dtype, str(Path.cwd()))
        self._actors = [self._start() for _ in range(count)]
        self._staleness = staleness
        self._requests: dict[int, _Request] = {}

    def close(self) -> None:
        for actor in self._actors:
            end(self._ray, actor)

    def answers(
        self,
        step: int,
        last: int,
        weights: Mapping[str, Tensor],
        prompts: Callable[[int], Sequence[Prompt]],
        seed: Callable[[int], int],
        how: Sampling,
        pad: int,
    ) -> Answers:
        """Ask for the answers of the steps up to `staleness` ahead with the present weights; return those of `step`."""
        ahead = [each for each in range(step, min(step + self._staleness, last) + 1) if each not in self._requests]
        sent = self._ray.put(dict(weights)) if ahead else None
        for each in ahead:
            asked = prompts(each)
            shares = [range(place, len(asked), len(self._actors)) for place in range(len(self._actors))]
            calls = [(sent, asked, list(rows), seed(each), how) for rows in shares if rows]
            promises = [actor.answer.remote(*call) for actor, call in zip(self._actors, calls, strict=False)]
            self._requests[each] = _Request(step, calls, promises)
        request = self._requests.pop(step)
        parts = [self._part(request, place) for place in range(len(request.promises))]
        longest = max(parts, key=lambda part: part.steps)
        rollout = _joined(parts, [call[2] for call in request.asked], pad)
        return Answers(rollout, longest.random_state, step - request.version)

    def _part(self, request: _Request, place: int) -> Part:
        """Wait for the answers of a replica; if it dies, another gives the same."""
        for _ in range(_MOST_LOSSES):
            try:
                found: Part | Failure = self._ray.get(request.promises[place])
            except Exception as error:
                if not is_lost(error):
                    raise
                self._replace(place)
                request.promises[place] = self._actors[place].answer.remote(*request.asked[place])
                continue
            if isinstance(found, Failure):
                raise found.error()
            return found
        raise EndpointError("The roll-out replicas keep crashing; they may need more memory.", permanent=True)

    def _replace(self, place: int) -> None:
        """Start another replica, and ask it again for what the dead one had not answered."""
        end(self._ray, self._actors[place])
        self._actors[place] = self._start()
        for request in self._requests.values():
            if place < len(request.promises):
                request.promises[place] = self._actors[place].answer.remote(*request.asked[place])


def _wait_for_room(ray: Any, count: int, each: Mapping[str, float]) -> None:
    """Wait until the cluster has room for the replicas, which the workers of a training that died may still take."""
    deadline = time.monotonic() + _PATIENCE
    while lacking := [name for name, need in each.items() if ray.available_resources().get(name, 0) < count * need]:
        if time.monotonic() > deadline:
            raise UsageError(
                f"The cluster has no room for {count} replicas besides what runs on it (each needs a {lacking[0]}); "
                "choose fewer --rollout-replicas or --workers."
            )
        time.sleep(1.0)


def _joined(parts: Sequence[Part], rows: Sequence[Sequence[int]], pad: int) -> Rollout:
    """Put the answers of all replicas in the order of the prompts, padded to the longest."""
    width = max(part.steps for part in parts)
    order = torch.tensor([row for each in rows for row in each]).argsort()

    def column(tensors: Sequence[Tensor], value: float = 0) -> Tensor:
        padded = [
            torch.nn.functional.pad(tensor, (0, width - part.steps), value=value)
            for tensor, part in zip(tensors, parts, strict=True)
        ]
        return torch.cat(padded)[order]

    found = [part.rollout for part in parts]
    texts = [text for each in found for text in each.texts]
    ended = [end for each in found for end in each.ended]
    places: list[int] = order.tolist()
    return Rollout(
        column([each.ids for each in found], pad),
        column([each.mask for each in found]),
        column([each.answer for each in found]),
        [texts[place] for place in places],
        [ended[place] for place in places],
        column([each.logprobs for each in found]),
    )
