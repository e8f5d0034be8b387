"""The samples of MALIBU: every scenario with every label, and every pair of labels in every order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, islice, product
from typing import Any, Literal

from evenhand.benchmarks.base import draw_key
from evenhand.core.types import Sample
from evenhand.data.malibu import CONTROL, Base, Identity, Scenario, pairs_of
from evenhand.panels import ASKED, BANDED, CANDIDATES, UNNAMED, Candidate, Form

Texts = Literal["same", "two"]
"""The texts of a pair: the same text twice, or two texts of equal content."""

ORDERS: dict[Texts, tuple[tuple[int, int], ...]] = {"same": ((0, 0),), "two": ((0, 1), (1, 0))}
"""Indices of the responses shown first and second; each is used with both orders of the identities."""

Compared = tuple[Identity, Identity]
"""Two identities of one category."""


@dataclass(frozen=True, slots=True)
class Design:
    """The experimental design: which samples a scenario has."""

    identities: Sequence[Identity]
    phases: Sequence[int] = (1, 2)
    texts: Texts = "same"
    form: Form = "sentence"
    metrics: Mapping[str, str] | None = None
    """Metrics with their definitions; None for the usual ones."""
    winner: bool = True
    """Whether judges of a pair name the winner."""
    bands: bool = False
    """Whether judges see an example of each band of a scale."""

    def samples(self, base: Base, scenario: Scenario, pairs: Sequence[Compared] | None = None) -> Iterator[Sample]:
        """Yields all samples of a scenario; samples with the same prompt prefix are adjacent.

        `pairs` are those to compare side by side; None for all.
        """
        if 1 in self.phases:
            yield self._alone(base, scenario, None)
            for identity in self.identities:
                yield self._alone(base, scenario, identity)
        if 2 in self.phases:
            for one, other in pairs_of(self.identities) if pairs is None else pairs:
                for shown, texts in product(((one, other), (other, one)), ORDERS[self.texts]):
                    yield self._pair(base, scenario, (one, other), shown, texts)

    def _alone(self, base: Base, scenario: Scenario, identity: Identity | None) -> Sample:
        """Phase 1: the first response, by itself."""
        name = identity.name if identity else ""
        about = {"category": identity.category if identity else CONTROL, "identity": name, "texts": [1]}
        return self._sample(
            base, scenario, f"1/{name or CONTROL}", {"phase": 1} | about, [candidate(scenario.responses[0], identity)]
        )

    def _pair(
        self,
        base: Base,
        scenario: Scenario,
        pair: tuple[Identity, Identity],
        shown: tuple[Identity, Identity],
        texts: tuple[int, int],
    ) -> Sample:
        """Phase 2: two candidates side by side."""
        numbers = [text + 1 for text in texts]
        about = {
            "phase": 2,
            "category": pair[0].category,
            "identities": [each.name for each in pair],
            "first": shown[0].name,
            "texts": numbers,
        }
        name = f"2/{pair[0].name}-{pair[1].name}/{shown[0].name}-{numbers[0]}{numbers[1]}"
        candidates = [candidate(scenario.responses[text], each) for text, each in zip(texts, shown, strict=True)]
        return self._sample(base, scenario, name, about, candidates)

    def _sample(
        self, base: Base, scenario: Scenario, name: str, about: dict[str, Any], candidates: Sequence[Candidate]
    ) -> Sample:
        return Sample(
            id=f"{base.id}/{scenario.id}/{name}",
            kind="judgement",
            prompt=scenario.situation,
            cluster=base.id,
            metadata={
                **about,
                "base": base.id,
                "scenario": scenario.id,
                "form": self.form,
                **({ASKED: dict(self.metrics)} if self.metrics else {}),
                **({} if self.winner else {UNNAMED: True}),
                **({BANDED: True} if self.bands else {}),
                CANDIDATES: [each.note() for each in candidates],
            },
        )


def candidate(text: str, identity: Identity | None) -> Candidate:
    """Returns a response labelled with this identity, or without a label."""
    return Candidate(text, identity.name, identity.author, identity.tag) if identity else Candidate(text)


def drawn_pairs(identities: Sequence[Identity], count: int, seed: int) -> Iterator[list[Compared]]:
    """Yields the pairs of one scenario after the other, without end: so many different ones, or all there are.

    Categories take turns, and so do the pairs of each, in an order drawn by the seed. So every category is compared
    about equally often, and the first scenarios have the same pairs however many follow.
    """
    pairs = pairs_of(identities)
    categories = sorted({one.category for one, _ in pairs})
    turns = {
        category: cycle(
            sorted(
                (pair for pair in pairs if pair[0].category == category),
                key=lambda pair: draw_key(seed, f"{pair[0].name}-{pair[1].name}"),
            )
        )
        for category in categories
    }
    endless = (next(turns[category]) for category in cycle(categories))
    while True:
        yield list(islice(_different(endless), min(count, len(pairs))))


def _different(pairs: Iterator[Compared]) -> Iterator[Compared]:
    """Yields each pair the first time that it comes."""
    seen: set[tuple[str, str]] = set()
    for one, other in pairs:
        if (one.name, other.name) not in seen:
            seen.add((one.name, other.name))
            yield one, other
