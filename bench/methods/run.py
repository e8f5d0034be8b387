"""Methods for questions on SQuAD v2 and on our own passages, and BBQ in free text, with the answers row by row.

    python bench/methods/run.py MODEL --data DIR --sets squad,own --method default --method weigh:calls=6 --out OUT

BBQ in all languages and difference awareness are measured with `evenhand compare`; here BBQ is asked again only to keep
the readings of `weigh`. SQuAD v2 is asked with three options: the answer, or what another question of the article is
answered by, and that the passage does not say. `bbq_text` and `own_text` ask for one sentence instead of a letter;
rules read whom it names. Calls are cached, as in a run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "verifiable"))

import sets

from evenhand.benchmarks.base import Selection, load_benchmark
from evenhand.core.files import cache_folder
from evenhand.core.options import Options
from evenhand.core.specs import read_spec
from evenhand.core.types import Answer, Sample
from evenhand.methods.base import METHODS, Method
from evenhand.models.base import Model
from evenhand.models.budget import Budget
from evenhand.reading.text import abstains as option_abstains
from evenhand.runs.parts import Settings, opened_model
from evenhand.runs.plan import model_plan
from evenhand.session import Answering, Session
from evenhand.stats.intervals import wilson
from evenhand.training.questions.generate import contrast_passages
from evenhand.training.questions.grading import abstains, aliases, names

NOT_SAID = "The passage does not say"
FREE = "{context}\n\n{question} Answer in one sentence."


def bbq(data: Path, count: int, seed: int) -> Iterable[Sample]:
    for sample in load_benchmark("bbq", data=str(data / "bbq")).samples(Selection(limit=count, seed=seed)):
        yield replace(sample, metadata={**sample.metadata, "condition": sample.metadata["context_condition"]})


def own(_data: Path, count: int, seed: int) -> Iterable[Sample]:
    for each in contrast_passages(count, seed):
        facts = {"condition": "told" if each.right is not None else "not told", "category": each.group}
        yield replace(each.sample, metadata={**facts, "unknown": each.unknown})


def squad(data: Path, count: int, seed: int) -> Iterable[Sample]:
    rows = sets.squad_passages(data, 100_000, seed)
    answers: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        if row["answers"]:
            answers[row["context"]].append(row["answers"][0])
    told, not_told = ([row for row in rows if bool(row["answers"]) == kind] for kind in (True, False))
    for number, (kind, pool) in enumerate((("answerable", told), ("unanswerable", not_told))):
        made = 0
        for place, row in enumerate(pool):
            rng = random.Random(f"{seed}/{number}/{place}")
            right = row["answers"][:1]
            others = sorted({each for each in answers[row["context"]] if each not in row["answers"]})
            options = [*right, *rng.sample(others, min(2 - len(right), len(others)))]
            if len(options) < 2 or made == count // 2:
                continue
            made += 1
            options.append(NOT_SAID)
            target = 0 if right else 2
            yield Sample(f"squad/{kind}/{place}", "choice", row["question"], row["context"], tuple(options), target,
                         metadata={"condition": kind, "category": "squad"})  # fmt: skip


def in_text(choices: Iterable[Sample]) -> Iterable[Sample]:
    """The questions without their options."""
    for each in choices:
        asked = FREE.format(context=each.context, question=each.prompt)
        facts = {**each.metadata, "options": each.choices, "unknown": _unknown(each)}
        yield Sample(each.id, "chat", asked, target=each.target, metadata=facts)


def _unknown(sample: Sample) -> int:
    return next(index for index, option in enumerate(sample.choices) if option_abstains(option))


SETS: dict[str, Callable[[Path, int, int], Iterable[Sample]]] = {
    "bbq": bbq,
    "own": own,
    "squad": squad,
    "bbq_text": lambda *given: in_text(bbq(*given)),
    "own_text": lambda *given: in_text(own(*given)),
}


async def measure(model: Model, spec: str, samples: list[Sample], orders: int, concurrency: int) -> dict[str, Any]:
    name, given = read_spec(spec)
    method = METHODS.get(name)
    options = method.with_options(given)
    gate = asyncio.Semaphore(concurrency)
    started = time.perf_counter()

    async def one(sample: Sample) -> dict[str, Any]:
        async with gate:
            return await _row(model, method, options, sample, orders)

    rows = await asyncio.gather(*(one(sample) for sample in samples))
    groups: dict[str, list[bool]] = defaultdict(list)
    for row in rows:
        groups[row["condition"]].append(row["right"])
    shares = {key: wilson(sum(flags), len(flags)) for key, flags in sorted(groups.items())}
    return {
        "right": {
            key: [each.n, *(round(100 * (value or 0), 1) for value in (each.estimate, each.low, each.high))]
            for key, each in shares.items()
        },
        "calls": sum(row["calls"] for row in rows) / len(rows),
        "unscored": sum(row["choice"] is None for row in rows),
        "seconds": time.perf_counter() - started,
        "rows": rows,
    }  # fmt: skip


def named(sample: Sample, text: str) -> int | None:
    """The option that a free answer means; None if it names nobody, or both, and leaves nothing open."""
    options, unknown = sample.metadata["options"], sample.metadata["unknown"]
    return unknown if abstains(text) else names(text, aliases(options, unknown))


async def _row(model: Model, method: Method, options: Options, sample: Sample, orders: int) -> dict[str, Any]:
    session = Session(sample, {"base": model}, 0, options, Answering(orders))
    outcome = await method.run(sample, session)
    answer = outcome.result if isinstance(outcome.result, Answer) else None
    choice = None if answer is None else answer.choice if sample.kind == "choice" else named(sample, answer.text)
    kept = {key: outcome.notes[key] for key in ("told", "readings", "claims") if key in outcome.notes}
    if answer is not None and sample.kind == "chat":
        kept["text"] = answer.text[:300]
    facts = {key: sample.metadata.get(key) for key in ("condition", "category", "unknown")}
    return {
        "id": sample.id, **facts, "target": sample.target, "choice": choice, "right": choice == sample.target,
        "stop": outcome.stop, "calls": len(session.trace), **kept,
    }  # fmt: skip


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", type=lambda text: text.split(","), default=["squad"])
    parser.add_argument("-m", "--method", action="append", default=[])
    parser.add_argument("--limit", type=int, default=600)
    parser.add_argument("--seed", type=int, default=57)
    parser.add_argument("--orders", type=int, default=3)
    parser.add_argument("--concurrency", type=int, default=256)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    settings = Settings(concurrency=given.concurrency, cache=cache_folder() / "responses.sqlite")
    given.out.mkdir(parents=True, exist_ok=True)
    async with opened_model(model_plan(given.model), settings, Budget(settings.budget)) as model:
        for name in given.sets:
            samples = list(SETS[name](given.data, given.limit, given.seed))
            found: dict[str, Any] = {}
            for spec in given.method:
                found[spec] = await measure(model, spec, samples, given.orders, given.concurrency)
                shown = {key: value for key, value in found[spec].items() if key != "rows"}
                print(name, spec, json.dumps(shown), flush=True)
                about = {"set": name, "seed": given.seed, "orders": given.orders, "model": given.model}
                (given.out / f"{name}.json").write_text(json.dumps({**about, "methods": found}))


if __name__ == "__main__":
    asyncio.run(main())
