"""One connection to Ray for models, runs and training: the cluster at RAY_ADDRESS, or a Ray on this machine alone."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import logging
import os
from typing import Any

from evenhand.core.errors import MissingExtraError, UsageError

ADDRESS = "RAY_ADDRESS"
_OBJECTS = 256 << 20
"""Bytes of shared memory of a Ray that we start; requests and rows are small."""
_STARTS = 3
"""How often we try to start Ray: on a busy machine its own limit of 30 s may be too short."""
_OURS = {
    "RAY_USAGE_STATS_ENABLED": "0",  # it reports to nobody
    "RAY_enable_metrics_collection": "0",
    "RAY_worker_niceness": "0",  # the workers do what the user waits for
    "RAY_agent_register_timeout_ms": "120000",  # 15 s do not suffice on a busy machine
}
"""The environment of a Ray that we start."""


def check_installed() -> None:
    """Refuse to go on without the package."""
    if importlib.util.find_spec("ray") is None:
        raise MissingExtraError("Ray", "ray")


def set_address(on: str) -> None:
    """Take `--on`: `ray`, or `ray://HOST:PORT` for a cluster elsewhere."""
    if on != "ray" and not (on.startswith("ray://") and len(on) > len("ray://")):
        raise UsageError(f"--on takes ray or ray://HOST:PORT, not {on!r}.")
    check_installed()
    if on != "ray":
        os.environ[ADDRESS] = on


def connect() -> Any:
    """Return the module `ray`, connected; the first call joins or starts Ray."""
    check_installed()
    address = os.environ.get(ADDRESS)
    for name, value in () if address else _OURS.items():
        os.environ.setdefault(name, value)
    ray: Any = importlib.import_module("ray")
    if ray.is_initialized():
        return ray
    for attempt in range(1 if address else _STARTS):
        try:
            _init(ray, address)
            break
        except Exception as error:  # Ray raises a plain Exception if a node does not start in time
            if not address and attempt + 1 < _STARTS:
                continue
            reason = str(error).strip().partition("\n")[0] or type(error).__name__
            where = f"Ray cannot be reached at {address}" if address else "Ray cannot be started here"
            hint = "; a cluster with a token needs RAY_AUTH_MODE=token and RAY_AUTH_TOKEN here, too" if address else ""
            raise UsageError(f"{where}: {reason}{hint}.") from error
    return ray


def _init(ray: Any, address: str | None) -> None:
    own = {} if address else {"object_store_memory": _OBJECTS, "include_dashboard": False}
    ray.init(address=address or "local", log_to_driver=False, logging_level=logging.ERROR, **own)


def is_lost(error: BaseException) -> bool:
    """Whether an error says that an actor, its worker or its node is gone."""
    exceptions: Any = importlib.import_module("ray.exceptions")
    return isinstance(
        error,
        (
            exceptions.RayActorError,
            exceptions.WorkerCrashedError,
            exceptions.NodeDiedError,
            exceptions.ObjectLostError,
            exceptions.OutOfMemoryError,
            exceptions.RaySystemError,
        ),
    )


def end(ray: Any, actor: Any) -> None:
    """Kill an actor; it may be gone already."""
    with contextlib.suppress(Exception):
        ray.kill(actor, no_restart=True)


def check_resources(ray: Any, what: str, **needed: float) -> None:
    """Refuse work that a Ray on this machine alone cannot place; a cluster may still grow."""
    total: dict[str, float] = {} if os.environ.get(ADDRESS) else ray.cluster_resources()
    for name, amount in needed.items():
        if total and amount > total.get(name, 0):
            kind = {"GPU": "GPUs", "CPU": "CPU cores"}[name]
            raise UsageError(f"{what} needs {amount:g} {kind}, and this machine has {total.get(name, 0):g}.")


def enter(folder: str) -> None:
    """Work in the driver's folder where it exists on this node, so that relative paths mean the same."""
    with contextlib.suppress(OSError):
        os.chdir(folder)
