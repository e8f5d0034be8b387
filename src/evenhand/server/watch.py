"""Watches production: replays a share of the requests with the identity swapped, and compares the answers.

Off unless the config has `watch`. Of a drawn request, personal data are redacted, its last user message is written for
two groups of one attribute, as own prompts are (English only, and only where that gives a sound sentence), and both
go through the route's guard. What is kept are numbers: per group and measure, a confidence sequence of the difference
from another group. So the chance that any of them ever alarms without a difference is at most `alpha` (divided among
all of them), however often one looks. No text is kept.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextvars import Context
from dataclasses import asdict, dataclass, fields
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import Any

import orjson

from evenhand.core.errors import EvenhandError, UsageError, needs_extra
from evenhand.core.files import write_json
from evenhand.core.language import language_of
from evenhand.data.identities import Group, choose_attributes, load_identities
from evenhand.data.identities.grammar import SLOT
from evenhand.data.identities.substitute import Variant, neutral, variants
from evenhand.guards.meter import Meter
from evenhand.guards.request import content_words
from evenhand.guards.types import Guarded
from evenhand.reading.refusals import looks_like_refusal
from evenhand.scorers.base import Scorer
from evenhand.server.config import WatchConfig
from evenhand.server.telemetry.logs import redacted
from evenhand.stats.sequential import MeanSequence
from evenhand.web.errors import RequestError

_log = logging.getLogger("evenhand.server")
MEASURES = ("toxicity", "refused", "length")
LANGUAGES = ("en",)
"""Languages of the messages that are replayed."""
_LONG = 400
"""Words of an answer that counts as 1 in `length`; longer ones count alike."""
_DAY = 86_400.0
_LONGEST = 20_000


@dataclass(slots=True)
class Counts:
    """What was done since the first start."""

    offered: int = 0
    drawn: int = 0
    not_written: int = 0
    """Drawn, but in another language or without a place for a group."""
    over_budget: int = 0
    failed: int = 0
    pairs: int = 0
    day: float = 0.0
    replays_today: int = 0
    cost_today: float = 0.0


class Watch:
    """The watcher of one server process; `offer` takes every answered request and returns at once."""

    def __init__(self, config: WatchConfig, scorer: Scorer, worker: int = 0) -> None:
        self.config = config
        self.counts = Counts()
        self.sequences: dict[tuple[str, str, str], MeanSequence] = {}
        """(attribute, group, measure) → its difference from another group."""
        self._groups = choose_attributes(load_identities(), config.attributes)
        self._alpha = config.alpha / (len(MEASURES) * sum(map(len, self._groups.values())))
        self._scorer = scorer
        self._random = random.Random(config.seed)
        self._redact = _presidio() if config.presidio else redacted
        self.replaying: asyncio.Task[None] | None = None
        self._told: set[tuple[str, str, str]] = set()
        self._file: Path | None = None
        if config.file is not None:
            file = Path(config.file).expanduser()
            self._file = file.with_name(f"{file.stem}.worker{worker}{file.suffix}") if worker else file
            self._load(self._file)

    @property
    def found(self) -> list[dict[str, Any]]:
        """The differences that were found: the interval of each leaves out 0."""
        return [each for each in self.rows() if each["found"]]

    def rows(self) -> list[dict[str, Any]]:
        """Return every difference with its interval."""
        rows: list[dict[str, Any]] = []
        for (attribute, group, measure), each in sorted(self.sequences.items()):
            interval = each.interval
            values = {} if interval is None else asdict(interval)
            named = {"attribute": attribute, "group": group, "measure": measure}
            rows.append({**named, **values, "found": each.excludes(0.0)})
        return rows

    def summary(self) -> dict[str, Any]:
        """Return what the page says."""
        return {"share": self.config.share, **asdict(self.counts), "rows": self.rows()}

    def offer(self, body: Mapping[str, Any] | None, route: Any, *, priced: bool) -> None:
        """Perhaps replay a request, in the background; one at a time, so that clients hardly notice."""
        if body is None:
            return
        self.counts.offered += 1
        if self._random.random() >= self.config.share:
            return
        self.counts.drawn += 1
        if (self.replaying is not None and not self.replaying.done()) or not self._within_budget(priced=priced):
            self.counts.over_budget += 1
            return
        if (pair := self._pair(body)) is None:
            self.counts.not_written += 1
            return
        # In a context of its own: these calls are neither the client's nor part of its trace.
        self.replaying = asyncio.get_running_loop().create_task(self._compare(route, *pair), context=Context())

    def _within_budget(self, *, priced: bool) -> bool:
        counts, now = self.counts, time.time()
        if now - counts.day >= _DAY:
            counts.day, counts.replays_today, counts.cost_today = now, 0, 0.0
        if self.config.cost_a_day is not None and (not priced or counts.cost_today >= self.config.cost_a_day):
            return False
        return counts.replays_today + 2 <= self.config.replays_a_day

    def _pair(self, body: Mapping[str, Any]) -> tuple[str, Sequence[tuple[Variant, dict[str, Any]]]] | None:
        """Return an attribute, and the request for two of its groups; None if it cannot be written for them."""
        messages: list[dict[str, Any]] = [{**each} for each in body["messages"]]
        places = [place for place, each in enumerate(messages) if each["role"] == "user"]
        texts = [content_words(each.get("content")) for each in messages]
        if not places or max(map(len, texts)) > _LONGEST or any(each.get("tool_calls") for each in messages):
            return None
        said = self._redact(texts[places[-1]])
        if language_of(said) not in LANGUAGES or SLOT.search(said):
            return None
        attribute = self._random.choice(list(self._groups))
        found = variants(said, self._groups[attribute], (), 0).found
        if len(found) < 2:
            return None
        for message, text in zip(messages, texts, strict=True):
            message["content"] = self._redact(text)
        made: list[tuple[Variant, dict[str, Any]]] = []
        for variant in self._random.sample(found, 2):
            swapped = [*messages]
            swapped[places[-1]] = {**messages[places[-1]], "content": variant.text}
            kept = {name: value for name, value in body.items() if name not in ("stream", "stream_options", "user")}
            made.append((variant, {**kept, "messages": swapped}))
        return attribute, made

    async def _compare(self, route: Any, attribute: str, pair: Sequence[tuple[Variant, dict[str, Any]]]) -> None:
        meter = Meter()
        try:
            with route, meter.used():
                answers = [await route.guard.respond(body) for _, body in pair]
                scores = [await self._measured(answer, self._groups[attribute]) for answer in answers]
        except (EvenhandError, RequestError, TimeoutError, OSError) as error:
            self.counts.failed += 1
            _log.warning("A request could not be replayed: %s", type(error).__name__)
            return
        finally:
            self.counts.replays_today += len(pair)
            self.counts.cost_today += meter.usage.cost or 0.0
        self.counts.pairs += 1
        for place, (variant, _) in enumerate(pair):
            for measure in MEASURES:
                own, other = scores[place].get(measure), scores[1 - place].get(measure)
                if own is not None and other is not None:
                    self._add((attribute, variant.group.name, measure), own - other)
        if self._file is not None:
            await asyncio.to_thread(self._save, self._file)

    async def _measured(self, answer: Guarded, groups: Sequence[Group]) -> dict[str, float]:
        """Return the measures of an answer, without the words that show a group."""
        text = neutral(answer.text, groups, ())
        refused = bool(answer.message.get("refusal")) or looks_like_refusal(text)
        if refused:
            return {"refused": 1.0}
        scores = (await self._scorer.score([text]))[0]
        found = {"refused": 0.0, "length": min(1.0, len(text.split()) / _LONG)}
        toxicity = scores.get("toxicity") if isinstance(scores, Mapping) else None
        return found if toxicity is None else {**found, "toxicity": toxicity}

    def _add(self, key: tuple[str, str, str], difference: float) -> None:
        before = self.sequences.get(key) or MeanSequence(self._alpha, (-1.0, 1.0))
        self.sequences[key] = before.added(max(-1.0, min(1.0, difference)))
        if self.sequences[key].excludes(0.0) and key not in self._told:
            self._told.add(key)
            _log.warning("A difference between groups was found in replayed requests: %s", "/".join(key))

    def _save(self, file: Path) -> None:
        rows = [[*key, asdict(each)] for key, each in self.sequences.items()]
        write_json(file, {"counts": asdict(self.counts), "sequences": rows})

    def _load(self, file: Path) -> None:
        if not file.exists():
            return
        try:
            kept = orjson.loads(file.read_bytes())
            names = {each.name for each in fields(Counts)}
            self.counts = Counts(**{name: value for name, value in kept["counts"].items() if name in names})
            for attribute, group, measure, state in kept["sequences"]:
                low, high = state.pop("bounds")
                sequence = MeanSequence(**state, bounds=(low, high))
                # Under other attributes, each test has another share of alpha: those numbers cannot go on.
                if sequence.alpha == self._alpha:
                    self.sequences[attribute, group, measure] = sequence
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise UsageError(
                f"{file}, the file of watch, cannot be read ({error}); remove it to begin anew."
            ) from error

    async def aclose(self) -> None:
        if self.replaying is not None:
            self.replaying.cancel()
            await asyncio.gather(self.replaying, return_exceptions=True)


def _presidio() -> Callable[[str], str]:
    """Return a function that redacts with Presidio, and then with the patterns of the log."""
    with needs_extra("watch: presidio", "presidio"):
        presidio: Any = import_module("presidio_analyzer")
    engine = presidio.AnalyzerEngine()

    def redact(text: str) -> str:
        places: list[Any] = engine.analyze(text=text, language="en")
        for found in sorted(places, key=attrgetter("start"), reverse=True):
            text = f"{text[: found.start]}[{found.entity_type.lower()}]{text[found.end :]}"
        return redacted(text)

    return redact
