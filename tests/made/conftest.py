"""Models under the specs stub/NAME, and a listener that remembers what it heard, for data, debates and papers."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

import evenhand
from evenhand.core.progress import Count, Observer, Progress
from evenhand.models.base import PROVIDERS
from evenhand.models.fake import FunctionModel

Plug = Callable[..., dict[str, FunctionModel]]


class Remembering(evenhand.Listener):
    """What a workflow told, in order."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []
        self.observed: list[tuple[int, int | None]] = []

    def run_began(self, folder: Path) -> Observer:
        self.told.append(("began", folder.name))
        return lambda progress: self.observed.append((progress.done, progress.total))

    def run_ended(self, folder: Path, progress: Progress) -> None:
        self.told.append(("ended", f"{folder.name}: {progress.done} of {progress.total}"))

    def stage_began(self, name: str) -> Count:
        self.told.append(("stage", name))
        return lambda done, total: self.observed.append((done, total))

    def note(self, text: str) -> None:
        self.told.append(("note", text))


@pytest.fixture
def listener(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Remembering:
    monkeypatch.chdir(tmp_path)
    return Remembering()


@pytest.fixture
def plug(monkeypatch: pytest.MonkeyPatch) -> Plug:
    """`plug(reply)` makes every stub/NAME a model that answers reply(NAME, messages, params); those loaded, by name."""

    def make(reply: Callable[..., str]) -> dict[str, FunctionModel]:
        loaded: dict[str, FunctionModel] = {}

        class Stub(FunctionModel):
            free = True
            features = frozenset({"seed", "schema"})

            def __init__(self, name: str, _options: object) -> None:
                super().__init__(partial(reply, name), spec=f"stub/{name}", features=type(self).features)
                loaded[name] = self

        monkeypatch.setitem(PROVIDERS._things, "stub", Stub)  # pyright: ignore[reportPrivateUsage]
        return loaded

    return make
