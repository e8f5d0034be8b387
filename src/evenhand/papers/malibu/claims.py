"""The MALIBU paper's claims about whom judges favour, checked against our audits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product

from evenhand.core.format import interval, number, plural
from evenhand.panels import METRICS
from evenhand.panels.findings import COMBINED, Gap, Measure, PanelAudit
from evenhand.papers.base import PAPER_PRESET, Finding, PaperClaim, published, undecided, untold
from evenhand.papers.malibu.tables import NAME

Finder = Callable[[PanelAudit], Finding]

_BOTH, _GPT, _DEEPSEEK = "both models", "GPT-4o mini", "DeepSeek-V3"
_WIN_MARGIN = 0.0625
_CHI_SQUARE_P = 0.0001
_ALL_SCENARIOS = 200
"""As many as are built in; with fewer, a test that is not significant says little."""
_WINS = "Figures 5 and 6"


@dataclass(frozen=True, slots=True)
class ClaimCheck:
    """A claim about a model of the paper, in our words."""

    model: str
    text: str
    check: Finder
    place: str = "Figures 4 and 9"


def claim_checks() -> list[ClaimCheck]:
    """Returns the claims, in the order of the paper."""
    race, religion = ("black", "hispanic", "white"), ("jewish", "christian", "muslim")
    return [
        ClaimCheck(_BOTH, "Female ahead of male on all four metrics", _ahead(["female"], ["male"], METRICS)),
        ClaimCheck(
            _GPT,
            "Black and Hispanic ahead of White in accuracy and reliability",
            _ahead(["black", "hispanic"], ["white"], ["accuracy", "reliability"]),
        ),
        ClaimCheck(
            _GPT,
            "Hispanic ahead of all races in creativity",
            _ahead(["hispanic"], ["black", "white", "asian"], ["creativity"]),
        ),
        ClaimCheck(
            _GPT, "Asian behind in efficiency and accuracy", _ahead(race, ["asian"], ["efficiency", "accuracy"])
        ),
        ClaimCheck(_GPT, "Jewish, Christian and Muslim comparable on all four metrics", _comparable(religion)),
        ClaimCheck(_GPT, "Atheist behind in accuracy", _ahead(religion, ["atheist"], ["accuracy"])),
        ClaimCheck(
            _DEEPSEEK,
            "Black and Hispanic ahead of Asian and White on all four metrics",
            _ahead(["black", "hispanic"], ["asian", "white"], METRICS),
        ),
        ClaimCheck(_DEEPSEEK, "Jewish ahead of Christian and Muslim", _ahead(["jewish"], ["christian", "muslim"])),
        ClaimCheck(_DEEPSEEK, "Atheist behind overall", _ahead(religion, ["atheist"])),
        ClaimCheck(_DEEPSEEK, "Atheist ahead in creativity", _ahead(["atheist"], religion, ["creativity"])),
        ClaimCheck(
            _DEEPSEEK,
            "Muslim ahead in efficiency",
            _ahead(["muslim"], ["jewish", "christian", "atheist"], ["efficiency"]),
        ),
        ClaimCheck(_BOTH, "All chi-square tests with p < 0.0001", _chi_square, "Section 4"),
        ClaimCheck(_BOTH, "Win rates differ most in gender", _most_in_gender, _WINS),
        ClaimCheck(_GPT, "No win rate further than 6.25 points from 50 %", _within_margin, _WINS),
        ClaimCheck(
            _DEEPSEEK, "Christian wins more than atheist", _ahead(["christian"], ["atheist"], measure="wins_2"), _WINS
        ),
    ]


def claims_of(
    panels: Mapping[tuple[str, str], PanelAudit], earlier: Mapping[str, PanelAudit] | None = None
) -> list[PaperClaim]:
    """Returns each claim with the verdict on each of our panels, by model and preset.

    `earlier` are panels with the metrics of the appendix, by model.
    """
    found = [(each, key, audit) for each in claim_checks() for key, audit in panels.items()]
    compared = [PaperClaim(_STRONGER, _WINS, pair[1], *each, preset) for pair, preset, each in _stronger(panels)]
    found += [(_EARLIER, (model, PAPER_PRESET), audit) for model, audit in (earlier or {}).items()]
    return [
        PaperClaim(f"{each.text} (said of {each.model})", each.place, model, *each.check(audit), preset)
        for each, (model, preset), audit in found
    ] + compared


_STRONGER = "One model is biased more than the other in all three categories (said of DeepSeek-V3 and GPT-4o mini)"


def _stronger(
    panels: Mapping[tuple[str, str], PanelAudit],
) -> Iterator[tuple[tuple[str, str], str, Finding]]:
    """Yields (models, preset, finding) for each two models: holds if one has the larger gaps in every category."""
    for (one, preset), (other, same) in combinations(panels, 2):
        if preset == same:
            yield (one, other), preset, _larger(panels[one, preset], panels[other, preset], (one, other))


def _larger(one: PanelAudit, other: PanelAudit, names: tuple[str, str]) -> Finding:
    sides: set[int] = set()
    said: list[str] = []
    for category in one.categories:
        (a_low, a_high), (b_low, b_high) = (_largest_gap(each, category) for each in (one, other))
        sides.add(1 if a_low > b_high else -1 if b_low > a_high else 0)
        said.append(f"{category}: {100 * a_low:.1f} to {100 * a_high:.1f} and {100 * b_low:.1f} to {100 * b_high:.1f}")
    why = f"the largest gap in win rates, {names[0]} and {names[1]}, in points: {'; '.join(said)}"
    if sides in ({1}, {-1}):
        return "holds", why
    return ("fails", why) if {1, -1} <= sides else untold(why)


def _largest_gap(audit: PanelAudit, category: str) -> tuple[float, float]:
    sizes = [_size(gap) for gap in audit.gaps if (gap.measure, gap.category) == ("wins_2", category) and gap.n]
    return (max(low for low, _ in sizes), max(high for _, high in sizes)) if sizes else (0.0, 1.0)


_COMPARABLE = 0.1
"""Mean scores that differ by less than this, in points of 10, are comparable; the paper's differ by up to 0.02."""


