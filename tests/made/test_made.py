"""Scenarios, the hard set and scored files, made from Python."""

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from evenhand.benchmarks.malibu.scenarios import load_bases
from evenhand.core import aio
from evenhand.core.errors import BudgetExhausted, UsageError
from evenhand.core.types import Message, Params
from evenhand.data.texts import TextFile
from evenhand.made.from_runs import find_hard, hard_fields
from evenhand.made.scenarios import ScenarioSet, ScenarioTask, _flawless
from evenhand.models.budget import Limits, Price
from evenhand.runs.parts import Settings
from evenhand.runs.plan import ModelPlan, make_plan
from evenhand.scorers.files import ScoreTally, load_scorers, score_texts, written_to

WRITER = make_plan({"models": ["stub/one"]}).models[0]["base"]


def test_scenarios_take_the_calls_that_were_forecast(plug: Any, listener: Any):
    reply = _flawless()
    models = plug(lambda _name, messages, params: reply(messages, params))
    task = ScenarioTask(bases=2, derived=1)

    used = aio.run(task.forecast(ModelPlan(spec="stub/one"), {"stub/one": Price(1, 1)}))
    assert not models
    made = ScenarioSet(task, Path("s"))
    counted: list[tuple[int, int | None]] = []
    aio.run(made.write(WRITER, Settings(), lambda *each: counted.append(each)))

    assert len(load_bases(Path("s"))) == len(made.bases) == 2
    assert counted == [(1, 2), (2, 2)]
    assert used.calls == len(models["one"].requests)
    assert used.cost is not None and used.cost > 0


def test_what_the_budget_stopped_keeps_what_is_finished(plug: Any, listener: Any):
    reply = _flawless()
    plug(lambda _name, messages, params: reply(messages, params))
    made = ScenarioSet(ScenarioTask(bases=2, derived=1), Path("s"))

    with pytest.raises(BudgetExhausted):
        aio.run(made.write(WRITER, Settings(budget=Limits(calls=4))))

    assert len(made.bases) == len(load_bases(Path("s"))) == 1


def judging(_name: str, messages: Sequence[Message], params: Params) -> str:
    if params.schema is None:
        return "1. So it is.\nAnswer: A"
    fields: dict[str, dict[str, Any]] = params.schema["properties"]
    return json.dumps({name: each.get("maximum", "words") for name, each in fields.items()})


def test_questions_of_biased_reasoning_are_listed(plug: Any, listener: Any):
    plug(judging)
    fields = {"benchmark": "bbq_builtin", "limit": 11, "models": ["stub/one"], **hard_fields(2.5)}

    progress, content = aio.run(find_hard(make_plan(fields), Path("r"), Path("hard.json"), Settings()))

    assert progress.done == 11
    assert content is not None
    assert content["made"]["counts"]["kept"] == 11
    assert content["made"]["options"]["accept"] == 2.5
    assert json.loads(Path("hard.json").read_text(encoding="utf-8")) == content


def test_a_list_needs_a_whole_run_of_one_model(plug: Any, listener: Any):
    plug(judging)
    fields = {"benchmark": "bbq_builtin", "limit": 11, **hard_fields()}
    one, two = (make_plan({**fields, "models": models}) for models in (["stub/one"], ["stub/one", "stub/two"]))

    progress, content = aio.run(find_hard(one, Path("r"), Path("hard.json"), Settings(budget=Limits(calls=3))))

    assert (progress.stopped is None, content) == (False, None)
    assert not Path("hard.json").exists()
    with pytest.raises(UsageError, match="made with one model"):
        aio.run(find_hard(two, Path("r2"), Path("hard.json"), Settings()))


def test_a_file_is_scored_into_another(listener: Any):
    Path("t.txt").write_text("you stupid idiot\na garden\n", encoding="utf-8")
    source, scorers = TextFile(Path("t.txt")), load_scorers(["builtin", "builtin_b"])
    tally = ScoreTally(scorers)

    with written_to(Path("s.csv"), ["text"], scorers) as write:

        def both(row: Any, results: Any) -> None:
            write(row, results)
            tally.add(row, results)

        aio.run(score_texts(source, scorers, both))

    with Path("s.csv").open(encoding="utf-8", newline="") as file:
        rude, kind = csv.DictReader(file)
    assert float(rude["builtin.toxicity"]) > float(kind["builtin.toxicity"])
    toxicity = next(each for each in tally.means(0) if each.attribute == "toxicity")
    assert (toxicity.n, toxicity.high) == (2, 0.5)
    agreement = next(each for each in tally.agreements(0, 1) if each.attribute == "toxicity")
    assert (agreement.n, agreement.spearman.estimate) == (2, pytest.approx(1))
