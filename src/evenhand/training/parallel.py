"""Processes that train one model together, one per device, as `accelerate launch` or `torchrun` starts them.

Every process knows the whole batch and computes its rows of it. What was computed is put together again, so that all
go on with the numbers that one process alone would have found. Alone, everything here gives back what it was given.
"""

from __future__ import annotations

import atexit
import importlib
import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from evenhand.errors import UsageError

T = TypeVar("T")
_NOT_OF_OURS = ("FSDP_OFFLOAD_PARAMS", "FSDP_ACTIVATION_CHECKPOINTING")


@dataclass(frozen=True, slots=True)
class Team:
    """The place of this process among those that train together; by default it is alone."""

    rank: int = 0
    size: int = 1
    device: str = "cpu"
    shards: bool = False
    """Whether each process keeps only a part of the weights (FSDP)."""

    @property
    def is_main(self) -> bool:
        """Whether this is the process that writes files."""
        return self.rank == 0

    def rows(self, count: int) -> list[int]:
        """Which rows of a batch are computed here: as many in every process, so row 0 again where there are too few."""
        mine = list(range(self.rank, count, self.size))
        return mine + [0] * (math.ceil(count / self.size) - len(mine))

    def gathered(self, count: int, *tensors: Any) -> tuple[Any, ...]:
        """All rows of a batch in their order, from tensors with those of `rows` in every process."""
        if self.size == 1:
            return tensors
        torch: Any = importlib.import_module("torch")
        found: list[Any] = []
        for tensor in tensors:
            every = [torch.empty_like(tensor) for _ in range(self.size)]
            torch.distributed.all_gather(every, tensor.contiguous())
            found.append(torch.stack(every, 1).flatten(0, 1)[:count])
        return tuple(found)

    def parts(self, rows: Sequence[T], at_once: int) -> Iterator[tuple[Sequence[T], int]]:
        """The rows of this process in pieces with weight 1; where others have more pieces, one that weighs nothing.

        Every process takes as many passes through the model, since weights that are spread are gathered in each.
        """
        mine, most = rows[self.rank :: self.size], math.ceil(len(rows) / self.size)
        for first in range(0, most, at_once):
            piece = mine[first : first + at_once]
            yield (piece, 1) if piece else (rows[:1], 0)

    def summed(self, *numbers: float) -> tuple[float, ...]:
        """The sum of each number over all processes."""
        if self.size == 1:
            return numbers
        torch: Any = importlib.import_module("torch")
        tensor = torch.tensor(numbers, dtype=torch.float64, device=self.device)
        torch.distributed.all_reduce(tensor)
        return tuple(tensor.tolist())

    def any(self, here: bool) -> bool:
        """Whether something is so in any process."""
        return self.summed(here)[0] > 0

    def sum_gradients(self, weights: Sequence[Any]) -> None:
        """Add up the gradients of all processes; spread weights have theirs added up already."""
        if self.size == 1:
            return
        torch: Any = importlib.import_module("torch")
        gradients = [each.grad for each in weights if each.grad is not None and not is_spread(each)]
        for under_way in [torch.distributed.all_reduce(gradient, async_op=True) for gradient in gradients]:
            under_way.wait()

    def by_main(self, work: Callable[[], T]) -> T:
        """Have the main process do something while the others wait; all get what came of it, also an error."""
        if self.size == 1:
            return work()
        found: list[Any] = [None, None]
        failed: Exception | None = None
        if self.is_main:
            try:
                found = [work(), None]
            except Exception as error:
                failed, found = error, [None, str(error)]
        torch: Any = importlib.import_module("torch")
        torch.distributed.broadcast_object_list(found, device=torch.device(self.device))
        if failed is not None:
            raise failed
        if found[1] is not None:
            raise UsageError(found[1])
        return found[0]


def is_spread(tensor: Any) -> bool:
    """Whether only a part of a tensor is kept here."""
    return hasattr(tensor, "full_tensor")


def launched() -> int:
    """How many processes a launcher has started for this training."""
    return int(os.environ.get("WORLD_SIZE", "1")) if "LOCAL_RANK" in os.environ else 1


def is_main() -> bool:
    """Whether this process is to speak, also before the processes have met."""
    return launched() == 1 or os.environ.get("RANK", "0") == "0"


