"""Warnings about searches without results: then a method with search behaves like the method without it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from evenhand.runs.stored import open_sources


def search_warnings(folder: Path) -> list[str]:
    """Returns a sentence for every arm whose search found nothing for some questions."""
    found: list[str] = []
    with open_sources([folder]) as (_, sources):
        for source in sources:
            searched, in_vain = 0, Counter[str]()
            for _, outcome in source.store.answers(source.arm.number):
                about: dict[str, Any] = outcome["notes"].get("search") or {}
                if about.get("passes"):
                    searched += 1
                    if not about["with_facts"]:
                        in_vain.update(about.get("problems", ["nothing was found"])[:1])
            if in_vain:
                reason, _ = in_vain.most_common(1)[0]
                found.append(
                    f"{source.label}: the search found no evidence for {in_vain.total():,} of {searched:,} questions. "
                    f"Most common reason: {reason.rstrip('.')}."
                )
    return found
