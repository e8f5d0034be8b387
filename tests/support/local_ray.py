"""Ray's actors inside the test process, where a test decides when one dies: fast, and without a cluster."""

import asyncio
import concurrent.futures
from collections.abc import Callable, Generator, Sequence
from typing import Any

from ray.exceptions import RayActorError


class _Ref:
    """The result of a call; it begins at once where a loop runs."""

    def __init__(self, actor: "_Actor", method: Callable[..., Any], arguments: Sequence[Any]) -> None:
        self.again = lambda: method(*arguments)
        self._actor = actor
        self._task = actor.start_task(method(*arguments))

    def __await__(self) -> Generator[Any, None, Any]:
        return self._waited().__await__()

    async def _waited(self) -> Any:
        await asyncio.wait([self._task, self._actor.death], return_when=asyncio.FIRST_COMPLETED)
        if self._actor.death.done():
            raise RayActorError()
        return self._task.result()


class _Method:
    def __init__(self, actor: "_Actor", name: str) -> None:
        self._actor, self._name = actor, name

    def remote(self, *arguments: Any) -> _Ref:
        self._actor.ray.calls.append(self._name)
        return _Ref(self._actor, getattr(self._actor.instance, self._name), arguments)


class _Actor:
    def __init__(self, ray: "LocalRay", instance: Any) -> None:
        self.ray, self.instance = ray, instance
        self.death = asyncio.get_running_loop().create_future()
        self._tasks: list[asyncio.Task[Any]] = []

    def __getattr__(self, name: str) -> _Method:
        return _Method(self, name)

    def start_task(self, work: Any) -> "asyncio.Task[Any]":
        if self.death.done():
            work.close()
            work = asyncio.sleep(3600)
        self._tasks.append(asyncio.ensure_future(work))
        return self._tasks[-1]

    def die(self) -> None:
        """As by kill -9: nothing of it goes on, and nobody is told but by errors."""
        if self.death.done():
            return
        self.death.set_result(None)
        inner = getattr(self.instance, "_work", None)
        for task in [*self._tasks, *getattr(self.instance, "_tasks", ()), *([inner] if inner else [])]:
            task.cancel()


class LocalRay:
    """The part of the module `ray` that Evenhand uses."""

    def __init__(self) -> None:
        self.actors: list[_Actor] = []
        self.calls: list[str] = []
        self._class: Any = None

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 8.0}

    def remote(self, actor: Any) -> "_Class":
        return _Class(self, actor)

    def wait(self, refs: Sequence[_Ref], num_returns: int) -> tuple[list[_Ref], list[_Ref]]:
        return list(refs[:num_returns]), list(refs[num_returns:])

    def get(self, ref: _Ref) -> Any:
        with concurrent.futures.ThreadPoolExecutor(1) as thread:
            return thread.submit(lambda: asyncio.run(ref.again())).result()

    def kill(self, actor: _Actor, no_restart: bool) -> None:
        assert no_restart
        actor.die()

    @property
    def alive(self) -> list[_Actor]:
        return [actor for actor in self.actors if not actor.death.done()]


class _Class:
    def __init__(self, ray: LocalRay, actor: Any) -> None:
        self._ray, self._actor = ray, actor

    def options(self, **_: Any) -> "_Class":
        return self

    def remote(self, *arguments: Any) -> _Actor:
        self._ray.actors.append(_Actor(self._ray, self._actor(*arguments)))
        return self._ray.actors[-1]