def joined(device: str | None) -> Team:
    """Meet the other processes, on a device of one's own (or all on the cpu); alone where none were started."""
    if launched() == 1:
        return Team()
    if device not in (None, "cpu"):
        raise UsageError(f"Each process takes a GPU of its own, so --device {device} is not for several; leave it out.")
    if _asked("ACCELERATE_USE_DEEPSPEED"):
        raise UsageError("Training does not run through DeepSpeed; the configuration fsdp spreads weights as well.")
    shards = _asked("ACCELERATE_USE_FSDP")
    if shards and (os.environ.get("FSDP_VERSION") != "2" or any(map(_asked, _NOT_OF_OURS))):
        raise UsageError(
            "Training knows fsdp_version 2, without offloading; activations are computed again by "
            "--gradient-checkpointing. Start from the configuration fsdp."
        )
    # Else transformers reads weights in the main process alone and leaves those of the others as they happen to be.
    os.environ["FSDP_CPU_RAM_EFFICIENT_LOADING"] = "false"
    torch: Any = importlib.import_module("torch")
    accelerate: Any = importlib.import_module("accelerate")
    state = accelerate.PartialState(cpu=device == "cpu" or not torch.cuda.is_available())
    atexit.unregister(_part)
    atexit.register(_part)
    return Team(state.process_index, state.num_processes, str(state.device), shards)


def _part() -> None:
    """Leave the other processes; one that ends with its connections open may be aborted by them."""
    torch: Any = importlib.import_module("torch")
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def _asked(name: str) -> bool:
    return os.environ.get(name, "false").lower() == "true"


def layers_of(model: Any) -> list[Any]:
    """The blocks that a model repeats: what is gathered, or computed again, one at a time."""
    layer: Any = importlib.import_module("transformers.modeling_layers").GradientCheckpointingLayer
    return [module for module in model.modules() if isinstance(module, layer)]


def spread(model: Any, team: Team, *roots: Any) -> None:
    """Spread a model, wherever it lies, over the devices of a team; its forward pass gathers each layer in turn.

    Args:
        roots: The modules that are called from outside, where that is not the model as a whole.
    """
    if not team.shards:
        return
    fsdp: Any = importlib.import_module("torch.distributed.fsdp")
    mesh: Any = importlib.import_module("torch.distributed.device_mesh")
    devices = mesh.init_device_mesh(team.device.partition(":")[0], (team.size,))
    plugin: Any = importlib.import_module("accelerate.utils").FullyShardedDataParallelPlugin()
    for module in (*layers_of(model), *(roots or (model,))):
        fsdp.fully_shard(module, mesh=devices, reshard_after_forward=plugin.reshard_after_forward)
        module.set_gradient_divide_factor(1.0)  # a sum: losses are divided by the rows of the whole batch already
        module.set_force_sum_reduction_for_comms(True)  # the only way that gloo knows


def whole(tensor: Any) -> Any:
    """A tensor with all its parts; every process must ask for it."""
    return tensor.full_tensor() if is_spread(tensor) else tensor


def like(full: Any, tensor: Any) -> Any:
    """A whole tensor on the device of another and spread as that is."""
    if not is_spread(tensor):
        return full.to(tensor.device)
    distributed: Any = importlib.import_module("torch.distributed.tensor")
    return distributed.distribute_tensor(full.to(tensor.device), tensor.device_mesh, tensor.placements)


def gather(model: Any, team: Team) -> None:
    """Put a spread model together on the CPU of the main process, as if it had never been spread; to be saved."""
    if not team.shards:
        return
    torch: Any = importlib.import_module("torch")
    found: dict[Any, Any] = {}  # tied weights stay tied
    for module in model.modules():
        if hasattr(module, "reshard"):
            module.reshard()
            module.__class__ = type(module).__bases__[1]  # fully_shard had made it a (FSDPModule, its own class)
    for module in model.modules():
        for name, weight in list(module.named_parameters(recurse=False)):
            if weight not in found:
                full = whole(weight.detach())
                found[weight] = torch.nn.Parameter(full.cpu() if team.is_main else full[:0], weight.requires_grad)
            module.register_parameter(name, found[weight])
