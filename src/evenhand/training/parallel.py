"""Data-parallel training: one process per device, as `accelerate launch` or `torchrun` starts them.

Every process knows the whole batch and computes its own rows. The results are gathered, so that all processes continue
with the numbers that a single process would have computed. With FSDP each process also keeps only a shard of every
tensor and gathers a layer while it computes. In a single process every function here returns its input unchanged.
"""

from __future__ import annotations

import atexit
import importlib
import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from evenhand.core.errors import UsageError
from evenhand.core.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T")
_UNSUPPORTED = ("FSDP_OFFLOAD_PARAMS", "FSDP_ACTIVATION_CHECKPOINTING")


@dataclass(frozen=True, slots=True)
class Team:
    """This process among those that train together. The default is a single process."""

    rank: int = 0
    size: int = 1
    device: str = "cpu"
    shards: bool = False
    """Whether each process keeps only a shard of the weights (FSDP)."""

    @property
    def is_main(self) -> bool:
        """Whether this is the process that writes files."""
        return self.rank == 0

    def own_rows(self, count: int) -> list[int]:
        """Return the rows of a batch that this process computes.

        Every process gets the same number of rows; row 0 fills the gaps.
        """
        own = list(range(self.rank, count, self.size))
        return own + [0] * (math.ceil(count / self.size) - len(own))

    def all_gather(self, count: int, *tensors: Tensor) -> tuple[Any, ...]:
        """Return all rows of a batch in order, from tensors that hold the `own_rows` of each process."""
        if self.size == 1:
            return tensors
        gathered: list[Tensor] = []
        for tensor in tensors:
            shards = [torch.empty_like(tensor) for _ in range(self.size)]
            torch.distributed.all_gather(shards, tensor.contiguous())
            gathered.append(torch.stack(shards, 1).flatten(0, 1)[:count])
        return tuple(gathered)

    def micro_batches(self, rows: Sequence[T], size: int) -> Iterator[tuple[Sequence[T], int]]:
        """Yield the rows of this process in micro-batches, each with weight 1.

        All processes must take the same number of forward passes, because sharded weights are gathered in each. A
        process with fewer rows gets extra micro-batches with weight 0.
        """
        own, most = rows[self.rank :: self.size], math.ceil(len(rows) / self.size)
        for first in range(0, most, size):
            micro_batch = own[first : first + size]
            yield (micro_batch, 1) if micro_batch else (rows[:1], 0)

    def all_sum(self, *numbers: float) -> tuple[float, ...]:
        """Return the sum of each number over all processes."""
        if self.size == 1:
            return numbers
        tensor = torch.tensor(numbers, dtype=torch.float64, device=self.device)
        torch.distributed.all_reduce(tensor)
        return tuple(tensor.tolist())

    def any(self, here: bool) -> bool:
        """Whether a condition holds in any process."""
        return self.all_sum(here)[0] > 0

    def sum_gradients(self, weights: Sequence[Tensor]) -> None:
        """Sum the gradients of all processes. FSDP has already summed those of sharded weights."""
        if self.size == 1:
            return
        gradients = [each.grad for each in weights if each.grad is not None and not is_sharded(each)]
        for pending in [torch.distributed.all_reduce(gradient, async_op=True) for gradient in gradients]:
            pending.wait()

    def on_main(self, work: Callable[[], T]) -> T:
        """Run a function in the main process while the others wait. All get its result, or its error."""
        if self.size == 1:
            return work()
        shared: list[Any] = [None, None]  # result, error message
        failure: Exception | None = None
        if self.is_main:
            try:
                shared = [work(), None]
            except Exception as error:
                failure, shared = error, [None, str(error)]
        torch.distributed.broadcast_object_list(shared, device=torch.device(self.device))
        if failure is not None:
            raise failure
        if shared[1] is not None:
            raise UsageError(shared[1])
        return shared[0]


def launched_processes() -> int:
    """Return how many processes a launcher started for this training."""
    return int(os.environ.get("WORLD_SIZE", "1")) if "LOCAL_RANK" in os.environ else 1


def is_main() -> bool:
    """Whether this is the main process. Works before `join_team`."""
    return launched_processes() == 1 or os.environ.get("RANK", "0") == "0"


