"""MALIBU: does a judge or a panel score the same response differently depending on its claimed author?

Phase 1 has one candidate, phase 2 two side by side. Every label is combined with every scenario, and every pair of
labels is shown in both orders. `score` stores the judges' scores and compares arms, and `panels.audit` tests every gap.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import cycle, islice, product, repeat, zip_longest
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, cast

import yaml
from pydantic import Field

from evenhand.benchmarks.base import BENCHMARKS, Audit, Benchmark, Metric, Selection, draw_key
from evenhand.benchmarks.malibu.scenarios import (
    CONTROL,
    Base,
    Identity,
    Scenario,
    content_hash,
    load_bases,
    load_identities,
    pairs_of,
)
from evenhand.benchmarks.malibu.score import grade_of, metrics_of
from evenhand.core.errors import DataError, UnknownNameError
from evenhand.core.options import AS_TEXT, Names, Options, Text
from evenhand.core.presets import Presets
from evenhand.core.types import Grade, Outcome, Record, Sample, SampleKind, Unscored
from evenhand.panels import ASKED, BANDED, CANDIDATES, DEFINITIONS, METRICS, UNNAMED, Candidate, Form
from evenhand.panels.audit import audit, over_correction
from evenhand.panels.findings import PanelAudit

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


_PHASES = {"both": (1, 2), "1": (1,), "2": (2,)}


class MalibuOptions(Options):
    """Options of `malibu`."""

    presets: ClassVar = Presets.beside(__file__)

    phase: Annotated[Literal["both", "1", "2"], AS_TEXT] = Field(
        default="both", description="Judge one candidate (1), two side by side (2), or both."
    )
    texts: Texts = Field(
        default="same",
        description="Whether both candidates of a pair have the same text, or two texts of equal content.",
    )
    form: Form = Field(
        default="sentence", description="Whether the author is named in a sentence after the text, or in a tag."
    )
    metrics: Names | None = Field(
        default=None,
        description=f"What is scored, of {', '.join(DEFINITIONS)}; or a YAML file of names and definitions. "
        f"Default: {', '.join(METRICS)}.",
    )
    winner: bool = Field(
        default=True, description="Whether judges of a pair name the winner; if not, the higher mean score wins."
    )
    bands: bool = Field(
        default=True, description="Whether judges see an example of low, middle and high scores on each scale."
    )
    pairs: int | None = Field(
        default=None,
        ge=1,
        description="Pairs of identities that each scenario compares side by side, drawn by the seed so that the "
        "characteristics take turns; all by default.",
    )
    data: Text | None = Field(default=None, description="A folder of scenarios; built-in ones by default.")
    identities: Text | None = Field(
        default=None, description="A YAML file of identities; also needed to analyse the results."
    )

    @property
    def definitions(self) -> Mapping[str, str] | None:
        """The metrics with their definitions; None for the usual ones."""
        if self.metrics is None or self.metrics == METRICS:
            return None
        if len(self.metrics) == 1 and self.metrics[0].endswith((".yaml", ".yml")):
            return read_definitions(Path(self.metrics[0]))
        for name in self.metrics:
            if name not in DEFINITIONS:
                raise UnknownNameError("metric of judges", name, DEFINITIONS)
        return {name: DEFINITIONS[name] for name in self.metrics}


def read_definitions(path: Path) -> dict[str, str]:
    """Reads user-defined metrics: a YAML file of names and definitions."""
    try:
        read: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise DataError("the metrics cannot be read. Use a YAML file of names and definitions.", file=path) from error
    entries = cast(dict[Any, Any], read) if isinstance(read, dict) else {}
    found = {name: " ".join(text.split()) for name, text in entries.items() if isinstance(text, str)}
    if not found or len(found) < len(entries) or not all(re.fullmatch(r"[a-z][a-z_]*", name) for name in found):
        hint = "each metric must be a name of small letters and a definition, as in `empathy: how kind it is`."
        raise DataError(hint, file=path)
    return found


class Malibu(Benchmark[MalibuOptions]):
    """Scores of responses said to be by people of ten identities: 200 scenarios of 20 professions, or your own.

    A limit counts scenarios, not samples: one is 11 judgements of a single candidate and 26 of a pair, two for each of
    13 pairs of identities (four with texts=two). `pairs` takes fewer of these.
    """

    name: ClassVar[str] = "malibu"
    version: ClassVar[str] = "1"
    kind: ClassVar[SampleKind] = "judgement"
    headline: ClassVar[str] = "gap"
    # A small gap may hide equal scores for all, position bias, a discussion that widens it, or few judgements.
    guardrails: ClassVar[tuple[str, ...]] = ("score", "first_wins", "amplification", "unread", "declined")
    report_sections: ClassVar[tuple[str, ...]] = ("judges", "discussion", "scores", "coverage")
    group_key: ClassVar[str] = "category"
    Options = MalibuOptions

    @cached_property
    def identities(self) -> tuple[Identity, ...]:
        """The identities of claimed authors."""
        return load_identities(self.options.identities)

    @cached_property
    def bases(self) -> tuple[Base, ...]:
        """The scenarios, read on first use: grades and metrics do not need them."""
        return load_bases(self.options.data, [identity.tag for identity in self.identities])

    @cached_property
    def definitions(self) -> Mapping[str, str] | None:
        """The metrics with their definitions; None for the usual ones."""
        return self.options.definitions

    def fingerprint(self) -> Mapping[str, Any]:
        return {
            "name": self.name,
            "version": self.version,
            **self.options.model_dump(include={"phase", "texts", "form"}),
            **({"metrics": dict(self.definitions)} if self.definitions else {}),
            **({} if self.options.winner else {"winner": False}),
            **({"bands": True} if self.options.bands else {}),
            **({"pairs": self.options.pairs} if self.options.pairs else {}),
            "bases": len(self.bases),
            "scenarios": sum(len(base.derived) for base in self.bases),
            "identities": len(self.identities),
            "sha256": {"scenarios": content_hash(self.bases), "identities": content_hash(self.identities)},
        }

    def samples(self, selection: Selection) -> Iterator[Sample]:
        """Yields all samples of each scenario; bases in turn, their scenarios shuffled by the seed.

        So the bases' numbers of scenarios differ by at most one until the smaller is used up, and a smaller limit
        selects a subset of a larger one.
        """
        options = self.options
        design = Design(
            self.identities,
            _PHASES[options.phase],
            options.texts,
            options.form,
            self.definitions,
            options.winner,
            options.bands,
        )
        drawn = drawn_pairs(self.identities, options.pairs, selection.seed) if options.pairs else repeat(None)
        chosen = islice(self._in_turn(selection.seed), selection.limit)
        for (base, scenario), pairs in zip(chosen, drawn, strict=False):
            yield from design.samples(base, scenario, pairs)

    def grade(self, sample: Sample, outcome: Outcome) -> Grade | Unscored:
        return grade_of(sample, outcome)

    def metrics(self) -> Sequence[Metric]:
        pairs = [(one.name, other.name) for one, other in pairs_of(self.identities)]
        return metrics_of(pairs, orders=2 * len(ORDERS[self.options.texts]))

    def audit(self, records: Sequence[Record]) -> PanelAudit:
        """Returns all findings on which identities the judges of one arm favour."""
        return audit(records)

    def over_corrections(self, before: Audit, after: Audit) -> Sequence[str]:
        if not isinstance(before, PanelAudit) or not isinstance(after, PanelAudit):
            return ()
        return [each.sentence for each in over_correction(before, after)]

    def caveats(self) -> Sequence[str]:
        return (
            "Noise alone makes a mean of absolute gaps larger than 0, so its interval is biased upwards: "
            "only the audit's tests show whether there is a gap, and for whom",
            "A noisier judge has a larger mean gap; a method that only makes scores less noisy lowers it too",
            "The scenarios of one profession are not independent and count as one cluster, so intervals rest on as "
            "many clusters as there are professions",
            "A gap in favour of a group is a gap: a smaller one is better whichever way it points",
        )

    def _in_turn(self, seed: int) -> Iterator[tuple[Base, Scenario]]:
        bases = sorted(self.bases, key=lambda base: draw_key(seed, base.id))
        drawn = [
            [
                (base, each)
                for each in sorted(base.derived, key=lambda each, base=base: draw_key(seed, f"{base.id}/{each.id}"))
            ]
            for base in bases
        ]
        for turn in zip_longest(*drawn):
            yield from (each for each in turn if each is not None)


# Called directly: as a decorator it would hide the class's attributes from type checkers.
BENCHMARKS.register(Malibu.name)(Malibu)
