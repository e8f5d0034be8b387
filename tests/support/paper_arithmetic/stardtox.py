"""What StarDTox's tables say about themselves: facts with their arithmetic, from the published numbers alone."""

from __future__ import annotations

from evenhand.benchmarks.realtoxicity import BANDS
from evenhand.core.format import number
from evenhand.papers.base import published
from evenhand.papers.stardtox.tables import NAME, STEERED_TITLE, sizes

_OWN, _WITHOUT, _DEFAULT = "STARDTOX w/ Performance", "STARDTOX w/o Performance", "GPT-3.5 Default"
_LAST = "Iter. 2"


def itself() -> list[tuple[str, str]]:
    """Returns (place, statement)."""
    return [_halved(), _lowest(), _above_ninety(), _without(), _passing(), _accuracy()]


def _value(band: str, row: str, metric: str) -> float:
    return published(NAME).tables[band][row][metric]


def _steered(band: str, metric: str = "toxicity") -> list[float]:
    return [_value(band, f"{STEERED_TITLE}, {size}", metric) for size in sizes()]


def _halved() -> tuple[str, str]:
    said: list[str] = []
    for band in BANDS:
        own = _value(band, f"{_OWN}, {_LAST}", "toxicity")
        fall = 100 * (1 - own / _value(band, _DEFAULT, "toxicity"))
        fair = 100 * (1 - own / _value(band, "GPT-3.5 + Fairness-aware Prompt", "toxicity"))
        others = [100 * (1 - own / each) for each in _steered(band)]
        said.append(
            f"{band}: {fall:.0f} % below Default, {fair:.0f} % below the fairness-aware prompt, "
            f"{number(min(others), 0)} to {number(max(others), 0)} % below the four rows of Self-Debias (Gen)"
        )
    return (
        "Abstract, “more than 50 %”",
        f"Toxicity after two iterations with the performance evaluator. {'; '.join(said)}. Above 50 % is one of these: "
        "against Default in the moderate band.",
    )


def _lowest() -> tuple[str, str]:
    own = _value("high", f"{_OWN}, {_LAST}", "toxicity")
    below = [each for each in _steered("high") if each < own]
    return (
        "Section V-A, “lowest toxicity of all methods”",
        f"High band: {own:.2f} with the performance evaluator; Self-Debias (Gen) has "
        f"{', '.join(f'{each:.2f}' for each in below)} in {len(below)} of its {len(_steered('high'))} rows.",
    )


def _above_ninety() -> tuple[str, str]:
    rows = published(NAME).tables["high"]
    found = sorted(row["coherence"] for name, row in rows.items() if name.startswith("STARDTOX"))
    return (
        "Section V-A, “above 90 %”",
        f"High band: the coherence of StarDTox is {found[0]:.2f} to {found[-1]:.2f}, below 90 in "
        f"{sum(each < 90 for each in found)} of {len(found)} rows.",
    )


def _without() -> tuple[str, str]:
    said = [
        f"{band}: {metric} {_value(band, f'{_OWN}, {_LAST}', metric):.2f} with it, "
        f"{_value(band, f'{_WITHOUT}, {_LAST}', metric):.2f} without"
        for metric in ("coherence", "fluency")
        for band in BANDS
    ]
    higher = sum(
        _value(band, f"{_WITHOUT}, {_LAST}", metric) > _value(band, f"{_OWN}, {_LAST}", metric)
        for metric in ("coherence", "fluency")
        for band in BANDS
    )
    return (
        "Section V-A, the performance evaluator",
        f"Leaving it out is said to cost fluency and coherence, above all in later iterations. After two: "
        f"{'; '.join(said)}. It is higher without in {higher} of {len(said)} cells, coherence in both bands.",
    )


def _passing() -> tuple[str, str]:
    """By Markov's inequality: of ratings up to 100 with this mean, so many can be below 80 at most."""
    ratings = ("coherence", "fluency", "relevance")
    least = {band: 100 - 5 * max(100 - _value(band, _DEFAULT, each) for each in ratings) for band in BANDS}
    return (
        "Section III, “fluency above 0.8”",
        "Ratings end at 100, so by the means of Default in Table II at least "
        f"{' and '.join(f'{share:.0f} % ({band})' for band, share in least.items())} of its texts pass 80 on each "
        "rating.",
    )


def _accuracy() -> tuple[str, str]:
    rows = published(NAME).tables["bbq"]
    said = [
        f"{title} {rows[_DEFAULT][f'accuracy_{context}']:.2f} → {rows[f'STARDTOX, {_LAST}'][f'accuracy_{context}']:.2f}"
        for context, title in (("ambig", "ambiguous"), ("disambig", "disambiguated"))
    ]
    return ("Table III, accuracy", f"From Default to {_LAST}: {', '.join(said)}.")
