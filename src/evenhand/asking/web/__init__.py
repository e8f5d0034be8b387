"""The search agent: identity groups, queries, pages, and a summary in which every fact has its source.

Brain: the model of the role `search`. Toolbox: a search. Memory: none. A failure is never an error: it gives evidence
without facts and a sentence that says why, and the method goes on without evidence.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import zip_longest
from typing import Annotated, Any, cast

from pydantic import BaseModel, BeforeValidator, StringConstraints

from evenhand.asking.reply import ask_json, object_schema
from evenhand.core import aio
from evenhand.core.errors import PlanError, SearchError
from evenhand.core.prompts import Prompt, load_prompt
from evenhand.core.types import Params, Sample, Unscored
from evenhand.core.untrusted import fenced, without_orders
from evenhand.search.base import Finder, SearchResult
from evenhand.session import Session

SEARCH = "search"
"""The role of the model that searches; the base model where no other is given."""
QUERIES = 5
TEMPERATURE = 0.2
_SOURCES = 6
_SOURCE_LENGTH = 1200
_READ = 2 * _SOURCE_LENGTH
"""Characters of a page that are read and stored: more than are shown, since sentences with orders are removed."""
_FACTS = 6
_ADDRESS = 200
"""Characters of an address that are shown."""

_TEXT = {"type": "string"}
_Words = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=600)]


def _strings(value: Any) -> Any:
    """Facts are not lost because a model writes objects where sentences belong; the objects are."""
    return [each for each in cast(list[Any], value) if isinstance(each, str)] if isinstance(value, list) else value


_Sentences = Annotated[list[str], BeforeValidator(_strings)]


class _Groups(BaseModel):
    groups: list[str]


class _Queries(BaseModel):
    queries: list[str]


class _Fact(BaseModel):
    fact: _Words
    source: int


class _Summary(BaseModel):
    facts: list[_Fact]
    contradictions: _Sentences = []
    gaps: _Sentences = []


_GROUPS_SCHEMA = object_schema(groups={"type": "array", "items": _TEXT, "maxItems": 8})
_QUERIES_SCHEMA = object_schema(queries={"type": "array", "items": _TEXT, "minItems": QUERIES, "maxItems": QUERIES})


def _summary_schema(sources: int) -> dict[str, Any]:
    source = {"type": "integer", "minimum": 1, "maximum": sources}
    return object_schema(
        facts={"type": "array", "items": object_schema(fact=_TEXT, source=source), "maxItems": _FACTS},
        contradictions={"type": "array", "items": _TEXT, "maxItems": 3},
        gaps={"type": "array", "items": _TEXT, "maxItems": 3},
    )


@dataclass(frozen=True, slots=True)
class WebSource:
    """A source of the summary, as the model saw it."""

    number: int
    title: str
    url: str
    text: str

    def name(self) -> str:
        """Title and address, as another agent may quote them."""
        return fenced(", ".join(filter(None, (self.title, self.url[:_ADDRESS]))))


@dataclass(frozen=True, slots=True)
class Evidence:
    """The result of one search pass; `problem` says why there are no facts."""

    groups: tuple[str, ...] = ()
    queries: tuple[str, ...] = ()
    found: tuple[SearchResult, ...] = ()
    sources: tuple[WebSource, ...] = ()
    facts: tuple[tuple[str, int], ...] = ()
    """(fact, number of its source)."""
    contradictions: tuple[str, ...] = ()
    gaps: tuple[str, ...] = ()
    dropped: int = 0
    """How many sentences were removed because they gave orders to a model."""
    problem: str | None = None
    failures: tuple[str, ...] = ()
    """Why queries failed, where some did."""

    def note(self) -> dict[str, Any]:
        """All fields for the record; a run can be replayed from them."""
        kept = tuple(
            replace(each, hits=tuple(replace(hit, text=hit.text[:_READ]) for hit in each.hits)) for each in self.found
        )
        return {key: value for key, value in asdict(replace(self, found=kept)).items() if value not in ((), None)}

    def problems(self) -> list[str]:
        """Why there are no facts, or why some may be missing."""
        if self.problem or not self.failures:
            return [self.problem] if self.problem else []
        return [f"{len(self.failures)} of {len(self.queries)} queries failed: {self.failures[0]}"]

    def as_text(self, *, addresses: bool = False) -> str:
        """Facts, contradictions and gaps as lines for another agent's prompt; with titles and addresses if wanted."""
        lines = [f"- {fact} [source {number}]" for fact, number in self.facts]
        used = {number for _, number in self.facts} if addresses else ()
        lines += [f"- source {each.number}: {each.name()}" for each in self.sources if each.number in used]
        lines += [f"- sources disagree: {each}" for each in self.contradictions]
        lines += [f"- not found: {each}" for each in self.gaps]
        return "\n".join(lines)