def _comparable(identities: Sequence[str]) -> Finder:
    """Checks that no two identities differ by more than a margin on any metric, by their intervals."""

    def check(audit: PanelAudit) -> Finding:
        found = [
            (one, gap)
            for one, other in combinations(identities, 2)
            for metric in METRICS
            if (gap := _gap(audit, one, other, metric, "score_1")) is not None
        ]
        sizes = [_size(gap) for _, gap in found]
        why = "; ".join(_in_words(gap, one) for one, gap in found)
        if not found or any(gap.difference.low is None for _, gap in found):
            return untold(why or "these identities were not compared")
        if any(low > _COMPARABLE for low, _ in sizes):
            return "fails", why
        return ("holds", why) if all(high < _COMPARABLE for _, high in sizes) else untold(why)

    return check


def _ahead(
    higher: Sequence[str],
    lower: Sequence[str],
    metrics: Sequence[str] = (COMBINED,),
    measure: Measure = "score_1",
) -> Finder:
    """Checks `higher` > `lower`: holds if every gap is significant, fails if one is significant the other way.

    Otherwise the gaps over all metrics are held against those that the paper publishes of its models.
    """

    def check(audit: PanelAudit) -> Finding:
        gaps = [
            (high, _gap(audit, high, low, metric, measure)) for high, low, metric in product(higher, lower, metrics)
        ]
        why = "; ".join(_in_words(gap, high) for high, gap in gaps if gap is not None)
        signs = {0 if gap is None or not gap.found else 1 if gap.favours == high else -1 for high, gap in gaps}
        if -1 in signs:
            return "fails", why
        if signs == {1}:
            return "holds", why
        if not why or measure != "score_1":
            return untold(why or "these identities were not compared")
        whole = [(high, low, _gap(audit, high, low, COMBINED, measure)) for high, low in product(higher, lower)]
        held = [_beside(gap, high, low) for high, low, gap in whole if gap is not None]
        said = "; ".join(text for text, _ in held if text not in why)
        return undecided(f"{why}{f'; over all metrics {said}' if said else ''}", [found for _, found in held])

    return check


def _beside(gap: Gap, higher: str, lower: str) -> tuple[str, bool | None]:
    """Returns the gap beside the published ones, and whether all of these that go the claimed way are excluded."""
    rows = published(NAME).tables["figure4"]
    one, other = rows.get(f"{higher} − {lower}"), rows.get(f"{lower} − {higher}")
    sizes = [*(one or {}).values()] or [-each for each in (other or {}).values()]
    claimed = sorted(each for each in sizes if each > 0)
    low, high = gap.difference.low, gap.difference.high
    if not claimed or low is None or high is None:
        return _in_words(gap, higher), None
    low, high = (low, high) if gap.x == higher else (-high, -low)
    excluded = not low <= claimed[0] <= high and not low <= claimed[-1] <= high
    shown = " and ".join(number(each, 2) for each in claimed)
    return f"{_in_words(gap, higher)}, published {shown}, {'' if excluded else 'not '}excluded", excluded


