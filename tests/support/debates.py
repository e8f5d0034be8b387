"""A stored run of debates, as the runner leaves it, without running one."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

from evenhand.benchmarks.debates import STATEMENTS, Statement, noted
from evenhand.core.types import Answer, Outcome, Sample
from evenhand.runs.plan import make_plan
from evenhand.runs.store import Finished, Store

Scores = Sequence[float | None]
ROLES = ("doctor", "lawyer", "engineer")


def said(topic: str, role: str, number: int) -> str:
    return f"The {role} of {topic} said in round {number} that it depends on the person."


def statements(topic: str, rounds: Sequence[Scores]) -> list[Statement]:
    """Per round one statement of each role, with its score."""
    return [
        Statement(role, number, said(topic, role, number), score, score)
        for number, scores in enumerate(rounds, 1)
        for role, score in zip(ROLES, scores, strict=False)
    ]


def store_debates(
    directory: Path, debates: Mapping[str, Sequence[Statement]], *, bias: str = "profession", pending: int = 0
) -> Path:
    """A run of one debate per topic; the last `pending` ones have no outcome."""
    samples = [
        Sample(
            f"{bias}/{topic}", "debate", f"What about {topic}?", cluster=topic, metadata={"bias": bias, "topic": topic}
        )
        for topic in debates
    ]
    store = Store(directory, create=True)
    store.put(plan=make_plan({"models": ["fake/x"], "benchmark": "debates"}).model_dump(), models=["f"], identity="i")
    store.add_samples(samples)

    async def record() -> None:
        for number, each in list(enumerate(debates.values(), 1))[: len(samples) - pending]:
            outcome = Outcome(Answer("done"), notes={STATEMENTS: noted(each)})
            await store.record_outcome(Finished(number, 1, "graded", None, 0.1, outcome))

    asyncio.run(record())
    store.close()
    return directory
