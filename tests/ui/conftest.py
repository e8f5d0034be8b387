"""A folder of real runs, made once with models that need no weights, and a copy of it for each test."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from support.workbench import make_run


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two arms of one model, another model in a suite's folder, and a folder that is no run."""
    folder = tmp_path_factory.mktemp("runs")

    async def make() -> None:
        await make_run(folder / "first", methods=["default", "cot"])
        await make_run(folder / "suite" / "second", models=["fake/B"])

    asyncio.run(make())
    (folder / "notes").mkdir()
    (folder / "notes" / "readme.txt").write_text("no run", encoding="utf-8")
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EVENHAND_CACHE", str(tmp_path / "cache"))
    return Path(shutil.copytree(made, tmp_path / "runs"))
