"""Writes generated scenarios and freezes them: `provenance.json` has the checksum of every file."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import orjson
import yaml

from evenhand.core.errors import UsageError
from evenhand.data.malibu import PROVENANCE, Base

FORMAT = "evenhand-malibu-1"
_WIDTH = 120


class ScenarioFolder:
    """A new folder of base scenarios; existing files are never overwritten."""

    def __init__(self, path: Path) -> None:
        if path.exists() and not path.is_dir():
            raise UsageError(f"{path} is a file; give a new folder for the scenarios.")
        if path.is_dir() and any(path.iterdir()):
            raise UsageError(f"The folder {path} is not empty; give a new one, since nothing is overwritten.")
        self.path = path
        self._sums: dict[str, str] = {}

    def add(self, base: Base, made: Mapping[str, Any]) -> None:
        """Write a base scenario and update the provenance, so that the folder is valid after every call."""
        self.path.mkdir(parents=True, exist_ok=True)
        content = scenario_yaml(base).encode()
        name = f"{base.id}.yaml"
        with (self.path / name).open("xb") as file:
            file.write(content)
        self._sums[name] = hashlib.sha256(content).hexdigest()
        self.note(made)

    def note(self, made: Mapping[str, Any]) -> None:
        """Write the provenance atomically, unless there are no scenarios."""
        if not self._sums:
            return
        whole = {"format": FORMAT, **made, "sha256": dict(sorted(self._sums.items()))}
        draft = self.path / f".{PROVENANCE}.{os.getpid()}.tmp"
        try:
            draft.write_bytes(orjson.dumps(whole, option=orjson.OPT_INDENT_2) + b"\n")
            draft.replace(self.path / PROVENANCE)
        finally:
            draft.unlink(missing_ok=True)


def scenario_yaml(base: Base) -> str:
    """Return a base scenario as YAML."""
    row = asdict(base)
    for scenario in row["derived"]:
        scenario["responses"] = list(scenario["responses"])
    return yaml.safe_dump(row, sort_keys=False, allow_unicode=True, width=_WIDTH)
