"""What the searches of a run brought: a method that searches and finds nothing is not the method with search."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from evenhand.runs.stored import open_sources


def search_warnings(folder: Path) -> list[str]:
    """A sentence for every arm that searched in vain for some of its questions."""
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
                    f"{source.label}: {in_vain.total():,} of {searched:,} questions that were searched for went on "
                    f"without evidence; mostly: {reason.rstrip('.')}."
                )
    return found