@dataclass(slots=True)
class SearchAgent:
    """Searches for one sample; the groups that its text names are extracted once."""

    session: Session
    finder: Finder
    results: int
    """Hits per query."""
    pages: int
    """How many of these are read in full."""
    queries: int = QUERIES
    """How many of the queries are searched, the first ones."""
    gathered: list[Evidence] = field(default_factory=list[Evidence])
    """One per pass."""
    _groups: tuple[str, ...] | None = field(default=None)

    @property
    def _shown(self) -> int:
        """How many sources the summariser is shown: the best ones, or all where these are snippets."""
        return _SOURCES if self.pages else max(_SOURCES, self.queries * self.results)

    async def about_reasoning(self, sample: Sample, reasoning: str) -> Evidence:
        """Evidence on the claims that a reasoning makes about people: the four steps of the paper."""
        if self._groups is None:
            self._groups = await self._named_groups(sample)
        values = {
            "context": fenced(sample.context),
            "question": fenced(sample.prompt),
            "reasoning": fenced(reasoning),
            "groups": fenced(", ".join(self._groups) or "none"),
        }
        return await self._gather(load_prompt(__file__, "queries"), "summary_reasoning", values, self._groups)

    async def about_question(self, sample: Sample) -> Evidence:
        """Evidence on a question of fact, without identity groups."""
        values = {"question": fenced(sample.prompt)}
        return await self._gather(load_prompt(__file__, "question"), "summary", values, ())

    def note(self) -> dict[str, Any]:
        """The outcome's notes on its searches: a summary, and all of the evidence."""
        problems = list(dict.fromkeys(problem for each in self.gathered for problem in each.problems()))
        counts = {"passes": len(self.gathered), "with_facts": sum(bool(each.facts) for each in self.gathered)}
        summary = {"spec": self.finder.spec, **counts, **({"problems": problems} if problems else {})}
        return {"search": summary, "evidence": [each.note() for each in self.gathered]}

    async def _named_groups(self, sample: Sample) -> tuple[str, ...]:
        """Step 1: words of the text that name an identity; words that the text does not contain are dropped."""
        prompt = load_prompt(__file__, "groups")
        messages = prompt.render(context=fenced(sample.context), question=fenced(sample.prompt))
        params = Params(temperature=TEMPERATURE, max_tokens=96)
        reply = await ask_json(
            self.session, prompt, messages, _Groups, _GROUPS_SCHEMA, params, agent="identity finder", role=SEARCH
        )
        if isinstance(reply, Unscored):
            return ()
        text = f"{sample.context}\n{sample.prompt}"
        named = (group.strip() for group in reply.groups)
        return tuple(dict.fromkeys(group for group in named if group and _occurs(group, text)))

    async def _gather(
        self, prompt: Prompt, summary: str, values: Mapping[str, str], groups: tuple[str, ...]
    ) -> Evidence:
        self.gathered.append(await self._evidence(prompt, summary, values, groups))
        return self.gathered[-1]

    async def _evidence(
        self, prompt: Prompt, summary: str, values: Mapping[str, str], groups: tuple[str, ...]
    ) -> Evidence:
        """Steps 2 to 4; `values` is what the query writer and the summariser are shown."""
        messages = prompt.render(**values)
        params = Params(temperature=TEMPERATURE, max_tokens=200)
        reply = await ask_json(
            self.session, prompt, messages, _Queries, _QUERIES_SCHEMA, params, agent="query writer", role=SEARCH
        )
        if isinstance(reply, Unscored):
            return Evidence(groups, problem=f"no queries: {reply.reason}")
        written = list(dict.fromkeys(" ".join(each.split()) for each in reply.queries if each.strip()))
        if not written:
            return Evidence(groups, problem="no queries: the query writer named none")
        if self.queries < len(written):  # those that name a group come first
            words = [word for group in groups for word in group.lower().split()]
            written.sort(key=lambda query: not any(word in query.lower() for word in words))
        queries = tuple(written[: self.queries])
        found, failures = await self._search(queries)
        sources, dropped = _sources(found, self._shown)
        evidence = Evidence(groups, queries, found, sources, dropped=dropped, failures=failures)
        if not sources:
            return replace(evidence, problem=f"the search failed: {failures[0]}" if failures else "nothing was found")
        return await self._summary(load_prompt(__file__, summary), values, evidence)

    async def _search(self, queries: Sequence[str]) -> tuple[tuple[SearchResult, ...], tuple[str, ...]]:
        """Step 3: all queries concurrently; failures are returned as text."""

        async def one(query: str) -> SearchResult | str:
            try:
                return await self.finder.find(query, limit=self.results, pages=self.pages)
            except SearchError as error:
                return str(error)

        results = await aio.all_of(one(query) for query in queries)
        failures = tuple(each for each in results if isinstance(each, str))
        return tuple(each for each in results if isinstance(each, SearchResult)), failures

    async def _summary(self, prompt: Prompt, values: Mapping[str, str], evidence: Evidence) -> Evidence:
        """Step 4: facts with their source; a fact without a source, or one that gives orders, is dropped."""
        shown = "\n\n".join(
            f"Source {each.number}:\n<<<{fenced(each.title)}\n{fenced(each.text)}>>>" for each in evidence.sources
        )
        messages = prompt.render(**values, sources=shown)
        params = Params(temperature=TEMPERATURE, max_tokens=400)
        schema = _summary_schema(self._shown)
        reply = await ask_json(
            self.session, prompt, messages, _Summary, schema, params, agent="summariser", role=SEARCH
        )
        if isinstance(reply, Unscored):
            return replace(evidence, problem=f"no summary: {reply.reason}")
        numbers = {source.number for source in evidence.sources}
        facts = {each.fact: each.source for each in reply.facts if each.source in numbers and _harmless(each.fact)}
        made = replace(
            evidence,
            facts=tuple((fenced(fact), number) for fact, number in facts.items())[:_FACTS],
            contradictions=tuple(fenced(each) for each in reply.contradictions if _harmless(each))[:3],
            gaps=tuple(fenced(each) for each in reply.gaps if _harmless(each))[:3],
            dropped=evidence.dropped
            + sum(not _harmless(each) for each in (*(f.fact for f in reply.facts), *reply.contradictions, *reply.gaps)),
        )
        return made if made.facts else replace(made, problem="the sources say nothing to the point")