def join_team(device: str | None) -> Team:
    """Connect to the other processes, each on its own GPU or all on the CPU; a single process is a team of one."""
    if launched_processes() == 1:
        return Team()
    if device not in (None, "cpu"):
        raise UsageError(f"With several processes each takes a GPU of its own; remove --device {device}.")
    if _env_flag("ACCELERATE_USE_DEEPSPEED"):
        raise UsageError("DeepSpeed is not supported; use the configuration fsdp, which shards weights as well.")
    shards = _env_flag("ACCELERATE_USE_FSDP")
    if shards and (os.environ.get("FSDP_VERSION") != "2" or any(map(_env_flag, _UNSUPPORTED))):
        raise UsageError(
            "Only fsdp_version 2 without offloading is supported, with --gradient-checkpointing instead of "
            "fsdp_activation_checkpointing. Start from the configuration fsdp."
        )
    # Otherwise transformers reads weights in the main process alone and leaves those of the others uninitialized.
    os.environ["FSDP_CPU_RAM_EFFICIENT_LOADING"] = "false"
    accelerate: Any = importlib.import_module("accelerate")
    state = accelerate.PartialState(cpu=device == "cpu" or not torch.cuda.is_available())
    atexit.unregister(_leave_team)
    atexit.register(_leave_team)
    return Team(state.process_index, state.num_processes, str(state.device), shards)


def _leave_team() -> None:
    """Close the connections; a process that exits with open ones may be aborted by the others."""
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def _env_flag(name: str) -> bool:
    return os.environ.get(name, "false").lower() == "true"


# Sharded weights (FSDP)


def layers_of(model: Any) -> list[Any]:
    """Return the repeated blocks of a model: the unit that FSDP gathers and gradient checkpointing recomputes."""
    layer: Any = importlib.import_module("transformers.modeling_layers").GradientCheckpointingLayer
    return [module for module in model.modules() if isinstance(module, layer)]


def shard(model: Any, team: Team, *roots: Any) -> None:
    """Shard a model over the devices of a team; its forward pass gathers one layer at a time.

    Args:
        roots: The modules that are called from outside, if that is not the model as a whole.
    """
    if not team.shards:
        return
    fsdp: Any = importlib.import_module("torch.distributed.fsdp")
    device_mesh: Any = importlib.import_module("torch.distributed.device_mesh")
    mesh = device_mesh.init_device_mesh(team.device.partition(":")[0], (team.size,))
    plugin: Any = importlib.import_module("accelerate.utils").FullyShardedDataParallelPlugin()
    for module in (*layers_of(model), *(roots or (model,))):
        fsdp.fully_shard(module, mesh=mesh, reshard_after_forward=plugin.reshard_after_forward)
        module.set_gradient_divide_factor(1.0)  # sum: losses are already divided by the rows of the whole batch
        module.set_force_sum_reduction_for_comms(True)  # gloo supports nothing else


def unshard(model: Any, team: Team) -> None:
    """Gather a sharded model on the CPU of the main process and undo the sharding, so that it can be saved."""
    if not team.shards:
        return
    gathered: dict[Any, Any] = {}  # tied weights stay tied
    for module in model.modules():
        if hasattr(module, "reshard"):
            module.reshard()
            module.__class__ = type(module).__bases__[1]  # fully_shard had made it a (FSDPModule, original class)
    for module in model.modules():
        for name, weight in list(module.named_parameters(recurse=False)):
            if weight not in gathered:
                full = full_tensor(weight.detach())
                gathered[weight] = torch.nn.Parameter(full.cpu() if team.is_main else full[:0], weight.requires_grad)
            module.register_parameter(name, gathered[weight])


def is_sharded(tensor: Tensor) -> bool:
    """Whether this process keeps only a shard of a tensor."""
    return hasattr(tensor, "full_tensor")


def full_tensor(tensor: Any) -> Tensor:
    """Return a tensor with all its shards. Every process must call this."""
    return tensor.full_tensor() if is_sharded(tensor) else tensor


def sharded_like(full: Tensor, tensor: Any) -> Tensor:
    """Move a full tensor to the device of another tensor and shard it in the same way."""
    if not is_sharded(tensor):
        return full.to(tensor.device)
    distributed: Any = importlib.import_module("torch.distributed.tensor")
    return distributed.distribute_tensor(full.to(tensor.device), tensor.device_mesh, tensor.placements)