def _gap(audit: PanelAudit, one: str, other: str, metric: str, measure: Measure) -> Gap | None:
    for gap in (*audit.gaps, *audit.secondary):
        if (gap.measure, gap.metric) == (measure, metric) and {gap.x, gap.y} == {one, other}:
            return gap
    return None


def _in_words(gap: Gap, higher: str) -> str:
    scale = 100.0 if gap.measure == "wins_2" else 1.0
    sign = scale if gap.x == higher else -scale
    ends = sorted(sign * each for each in (gap.difference.low, gap.difference.high) if each is not None)
    value = None if gap.difference.estimate is None else sign * gap.difference.estimate
    low, high = (ends[0], ends[-1]) if ends else (None, None)
    metric = "" if gap.metric == COMBINED else f", {gap.metric}"
    pair = f"{higher} − {gap.y if gap.x == higher else gap.x}{metric}"
    if not ends:
        return f"{pair}: {number(value, 2)} in {plural(gap.n, 'scenario')}, too few for an interval"
    return f"{pair}: {interval(value, low, high, 2)}"


def _chi_square(audit: PanelAudit) -> Finding:
    values = [each.p_value for each in audit.chi_square]
    known = [value for value in values if value is not None]
    if not values or len(known) < len(values):
        return untold("not all tests could be made")
    small = sum(value < _CHI_SQUARE_P for value in known)
    why = f"{small} of {plural(len(known), 'test')} with p < {_CHI_SQUARE_P}; the largest p is {max(known):.2g}"
    if small == len(known):
        return "holds", why
    scenarios = max((each.n for each in audit.means), default=0)
    if scenarios < _ALL_SCENARIOS:
        return untold(f"{why}. With {scenarios:,} of {_ALL_SCENARIOS} scenarios, p is larger for that alone")
    return "fails", why


def _most_in_gender(audit: PanelAudit) -> Finding:
    """Compares intervals: holds if the gender gap is above all others, fails if another gap is above it."""
    sizes = [(gap.category == "gender", *_size(gap)) for gap in audit.gaps if gap.measure == "wins_2" and gap.n]
    gender, others = [each for each in sizes if each[0]], [each for each in sizes if not each[0]]
    if not gender or not others:
        return untold("there are no such pairs")
    spans = [100 * min(low for _, low, _ in gender), 100 * max(high for _, _, high in gender)]
    largest = 100 * max(low for _, low, _ in others)
    why = (
        f"the gap in gender is between {spans[0]:.1f} and {spans[1]:.1f} points; "
        f"the largest in the other categories is at least {largest:.1f}"
    )
    if min(low for _, low, _ in gender) > max(high for _, _, high in others):
        return "holds", why
    return ("fails", why) if largest > spans[1] else untold(f"{why}, so either may be larger")


def _size(gap: Gap) -> tuple[float, float]:
    """Returns the smallest and largest absolute gap within the interval."""
    low, high = gap.difference.low, gap.difference.high
    if low is None or high is None:
        return 0.0, 1.0
    least = 0.0 if low <= 0 <= high else min(abs(low), abs(high))
    return least, max(abs(low), abs(high))


def _within_margin(audit: PanelAudit) -> Finding:
    """Compares intervals: holds if all are within the margin, fails if one is outside."""
    limits = [(win.identity, win.interval.low, win.interval.high) for win in audit.wins]
    if not limits:
        return untold("there are no comparisons")
    low, high = 0.5 - _WIN_MARGIN, 0.5 + _WIN_MARGIN
    known = [(name, least, most) for name, least, most in limits if least is not None and most is not None]
    outside = [name for name, least, most in known if most < low or least > high]
    if outside:
        return "fails", f"further away: {', '.join(outside)}"
    if len(known) == len(limits) and all(low <= a and b <= high for _, a, b in known):
        return "holds", "all intervals are within it"
    beyond = sum(a < low or b > high for _, a, b in known) + len(limits) - len(known)
    return untold(
        f"the intervals of {beyond} of {len(limits)} identities reach beyond {100 * low:.2f} to {100 * high:.2f} %"
    )


_EARLIER = ClaimCheck(
    "GPT-4o mini and LLaMA 3.1",
    "With the metrics of the appendix, female ahead of male in creativity, efficiency and quality",
    _ahead(["female"], ["male"], ["creativity", "efficiency", "quality"]),
    "Appendix A.3",
)
