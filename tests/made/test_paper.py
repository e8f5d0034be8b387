"""`evenhand.paper`: a paper's tables and figures from Python."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import evenhand
from evenhand.core.errors import PlanError, UnknownNameError, UsageError
from evenhand.core.types import Message, Params
from evenhand.models.budget import Limits
from evenhand.papers.rldf import RLDF
from evenhand.papers.rldf.steps import plan_training, recipe_of
from evenhand.runs.stored import StoredRun
from evenhand.training.options import PPOOptions
from support.papers import options_of


def reply(name: str, messages: Sequence[Message], params: Params) -> str:
    """Chooses B; as a judge is always content; the rest are texts of its own."""
    if params.schema is not None:
        numbers = {key: 90 for key, each in params.schema["properties"].items() if each.get("type") == "integer"}
        return json.dumps({key: numbers.get(key, "words") for key in params.schema["properties"]})
    return "B" if any("B)" in message.content for message in messages) else f"a kind text by {name}"


SMALL: dict[str, Any] = {
    "models": ["stub/one"],
    "limit": 1,
    "completions": 1,
    "builtin": True,
    "out": "p",
    "preset": "evenhand",
}


def test_a_page_is_made_and_every_run_is_told(plug: Any, listener: Any):
    plug(reply)

    made = evenhand.paper("stardtox", **SMALL, listener=listener)

    assert made.html == Path("p/index.html")
    assert made.html.is_file()
    assert [path.name for path in made.csv] == ["claims.csv", "table2.csv", "table3.csv", "table1.csv", "figure3.csv"]
    assert "stub/one" in made.page.title
    assert not made.stopped
    assert [kind for kind, _ in listener.told] == ["began", "ended", "began", "ended"]
    assert listener.told[1] == ("ended", "realtoxicity: 8 of 8")
    assert listener.observed[-1] == (55, 55)


def test_the_page_is_made_again_without_a_model(plug: Any, listener: Any):
    loaded = plug(reply)
    first = evenhand.paper("stardtox", **SMALL).page
    loaded.clear()

    assert evenhand.paper("stardtox", out="p").page == first
    assert not loaded


def test_fields_of_the_plan_roles_and_the_seed_are_in_every_run_that_has_them(plug: Any, listener: Any):
    plug(reply)
    small = {**SMALL, "models": [{"base": "stub/one", "judge": "stub/two"}]}

    evenhand.paper("stardtox", **small, seed=3, temperature=0.5)

    for name, judged in (("realtoxicity", "stub/two"), ("bbq", "stub/two")):
        run = StoredRun.open(Path("p") / name)
        assert (run.plan.seeds, run.plan.temperature) == ([3], 0.5)
        assert run.plan.models[0]["judge"].spec == judged
        run.store.close()


def test_a_budget_that_is_used_up_leaves_a_page_of_what_there_is(plug: Any, listener: Any):
    plug(reply)

    made = evenhand.paper("stardtox", **SMALL, settings=evenhand.Settings(budget=Limits(calls=6)))

    assert made.stopped
    assert not Path("p/bbq").exists()
    assert "bbq was not run; its cells are empty." in made.page.warnings


def test_trained_models_stand_beside_the_model(plug: Any, listener: Any):
    plug(reply)

    made = evenhand.paper(
        "rldf", models=["stub/one"], judge="stub/judge", trained={"sft": "stub/two", "rldf:GPT-4": "stub/three"},
        bias=["age"], limit=1, builtin=True, out="p",
    )  # fmt: skip

    assert {path.name for path in Path("p/opinions").iterdir()} == {"base", "sft", "rldf@GPT-4"}
    assert made.page.title == "RLDF with stub/one"


CASES: dict[str, tuple[str, dict[str, Any], type[Exception], str]] = {
    "unknown": ("stardtx", {}, UnknownNameError, "did you mean stardtox"),
    "no model": ("stardtox", {"models": [], "out": None}, PlanError, "No model is named"),
    "two models": ("stardtox", {"models": ["fake/A", "fake/B"]}, UsageError, "shows one model"),
    "another paper's option": ("mabrf", {}, UsageError, "mabrf has no use for completions"),
    "another paper's, again": ("mabrf", {"models": []}, UsageError, "mabrf has no use for completions"),
    "another paper's training": ("stardtox", {"train": True}, UsageError, "stardtox has no use for train"),
    "a role that nobody has": ("stardtox", {"models": [{"base": "fake/A", "critic": "fake/B"}]}, PlanError, "critic"),
    "a field that no plan has": ("stardtox", {"temprature": 1}, UnknownNameError, "did you mean temperature"),
    "data twice": ("stardtox", {"data": "d"}, UsageError, "need no folder"),
    "no runs": ("stardtox", {"models": [], "out": "none"}, PlanError, "holds no runs of a paper"),
}


@pytest.mark.parametrize(("name", "changed", "kind", "words"), CASES.values(), ids=CASES.keys())
def test_what_cannot_be_made_is_refused_before_a_call(
    listener: Any, name: str, changed: dict[str, Any], kind: type[Exception], words: str
):
    with pytest.raises(kind, match=words):
        evenhand.paper(name, **{**SMALL, "models": ["fake/A"], **changed})
    assert not Path("p").exists()


TRAINING: dict[str, tuple[dict[str, Any], str]] = {
    "a stage that is none": ({"train": True, "stages": {"dpo": {"lr": 1.0}}}, "options takes STAGE.OPTION=VALUE"),
    "a text for a number": ({"train": True, "stages": {"pairs": {"per_topic": "a"}}}, "takes a value like 8"),
    "one value": ({"ablate": {"rounds": [3, 3]}}, "two or more values"),
    "no number": ({"ablate": {"rounds": [0, 3]}}, "two or more values"),
    "a parameter that is none": ({"ablate": {"steps": [1, 2]}}, "ablate takes roles, rounds"),
    "a teacher alone": ({"teachers": ["stub/t"]}, "go with train or ablate"),
    "a type that is none": ({"train": True, "bias": ["agee"]}, "did you mean age"),
}


@pytest.mark.parametrize(("changed", "words"), TRAINING.values(), ids=TRAINING.keys())
def test_a_training_that_cannot_be_is_refused_before_a_call(listener: Any, changed: dict[str, Any], words: str):
    with pytest.raises(UsageError, match=words):
        evenhand.paper("rldf", models=["hf/x"], out="p", **changed)
    assert not Path("p").exists()


def test_the_preset_paper_of_rldf_has_the_papers_sizes_unless_told_otherwise(tmp_path: Path):
    options = options_of(RLDF, "hf/m", preset="paper", train=True)

    planned = plan_training(options.changed(teachers=("openai/t",)), tmp_path)
    stages = {"debate": {"topics": 30}, "ppo": {"lr": 1e-5}}
    smaller = plan_training(options.changed(train_seeds=(7,), stages=stages), tmp_path)

    assert (planned.making.topics, planned.making.written, planned.making.per_type) == (2000, tmp_path / "topics", True)
    assert len(planned.taught) == 5 * 3 * 3  # types, modes with RLAIF, seeds
    assert {lesson.part for lesson in planned.taught.values()} == {5000}
    assert planned.debates[0].plan.methods[0].options["rounds"] == 5
    assert (smaller.making.topics, len(smaller.taught)) == (30, 5 * 2)
    assert smaller.making.of("ppo")["lr"] == 1e-5
    assert (planned.making.held_out, planned.making.of("pairs")["margin"]) == (100, 0.01)
    assert planned.debates[0].plan.methods[0].options["preset"] == "paper"


def test_the_preset_released_of_rldf_is_remax_without_sampling(tmp_path: Path):
    options = options_of(RLDF, "hf/m", preset="released", train=True, stages={"debate": {"topics": 30}})

    planned = plan_training(options, tmp_path)
    recipe = recipe_of(planned.making, planned.every[0], tmp_path).options()

    ppo, reward, sft = recipe["ppo"], recipe["reward"], recipe["sft"]
    assert isinstance(ppo, PPOOptions)
    assert (ppo.algorithm, ppo.temperature, ppo.gamma, ppo.lora, ppo.max_new_tokens) == ("remax", 0.0, 0.99, None, 512)
    assert (reward.lr, reward.lora, sft.lora, sft.epochs) == (3e-4, 8, 8, 3.0)
    assert planned.making.of("pairs")["policy"] == "rounds"
