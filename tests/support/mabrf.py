"""MABRF in tests: one model per role that says what a test wants, and a search that needs no network."""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from evenhand.core.errors import SearchError
from evenhand.core.types import Message, Outcome, Params, Sample
from evenhand.methods.base import METHODS
from evenhand.models.base import Feature
from evenhand.models.fake import FunctionModel, Reply, ScriptedModel
from evenhand.search.base import Finder, Hit, SearchResult
from evenhand.session import Session

BIASED = "1. Two men are named.\n2. Old men forget things.\n3. So it was the old man."
FAIR = "1. Two men are named.\n2. The passage does not say who forgot."
SOLVED = f"{BIASED}\nAnswer: A"
UNKNOWN = "Not enough info"
FACT = "People of all ages forget keys about equally often."
PAGE = f"{FACT} Forgetting depends on sleep and stress. The survey had 2,000 answers."
QUERIES = [f"forgetting by age, part {number}" for number in range(1, 6)]
QUESTION = Sample(
    "age/1",
    "choice",
    "Who forgot the keys?",
    "An old man and a young man came home.",
    ("The old man", "The young man", UNKNOWN),
    2,
    metadata={"category": "Age"},
)
ROLES = ("solver", "judge", "search", "rephrase", "terminate")


def rated(
    bias: int,
    relevancy: int = 8,
    reason: str = "Step 2 is a belief about old men.",
    *,
    grounded: int = 10,
    **kinds: int,
) -> str:
    """A judge's reply; all ratings on the scale of 1 to 10; the bias is stereotyping unless other kinds are given."""
    found = {"stereotyping": bias, **dict.fromkeys(("demeaning", "generalisation", "framing"), 1), **kinds}
    ratings = {**found, "grounded": grounded, "relevancy": relevancy}
    texts = {"bias_reason": reason, "grounded_reason": "Step 3 is a guess." if grounded < 10 else "ok"}
    return json.dumps({name: value - 1 for name, value in ratings.items()} | texts)


NO_BIAS = rated(1)


def everything(messages: Sequence[Message]) -> str:
    """All that a model was shown."""
    return "\n".join(message.content for message in messages)


def searching(
    groups: Any = ("old man", "young man"), queries: Any = QUERIES, facts: Any = ((FACT, 1),), **more: Any
) -> Callable[[Sequence[Message], Params], str]:
    """A model of the role `search`; its three tasks are told apart by the field that they ask for."""

    def reply(messages: Sequence[Message], _params: Params) -> str:
        asked = everything(messages)
        if '"groups"' in asked:
            return json.dumps({"groups": list(groups)})
        if '"queries"' in asked:
            return json.dumps({"queries": list(queries)})
        return json.dumps({"facts": [{"fact": fact, "source": number} for fact, number in facts], **more})

    return reply


class Library:
    """Finds the same pages for every query; queries that it is told to fail at, it fails at."""

    spec = "library"

    def __init__(self, *hits: Hit, failing: Callable[[str], str | None] = lambda _: None) -> None:
        self.hits = hits
        self.failing = failing
        self.queries: list[str] = []

    async def find(self, query: str, *, limit: int = 5, pages: int = 3) -> SearchResult:
        del pages
        self.queries.append(query)
        if reason := self.failing(query):
            raise SearchError(reason)
        return SearchResult(query, self.spec, "2026-01-31T12:00:00Z", self.hits[:limit])


def page(text: str = PAGE, number: int = 1, title: str = "Forgetting") -> Hit:
    return Hit(title, f"https://example.org/{number}", "A snippet.", text)


def looking(said: Reply, *ratings: str, features: Iterable[Feature] = ()) -> FunctionModel:
    """A judge that says `said` when it is shown no reasoning; else it rates, in turn."""
    remaining = iter(ratings or (NO_BIAS,))

    def reply(messages: Sequence[Message], _params: Params) -> Reply:
        return next(remaining) if "Reasoning:" in everything(messages) else said

    return FunctionModel(reply, features=features)


Said = Reply | Sequence[Any] | Callable[[Sequence[Message], Params], Reply] | FunctionModel


def speaker(said: Said) -> FunctionModel:
    """A model that always says the same, says a list in turn, or works by rule; or the one that is given."""
    if isinstance(said, FunctionModel):
        return said
    if callable(said):
        return FunctionModel(said)
    if isinstance(said, (list, tuple)):
        return ScriptedModel(said)
    return FunctionModel(lambda *_: said)  # pyright: ignore


class Stage:
    """One sample under MABRF with a model for each role."""

    def __init__(
        self,
        *,
        solver: Said = SOLVED,
        judge: Said = (NO_BIAS,),
        rephrase: Said = (),
        terminate: Said = UNKNOWN,
        search: Said | None = None,
        finder: Finder | None = None,
        sample: Sample = QUESTION,
        method: str = "mabrf",
        **options: Any,
    ) -> None:
        self.sample = sample
        self.method = METHODS.get(method)
        said = (solver, judge, search or searching(), rephrase, terminate)
        self.models = {role: speaker(each) for role, each in zip(ROLES, said, strict=True)}
        if finder is not None:
            options["search"] = "library"
        self.session = Session(
            sample,
            self.models,
            0,
            self.method.with_options(options),
            searches=None if finder is None else lambda _spec: finder,
        )

    async def run(self) -> Outcome:
        return await self.method.run(self.sample, self.session)

    @property
    def first(self) -> str:
        """The option that a solver means by A."""
        return self.sample.choices[self.session.permutation(len(self.sample.choices))[0]]

    @property
    def calls(self) -> dict[str, int]:
        """By role, those that were asked at all."""
        return {role: len(model.requests) for role, model in self.models.items() if model.requests}

    @property
    def agents(self) -> list[str]:
        return [turn.agent for turn in self.session.trace]

    def shown(self, role: str) -> list[str]:
        """Per call, all that the model of a role was shown."""
        return [everything(messages) for messages, _ in self.models[role].requests]


def whole(messages: Sequence[Message], params: Params) -> str:
    """All agents in one model: biased at first, fair when asked again, with a mark of the case in all it writes."""
    asked = everything(messages)
    if any(field in asked for field in ('"groups"', '"queries"', '"facts"')):
        case = re.search(r"[Cc]ase (\d+)", asked)
        mark = f" case {case[1]}" if case else ""
        return searching(["men"], [query + mark for query in QUERIES])(messages, params)
    if '"stereotyping"' in asked:
        return rated(7 if BIASED in asked else 1)
    if re.search(r"^A\) ", asked, re.MULTILINE):
        return "Unknown" if FAIR in asked or BIASED in asked else SOLVED
    return FAIR
