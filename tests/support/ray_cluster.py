"""A real Ray of two nodes on this machine, small in memory, whose processes a test may kill."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_enable_metrics_collection": "0",
    "RAY_worker_niceness": "0",
    "RAY_agent_register_timeout_ms": "120000",
    "RAY_ADDRESS": "",
}
MEMORY = 100 << 20


class TwoNodes:
    """The head, with room for all, and a second node."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        head = {"num_cpus": 2, "object_store_memory": MEMORY, "include_dashboard": False}
        self._cluster = Cluster(initialize_head=True, head_node_args=head)
        self._second = self._cluster.add_node(num_cpus=2, object_store_memory=MEMORY)
        self.address: str = self._cluster.address

    def pids(self, actor: str) -> list[int]:
        return pids(actor)

    def kill_node(self) -> None:
        """End the second node and all its processes, without a farewell."""
        self._cluster.remove_node(self._second, allow_graceful=False)

    def stop(self) -> None:
        self._cluster.shutdown()


def pids(actor: str) -> list[int]:
    """The processes of an actor class that this process or a child of it has started."""
    found = psutil.Process().children(recursive=True)
    return [each.pid for each in found if _name(each).startswith(f"ray::{actor}")]


def _name(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


@contextmanager
def two_nodes() -> Iterator[TwoNodes]:
    """A cluster, at RAY_ADDRESS for this process and those that it starts."""
    before = {name: os.environ.get(name) for name in _ENVIRONMENT}
    os.environ.update({name: value for name, value in _ENVIRONMENT.items() if value})
    os.environ.pop("RAY_ADDRESS", None)
    cluster = TwoNodes()
    os.environ["RAY_ADDRESS"] = cluster.address
    try:
        yield cluster
    finally:
        import ray

        ray.shutdown()
        cluster.stop()
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
