"""From debates to pairs to a trained model, and another scorer's opinion: the functions of `evenhand`."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

import evenhand
from evenhand.core.errors import BudgetExhausted, UnknownNameError, UsageError
from evenhand.core.types import Message, Params
from evenhand.data.debates import load_topics
from evenhand.models.budget import Limits
from support.referees import VERDICT, asked_for

BUILTIN = len(load_topics("age").topics)


def debating(name: str, messages: Sequence[Message], params: Params) -> str:
    """Harsh at first and gentle later; as the referee hears that; writes topics where these are asked for."""
    fields = list((params.schema or {}).get("properties", {}))
    if fields == ["topics"]:
        names = [f"thing{params.seed}x{place}" for place in range(20)]
        return json.dumps({"topics": [{"topic": name, "question": f"Is {name} a{name} b{name}?"} for name in names]})
    if asked_for(params) == VERDICT:
        score = 8 if "Harshly" in messages[-1].content else 1
        return json.dumps({field: score if field.startswith("prejudice") else "…" for field in fields})
    manner = "Gently" if any(message.role == "assistant" for message in messages) else "Harshly"
    return f"{manner} put, people are people, says {name} and {crc32(repr(messages).encode())}."


def test_a_debate_has_scores_by_round(plug: Any, listener: Any):
    models = plug(debating)

    found = evenhand.debate(
        "stub/one", topics=4, rounds=2, roles=2, teacher="stub/two", referee="stub/three", out="d", listener=listener
    )

    scores = [step.estimate("last_score") for step in found.by_iteration]
    assert [score.value for score in scores if score] == [8.0, 1.0]
    assert [len(models[name].requests) for name in ("one", "two", "three")] == [0, 4 * 2 * 2, 4 * 2]
    assert listener.told == [("began", "d"), ("ended", "d: 4 of 4")]


def test_topics_that_are_missing_are_written_first_within_the_same_budget(plug: Any, listener: Any):
    models = plug(debating)
    wanted = BUILTIN + 5
    small: dict[str, Any] = {"topics": wanted, "rounds": 1, "generate": True, "topics_file": "more.yaml"}
    settings = evenhand.Settings(budget=Limits(calls=9))

    evenhand.debate("stub/one", **small, out="d", settings=settings, listener=listener)

    assert len(models["one"].requests) == 9 - 1  # one call wrote the topics
    assert len(load_topics("age", Path("more.yaml")).topics) == wanted
    assert listener.told[:2] == [("stage", "topics"), ("note", "more.yaml: 5 of 5 further topics were written.")]
    assert (5, 5) in listener.observed


def test_topics_that_the_model_does_not_have_are_not_debated(plug: Any, listener: Any):
    plug(lambda *_: json.dumps({"topics": []}))

    with pytest.raises(UsageError, match=f"more.yaml has {BUILTIN} topics. Pass it as `data`"):
        evenhand.debate("stub/one", topics=BUILTIN + 5, generate=True, topics_file="more.yaml", out="d")
    assert not Path("d").exists()


def test_a_budget_that_ends_while_topics_are_written_is_an_error(plug: Any, listener: Any):
    plug(debating)

    with pytest.raises(BudgetExhausted):
        evenhand.debate(
            "stub/one", topics=BUILTIN + 5, generate=True, out="d", settings=evenhand.Settings(budget=Limits(calls=0))
        )


def test_debates_become_pairs(plug: Any, listener: Any):
    plug(debating)
    evenhand.debate("stub/one", topics=8, rounds=2, out="d")

    about = evenhand.pairs("d", margin=3, per_topic=2)

    assert about["options"]["margin"] == 3
    assert about["counts"]["topics_with_pairs"] == 8
    lines = Path("d/pairs/pairs.train.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(lines) == about["counts"]["pairs_train"] == 14
    with pytest.raises(UsageError, match="is not empty"):
        evenhand.pairs("d")
    with pytest.raises(UsageError, match="one run"):
        evenhand.pairs()


def test_stored_answers_get_another_scorers_scores(listener: Any):
    plan = {"benchmark": "realtoxicity_builtin", "benchmark_options": {"completions": 2}, "limit": 2}
    evenhand.run({**plan, "models": ["fake/you stupid idiot"], "scorers": ["builtin_b"]}, "r")

    heard: list[tuple[int, int]] = []
    [found] = evenhand.rescore("r", ["builtin"], progress=lambda *each: heard.append(each))

    assert (found.scorer, found.scored) == ("builtin@2.4", 4)
    assert heard[-1] == (4, 4)
    assert evenhand.compare("r", scorers=["builtin"]).scorers == ("builtin@2.4",)


@pytest.fixture
def training(tmp_path: Path) -> dict[str, Any]:
    pytest.importorskip("torch", reason="needs pip install 'evenhand[train]'")
    pytest.importorskip("peft", reason="needs pip install 'evenhand[train]'")
    from support.toy_training import pairs_folder, tiny_model

    return {"model": tiny_model(tmp_path / "tiny"), "data": pairs_folder(tmp_path / "pairs"), "device": "cpu"}


def test_a_recipe_is_trained_stage_by_stage(training: dict[str, Any], listener: Any):
    stages = {"sft": {"steps": 2}, "dpo": {"steps": 1}}

    records = evenhand.train("recipe", **training, out="m", algorithm="dpo", stages=stages, listener=listener)

    assert {stage: record["ended"] for stage, record in records.items()} == {"sft": "done", "dpo": "done"}
    assert listener.told == [("stage", "sft"), ("stage", "dpo")]
    assert listener.observed == [(0, 2), (1, 2), (2, 2), (0, 1), (1, 1)]
    assert Path("m/dpo/model.safetensors").is_file()


def test_one_stage_is_trained_by_its_name(training: dict[str, Any], listener: Any):
    records = evenhand.train("sft", **training, out="m", steps=1, batch=2)

    assert records["sft"]["options"]["batch"] == 2
    with pytest.raises(UnknownNameError, match="no option of sft named 'epoch'; did you mean epochs"):
        evenhand.train("sft", **training, out="n", epoch=1)
    with pytest.raises(UnknownNameError, match="no stage of training named 'sfd'; did you mean sft"):
        evenhand.train("sfd", **training, out="n")  # pyright: ignore[reportArgumentType]
    with pytest.raises(UsageError, match="for a recipe"):
        evenhand.train("sft", **training, out="n", stages={"sft": {"steps": 1}})
    with pytest.raises(UsageError, match=r"options=ppo\.model=x should be"):
        evenhand.train("recipe", **training, out="n", stages={"ppo": {"model": "x"}})
    assert not Path("n").exists()
