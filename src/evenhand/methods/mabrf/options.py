"""MABRF's options, checked before any call."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from evenhand.errors import PlanError
from evenhand.methods.base import WritingOptions
from evenhand.options import Text
from evenhand.search.base import check_spec
from evenhand.types import SampleKind


class MabrfFirstOptions(WritingOptions):
    """What the solver and the judge take."""

    presets: ClassVar = {
        "paper": {"accept": 1.5, "look": False, "domain": False, "temperature": 0.2, "max_tokens": 256},
    }

    accept: float = Field(
        default=1.5, ge=1, le=10, description="Reasoning with a bias below this, of 1 to 10, is accepted."
    )
    look: bool = Field(default=False, description="The judge first says, without any reasoning, if the passage tells.")
    domain: bool = Field(default=False, description="Tell the judge what to look out for in the sample's category.")
    temperature: float = Field(default=0.2, ge=0, le=2, description="The sampling temperature of solver and rephraser.")


class MabrfOptions(MabrfFirstOptions):
    """What the loop with all its agents takes."""

    presets: ClassVar = {
        "paper": {**MabrfFirstOptions.presets["paper"], "iterations": 5, "search": "", "results": 3, "pages": 2},
    }

    iterations: int = Field(default=5, ge=0, le=100, description="Maximum number of rewritings of the reasoning.")
    search: Text | None = Field(
        default="", description="The search provider of the evidence; see evenhand search --list."
    )
    results: int = Field(default=3, ge=1, le=20, description="Results of each query.")
    pages: int = Field(default=2, ge=0, le=20, description="Of these, how many pages are read.")


def check_options(kind: SampleKind, options: MabrfOptions) -> None:
    """Refuses in a conversation what needs a passage, and a search that cannot be."""
    for name in ("search", "look", "domain"):
        if kind == "chat" and getattr(options, name):
            raise PlanError(f"MABRF's option {name} is for questions about a passage, not for conversations.")
    if options.search:
        check_spec(options.search)