def search_agent(session: Session, spec: str, *, results: int, pages: int, queries: int = QUERIES) -> SearchAgent:
    """The agent that searches with `spec`: this many results per query, of which it reads this many pages."""
    if session.searches is None:
        raise PlanError("This session cannot search; give it searches, or remove the option that names one.")
    return SearchAgent(session, session.searches(spec), results, pages, queries)


def _sources(found: Sequence[SearchResult], most: int) -> tuple[tuple[WebSource, ...], int]:
    """The best hits of all queries, interleaved, each URL once, shortened, without orders to a model."""
    ranked = [hit for rank in zip_longest(*(each.hits for each in found)) for hit in rank if hit is not None]
    sources: list[WebSource] = []
    seen: set[str] = set()
    dropped = 0
    for hit in ranked:
        if hit.url in seen or len(sources) == most:
            continue
        seen.add(hit.url)
        text, orders = without_orders((hit.text or hit.snippet)[:_READ])
        title, more = without_orders(hit.title)
        dropped += orders + more
        if text:
            sources.append(WebSource(len(sources) + 1, title[:200], hit.url, text[:_SOURCE_LENGTH]))
    return tuple(sources), dropped


def _harmless(text: str) -> bool:
    return bool(text.strip()) and without_orders(text)[1] == 0


def _occurs(group: str, text: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(group)}(?!\w)", text, re.IGNORECASE) is not None
