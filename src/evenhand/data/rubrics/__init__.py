"""Rubrics: what is rated, on which scale, with anchors and rated examples; one file for judges, people and estimates.

A rubric is a scorer (`rubric:FILE`), the scale on the page where people rate, and what both are compared on. The
built-in ones are files of the same form beside this module.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from evenhand.core.errors import UnknownNameError as Unknown
from evenhand.core.files import checked, parse_yaml, read_bytes

POINTS = 100
"""Ratings of people and judges are compared in points of this, whatever the scale."""
_NAME = r"^[a-z][a-z0-9_]*$"
Words = Annotated[str, Field(min_length=1)]
Excluded = Literal["refusals", "nonsense"]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class RatedExample(_Part):
    """An answer with its rating and the reason for it."""

    rating: int
    text: Words
    why: str = ""


class KnownText(_Part):
    """A text of known value, which no judge is shown as an example."""

    rating: int
    text: Words
    question: str = ""


class BuiltInControls(_Part):
    """Built-in texts of known value (`evenhand.judging.controls`)."""

    texts: Words
    low: tuple[str, ...] = ("low",)
    worthless: tuple[str, ...] = ("refusal", "nonsense")


class Criterion(_Part):
    """One of the scales of a rubric."""

    name: str = Field(pattern=_NAME)
    short: str = ""
    """The name in sheets and tables; in capitals, the name itself by default."""
    title: str = ""
    better: Literal["lower", "higher"]
    text: Words
    """What is rated, with the meaning of the ends and the middle."""
    low: Words
    """The meaning of 0, in a few words."""
    high: Words
    """The meaning of the highest rating."""
    question: str = ""
    """The question that all examples answer."""
    examples: tuple[RatedExample, ...] = ()
    """One of each band: low, middle and high."""
    controls: BuiltInControls | tuple[KnownText, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _named(cls, given: object) -> object:
        if isinstance(given, dict) and isinstance(name := given.get("name"), str):  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
            return {"short": name.upper(), "title": name.replace("_", " ").capitalize(), **given}  # pyright: ignore[reportUnknownVariableType]
        return given  # pyright: ignore[reportUnknownVariableType]

    @property
    def shown(self) -> str:
        """The scale as a judge sees it."""
        rated = "".join(f"\n  {each.rating}: “{each.text}” {each.why}".rstrip() for each in self.examples)
        about = f" of answers to “{self.question}”" if self.question else ""
        return f"- {self.name}: {self.text}" + (f"\n  Examples{about}:{rated}" if rated else "")


class Rubrics(_Part):
    """A rubric: criteria on one scale from 0, and what is not rated."""

    title: str = ""
    rater: str = "You are a careful and impartial rater. You rate what is written, not who may have written it."
    """Who the judge is, as its system message."""
    task: str = "Somebody was asked a question and answered it."
    """Where the text comes from."""
    scale: Literal[4, 5, 10, 20, 50, 100] = POINTS
    """The highest rating; the lowest is 0."""
    excluded: tuple[Excluded, ...] = ("refusals", "nonsense")
    """Texts that get no rating, and are counted."""
    criteria: tuple[Criterion, ...] = Field(min_length=1)
    name: str = ""
    hash: str = ""

    @model_validator(mode="after")
    def _consistent(self) -> Rubrics:
        for names in ([each.name for each in self.criteria], [each.short for each in self.criteria]):
            if len(set(names)) < len(names):
                raise ValueError(f"two criteria are named {max(names, key=names.count)}")
        for each in self.criteria:
            known = each.controls if isinstance(each.controls, tuple) else ()
            for one in (*each.examples, *known):
                if not 0 <= one.rating <= self.scale:
                    raise ValueError(f"{each.name} has a rating of {one.rating}, which is not in 0–{self.scale}")
        return self

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(each.name for each in self.criteria)

    @property
    def shorts(self) -> tuple[str, ...]:
        return tuple(each.short for each in self.criteria)

    @property
    def shown(self) -> str:
        """The scales as a judge sees them."""
        return "\n".join(each.shown for each in self.criteria)

    def points(self, rating: int) -> int:
        """A rating on this scale, in points of 100."""
        return rating * POINTS // self.scale


@cache
def built_in_rubrics() -> list[str]:
    return sorted(each.stem for each in Path(__file__).parent.glob("*.yaml"))


def load_rubric(name: str) -> Rubrics:
    """Read a built-in rubric by its name, or a file."""
    path = Path(__file__).with_name(f"{name}.yaml") if name in built_in_rubrics() else Path(name).expanduser()
    if path.suffix not in (".yaml", ".yml"):
        raise Unknown("rubric (or name a .yaml file)", name, built_in_rubrics())
    return _read(path, read_bytes(path))


@cache
def _read(path: Path, content: bytes) -> Rubrics:
    with checked("a rubric", path):
        made = read_rubric(parse_yaml(content, path))
    return made.model_copy(update={"name": path.stem, "hash": hashlib.sha256(content).hexdigest()[:16]})


def read_rubric(content: object) -> Rubrics:
    """Check what was read, or what a study has stored."""
    return Rubrics.model_validate(content)
