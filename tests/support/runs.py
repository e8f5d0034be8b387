"""Running plans in tests: models and methods under names of their own, and what was stored as plain rows."""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest

from evenhand.benchmarks.base import BENCHMARKS
from evenhand.core.progress import Progress
from evenhand.core.types import Message, Outcome, Params, Sample
from evenhand.methods.base import METHODS, Method
from evenhand.models.base import PROVIDERS, Model
from evenhand.models.fake import FunctionModel, Reply
from evenhand.runs.parts import Settings
from evenhand.runs.plan import make_plan
from evenhand.runs.runner import Runner
from evenhand.studies.export import export
from support.toy import Toy

Run = Callable[..., Awaitable[Progress]]
Answer = Callable[[Sequence[Message], Params], Reply]


class Workshop:
    """Runs the toy benchmark with models and methods that a test makes."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.directory = directory
        self._models: dict[str, Model] = {}
        self._monkeypatch = monkeypatch
        monkeypatch.setitem(BENCHMARKS._things, "toy", Toy)
        monkeypatch.setitem(PROVIDERS._things, "stub", lambda name, _options: self._models[name])

    def model(self, answer: Answer, name: str = "one", **options: Any) -> FunctionModel:
        """A model under the spec `stub/NAME`."""
        model = FunctionModel(answer, spec=f"stub/{name}", **options)
        self._models[name] = model
        return model

    def plug(self, name: str, model: Model) -> None:
        self._models[name] = model

    def method(self, name: str, run: Callable[[Sample, Any], Awaitable[Outcome]], **fields: Any) -> None:
        """A method under a name."""
        made = Method(name, "For a test.", frozenset({"choice"}), run, **fields)
        self._monkeypatch.setitem(METHODS._things, name, made)

    def runner(self, folder: str = "run", *, settings: dict[str, Any] | None = None, **plan: Any) -> Runner:
        fields = {"benchmark": "toy", "models": ["stub/one"], **plan}
        return Runner(make_plan(fields), self.directory / folder, Settings(**(settings or {})))

    async def run(self, folder: str = "run", **options: Any) -> Progress:
        return await self.runner(folder, **options).run()

    def rows(self, folder: str = "run", table: str = "outcomes") -> list[dict[str, Any]]:
        return [orjson.loads(line) for line in self.exported(folder, table).splitlines()]

    def exported(self, folder: str = "run", table: str = "outcomes") -> bytes:
        target = self.directory / f"{folder}.{table}.jsonl"
        export(self.directory / folder, table, "jsonl", target)
        return target.read_bytes()


@pytest.fixture
def workshop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workshop:
    return Workshop(tmp_path, monkeypatch)
