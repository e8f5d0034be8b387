"""Options of the panels, and the personas of the judges."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Literal, cast

import yaml
from pydantic import Field

from evenhand.asking.panel import Order, Topology
from evenhand.core.errors import DataError, PlanError
from evenhand.core.options import Options, Text
from evenhand.core.types import SampleKind

MOST_JUDGES = 8
_BUILTIN = {"judgement": "personas.yaml", "choice": "members.yaml"}
"""Kind of sample → the file of its built-in personas."""


class JudgeOptions(Options):
    """Options of a single judge."""

    presets: ClassVar = {"paper": {"temperature": 0.0, "max_tokens": 0}}

    temperature: float = Field(default=0.0, ge=0, le=2, description="The sampling temperature.")
    max_tokens: int = Field(
        default=0,
        ge=0,
        le=100_000,
        description="Maximum number of tokens of a reply; 0 allows what the reply needs.",
    )


class PanelOptions(JudgeOptions):
    """Options of a panel."""

    presets: ClassVar = {
        "paper": {
            **JudgeOptions.presets["paper"],
            "judges": 4,
            "personas": "",
            "rounds": 2,
            "order": "round_robin",
            "topology": "everyone",
            "consensus": "mean",
        }
    }

    judges: int = Field(default=4, ge=1, le=MOST_JUDGES, description="Number of judges.")
    personas: Text | None = Field(
        default="", description="A YAML file of names and descriptions; built-in ones by default."
    )
    rounds: int = Field(default=2, ge=0, le=20, description="Rounds of discussion after the first scores.")
    order: Order = Field(
        default="round_robin", description="Who speaks when: in turn, shuffled in each round, or all at once."
    )
    topology: Topology = Field(
        default="everyone", description="Who hears whom: everyone, only the one before, or the first."
    )
    consensus: Literal["mean", "median", "chair"] = Field(
        default="mean", description="How the last scores are combined."
    )


def check_options(kind: SampleKind, options: PanelOptions) -> None:
    """Rejects missing or invalid personas."""
    personas_for(options, kind)


def personas_for(options: PanelOptions, kind: SampleKind = "judgement") -> dict[str, str]:
    """Returns the first personas, one per judge: name → description."""
    path = Path(options.personas) if options.personas else Path(__file__).with_name(_BUILTIN[kind])
    try:
        # The file is read again after a change: a notebook may run a panel twice.
        found = _read(path, path.stat().st_mtime_ns)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        hint = "the personas cannot be read. Use a YAML file of names and descriptions."
        raise DataError(hint, file=path) from error
    if len(found) < options.judges:
        raise PlanError(
            f"There are {len(found)} personas for {options.judges} judges. Add personas or use fewer judges."
        )
    return dict(list(found.items())[: options.judges])


@cache
def _read(path: Path, _changed: int) -> Mapping[str, str]:
    read: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    entries: dict[Any, Any] = cast("dict[Any, Any]", read) if isinstance(read, dict) else {}
    personas = {str(name).strip(): " ".join(text.split()) for name, text in entries.items() if isinstance(text, str)}
    if not personas or len(personas) < len(entries) or not all(personas) or not all(personas.values()):
        raise DataError("each persona must be a name and a description, as in `client: asks if it helps`.", file=path)
    return personas
