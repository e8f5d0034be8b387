"""MABRF's options, checked before the first call."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from evenhand.core.errors import PlanError
from evenhand.core.options import Text
from evenhand.core.types import SampleKind
from evenhand.judging.card import Calibrated
from evenhand.methods.base import WritingOptions
from evenhand.search.base import check_spec


class MabrfFirstOptions(WritingOptions, Calibrated):
    """Options of `mabrf_first`: solver and judge."""

    presets: ClassVar = {
        "paper": {
            "accept": 1.5,
            "grounded": 1,
            "bands": False,
            "look": False,
            "domain": False,
            "temperature": 0.2,
            "max_tokens": 256,
            "calibration": "none",
        },
    }

    accept: float = Field(
        default=1.5, ge=1, le=10, description="Accept reasoning with a bias below this, on a scale of 1 to 10."
    )
    grounded: float = Field(
        default=5.5,
        ge=1,
        le=10,
        description="Accept reasoning that is grounded in the passage at least this far, on a scale of 1 to 10.",
    )
    bands: bool = Field(default=False, description="Whether the judge sees a rated example of each band of its scales.")
    look: bool = Field(default=False, description="Ask the judge first if the passage has the answer.")
    domain: bool = Field(default=False, description="Tell the judge what to look for in the sample's category.")
    temperature: float = Field(default=0.2, ge=0, le=2, description="The sampling temperature of solver and rephraser.")


class MabrfOptions(MabrfFirstOptions):
    """Options of `mabrf`: the loop with all agents."""

    at_most: ClassVar = {"patience": 0}
    presets: ClassVar = {
        "paper": {
            **MabrfFirstOptions.presets["paper"],
            "iterations": 5,
            "patience": 0,
            "keep": "last",
            "terminator": "always",
            "search": "",
            "results": 3,
            "pages": 2,
        },
    }

    iterations: int = Field(default=5, ge=0, le=100, description="Maximum number of rewrites of the reasoning.")
    patience: int = Field(
        default=2, ge=0, le=100, description="Stop after so many rewrites in a row that are no better; 0: never."
    )
    keep: Literal["best", "last"] = Field(
        default="best", description="Answer from the least biased or from the last reasoning."
    )
    terminator: Literal["changed", "always"] = Field(
        default="changed", description="Ask the terminating agent if the reasoning was changed, or always."
    )
    search: Text | None = Field(
        default="", description="The search provider for evidence; see evenhand data search --list."
    )
    results: int = Field(default=3, ge=1, le=20, description="Number of results per query.")
    pages: int = Field(default=2, ge=0, le=20, description="Number of result pages that are read.")


def check_options(kind: SampleKind, options: MabrfOptions) -> None:
    """Rejects options that need a passage in a conversation, and an invalid search provider."""
    for name in ("search", "look", "domain"):
        if kind == "chat" and getattr(options, name):
            raise PlanError(f"MABRF's option {name} needs a passage and is not for conversations. Remove it.")
    if options.search:
        check_spec(options.search)
