"""Which parts of a pack bear on items of laws and standards, and which items no measurement covers."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import yaml

NOT_COVERED = "not covered"


@dataclass(frozen=True, slots=True)
class MappedItem:
    """One item: what it asks for, and which part of the pack bears on it."""

    item: str
    asks: str
    part: str
    """The section of the pack; empty if the item is not covered."""
    note: str
    text: str
    """The address of the public text in which its number and subject were looked up."""
    read: str
    """The day on which it was looked up."""

    @property
    def evidence(self) -> str:
        return f"partly: {self.note}" if self.part else f"{NOT_COVERED}: {self.note}"


@dataclass(frozen=True, slots=True)
class Standard:
    """One law or standard."""

    name: str
    source: str
    items: tuple[MappedItem, ...]


def mappings(parts: Collection[str]) -> list[Standard]:
    """Return all mappings; an item whose part is not in this pack is not covered."""
    text = (files(__package__ or "") / "mappings.yaml").read_text(encoding="utf-8")
    return [
        Standard(each["name"], each["source"], tuple(_item(item, parts, each["texts"]) for item in each["items"]))
        for each in yaml.safe_load(text)
    ]


def _item(item: dict[str, Any], parts: Collection[str], texts: Mapping[str, Any]) -> MappedItem:
    part, text = item.get("part", ""), texts[item["in"]]
    note = item["how"] if part else item["why"]
    if part and part not in parts:
        part, note = "", "no run in this pack measures it"
    return MappedItem(item["item"], item["asks"], part, note, text["url"], text["read"].isoformat())
