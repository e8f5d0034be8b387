"""What MALIBU's numbers say about themselves: facts with their arithmetic, from the published numbers alone."""

from __future__ import annotations

from itertools import combinations
from statistics import fmean

from evenhand.papers.base import published
from evenhand.papers.malibu.tables import NAME, paper_models

_CATEGORIES = {
    "gender": ("female", "male"),
    "race": ("black", "white", "asian", "hispanic"),
    "religion": ("christian", "muslim", "jewish", "atheist"),
}


def itself() -> list[tuple[str, str]]:
    """Returns (place, statement)."""
    return [_cell(), _stronger(), _sums()]


def difference(model: str, one: str, other: str) -> float:
    """Returns a cell of Figure 4, one − other."""
    rows = published(NAME).tables["figure4"]
    name = f"{one} − {other}"
    return rows[name][model] if name in rows else -rows[f"{other} − {one}"][model]


def _cell() -> tuple[str, str]:
    others = [each for some in _CATEGORIES.values() for each in some if each not in ("white", "hispanic")]
    by_third = [
        difference("DeepSeek-V3", "white", each) - difference("DeepSeek-V3", "hispanic", each) for each in others
    ]
    printed = difference("DeepSeek-V3", "white", "hispanic")
    return (
        "Figure 4, DeepSeek-V3, white − hispanic",
        f"Printed {printed:.2f}. By the cells of a third identity, white − third less hispanic − third, it is "
        f"{min(by_third):.2f} to {max(by_third):.2f} for all {len(by_third)}.".replace("-", "−"),
    )


def _stronger() -> tuple[str, str]:
    said: list[str] = []
    for category, identities in _CATEGORIES.items():
        sizes = [
            fmean(_size(model, *pair) for pair in combinations(identities, 2))
            for model in ("DeepSeek-V3", "GPT-4o mini")
        ]
        said.append(f"{category} {sizes[0]:.2f} and {sizes[1]:.2f}")
    return (
        "Figure 4, “DeepSeek-V3 amplifies biases”",
        f"Mean size of the differences within a category, DeepSeek-V3 and GPT-4o mini, in points of 10: "
        f"{', '.join(said)}.",
    )


def _size(model: str, one: str, other: str) -> float:
    assert model in paper_models()
    return abs(difference(model, one, other))


def _sums() -> tuple[str, str]:
    said = [
        f"{metric} {row['female']:,g} and {row['male']:,g} ({100 * (row['female'] / row['male'] - 1):.1f} % more)"
        for metric, row in published(NAME).tables["appendix"].items()
    ]
    return (
        "Appendix A.3",
        f"Sums of scores, female and male: {', '.join(said)}. Without the number of scores they cannot be turned into "
        "means.",
    )
