"""Less memory per device: layers that are computed again instead of kept, and weights spread over processes (FSDP).

Of spread weights each process keeps a part of every tensor, and gathers the whole of a layer while it computes.
"""

from __future__ import annotations

import importlib
from typing import Any

from evenhand.errors import UsageError
from evenhand.training.parallel import Team, is_spread


def layers_of(model: Any) -> list[Any]:
    """The blocks that a model repeats: what is gathered, or computed again, one at a time."""
    layer: Any = importlib.import_module("transformers.modeling_layers").GradientCheckpointingLayer
    return [module for module in model.modules() if isinstance(module, layer)]


def compute_again(model: Any) -> None:
    """Keep only what goes into a layer, and compute the rest again for its gradients: less memory, more time.

    Not by transformers' own switch, which works in training mode alone; our models have their dropout off.
    """
    layers = layers_of(model)
    if not layers:
        raise UsageError(
            "This kind of model has no layers that can be computed again; leave out --gradient-checkpointing."
        )
    for layer in layers:
        layer.forward = _again(layer.forward)


def _again(forward: Any) -> Any:
    torch: Any = importlib.import_module("torch")
    checkpoint: Any = importlib.import_module("torch.utils.checkpoint").checkpoint

    def compute(*args: Any, **settings: Any) -> Any:
        if not torch.is_grad_enabled():
            return forward(*args, **settings)
        return checkpoint(forward, *args, use_reentrant=False, preserve_rng_state=False, **settings)

    return compute


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
