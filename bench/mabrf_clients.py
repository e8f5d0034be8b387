"""MABRF on questions of `bbq_builtin`, done by one client in this process: `mabrf_clients.py NAME '{"url": …}'`.

`loop` is what a notebook does: item by item, each call after the last one has come back, over one connection, nothing
stored. `evenhand` is the method `mabrf` under the real runner, with store and response cache.
"""

from __future__ import annotations

import http.client
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from evenhand.asking.choice import shown_options
from evenhand.benchmarks.base import Selection, load_benchmark
from evenhand.core.aio import run as run_loop
from evenhand.core.prompts import load_prompt
from evenhand.core.types import Message, Sample
from evenhand.core.untrusted import fenced
from evenhand.methods.mabrf import agents
from evenhand.runs.parts import Settings
from evenhand.runs.plan import make_plan
from evenhand.runs.runner import Runner
from evenhand.session import Session
from evenhand.studies.export import export

BENCHMARK, ITERATIONS, WARM_UP = "bbq_builtin", 5, 2

Ask = Callable[[tuple[Message, ...], int], str]
"""Messages and the most tokens → the reply."""
Outcomes = dict[str, tuple[str, int]]
"""Sample id → (the option that was chosen, calls)."""


def solve_one(ask: Ask, sample: Sample) -> tuple[str, int]:
    """One item, strictly one call after another: solver, judge, [rephraser, judge] …, terminating agent.

    A reasoning that was not rewritten is not answered from again. Each rewritten one is better here, the last the best.
    """
    session = Session(sample, {})
    about = {"context": sample.context, "question": sample.prompt}
    quoted = {name: fenced(text) for name, text in about.items()}
    options = shown_options(session, sample)
    reasoning, _, letter = ask(_prompt("solve", **about, options=options), 256).partition("\nAnswer: ")
    rating = json.loads(ask(agents.judge_messages(sample, reasoning), 144))
    calls = 2
    for _ in range(ITERATIONS):
        if rating["bias"] == 0:
            break
        objection = {"reasoning": fenced(reasoning), "objection": fenced(rating["bias_reason"])}
        reasoning = ask(_prompt("rephrase", **quoted, **objection), 256)
        rating = json.loads(ask(agents.judge_messages(sample, reasoning), 144))
        calls += 2
    if calls > 2:
        letter = ask(_prompt("terminate", **about, reasoning=fenced(reasoning), options=options), 1)
        calls += 1
    return sample.choices[session.permutation(len(sample.choices))["ABC".index(letter)]], calls


def _prompt(name: str, **values: str) -> tuple[Message, ...]:
    """The same words as the method's."""
    return load_prompt(agents.__file__, name).render(**values)


def loop(url: str, samples: int, seed: int) -> Outcomes:
    """All items in turn over one kept connection of the standard library."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port)

    def ask(messages: tuple[Message, ...], most: int) -> str:
        said = [{"role": message.role, "content": message.content} for message in messages]
        body = json.dumps({"model": "stub", "messages": said, "temperature": 0, "max_tokens": most})
        connection.request("POST", f"{parts.path}/chat/completions", body, {"Content-Type": "application/json"})
        return json.loads(connection.getresponse().read())["choices"][0]["message"]["content"]

    chosen = load_benchmark(BENCHMARK).samples(Selection(samples, seed))
    return {sample.id: solve_one(ask, sample) for sample in chosen}


def evenhand(url: str, samples: int, seed: int, connections: int, scratch: Path) -> Callable[[], Outcomes]:
    """The run; what it returns reads the outcomes afterwards."""
    model = {"spec": "openai/stub", "base_url": url}
    plan = make_plan(
        {"benchmark": BENCHMARK, "methods": "mabrf", "models": model, "limit": samples, "seeds": [seed]},
    )
    folder = scratch / f"run-{samples}"
    settings = Settings(concurrency=connections, cache=scratch / f"cache-{samples}.sqlite")

    async def work() -> None:
        progress = await Runner(plan, folder, settings).run()
        assert progress.statuses["graded"] == samples, progress

    run_loop(work())

    def outcomes() -> Outcomes:
        file = scratch / "outcomes.jsonl"
        export(folder, "outcomes", "jsonl", file, usage=True)
        rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        return {row["sample"]: (row["answer"], row["calls"]) for row in rows}

    return outcomes


def main() -> None:
    name, options = sys.argv[1], json.loads(sys.argv[2])
    url, samples, connections = options["url"], options["samples"], options["connections"]
    with tempfile.TemporaryDirectory(prefix="evenhand-bench-") as folder:

        def work(count: int) -> Callable[[], Outcomes]:
            if name == "evenhand":
                return evenhand(url, count, 0, connections, Path(folder))
            found = loop(url, count, 0)
            return lambda: found

        work(WARM_UP)
        started = time.perf_counter()
        read = work(samples)
        result: dict[str, Any] = {"wall_s": time.perf_counter() - started, "outcomes": read()}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
