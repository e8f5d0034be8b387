"""Plans: one form for flags, files and Python, checked as a whole, with a sentence for every mistake."""

from pathlib import Path
from typing import Any

import pytest

from evenhand.core.errors import DataError, PlanError, UsageError
from evenhand.runs.plan import identity, make_plan, read_plan_file

BASE: dict[str, Any] = {"models": ["fake/A"]}


def test_a_plan_needs_no_more_than_a_model():
    plan = make_plan({"models": "fake/A"})

    assert plan.benchmark == "bbq_builtin"
    assert [method.name for method in plan.methods] == ["default"]
    assert plan.models[0]["base"].spec == "fake/A"
    assert plan.seeds == [0]


@pytest.mark.parametrize(
    "models",
    [
        "fake/A",
        ["fake/A"],
        {"spec": "fake/A"},
        [{"spec": "fake/A"}],
        {"base": "fake/A"},
        [{"base": {"spec": "fake/A"}}],
    ],
)
def test_a_model_can_be_written_in_several_ways(models: Any):
    assert make_plan({"models": models}).model_dump() == make_plan(BASE).model_dump()


MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({}, "names no model; pass --model"),
    ({"models": []}, "wrong: models"),
    ({"models": ["gpt"]}, "'gpt' is not a model spec"),
    ({"models": [{"judge": "fake/A"}]}, "Name the model to audit with --model SPEC"),
    ({**BASE, "method": "cot"}, "no field 'method'; it has benchmark"),
    ({**BASE, "methods": []}, "wrong: methods"),
    ({**BASE, "seeds": []}, "wrong: seeds"),
    ({**BASE, "seeds": ["x"]}, "wrong: seeds, entry 1: it must be a whole number"),
    ({**BASE, "limit": 0}, "wrong: limit"),
    ({**BASE, "orders": 0}, "wrong: orders"),
    ({**BASE, "reading": "tea leaves"}, "wrong: reading"),
    ({**BASE, "temperature": -1}, "wrong: temperature"),
    ({"models": [{"spec": "fake/A", "timeout": 0}]}, "timeout"),
    ({"models": [{"spec": "fake/A", "api_key": "sk-secret"}]}, "api_key"),
]


@pytest.mark.parametrize(("fields", "words"), MISTAKES, ids=lambda value: str(value)[:40])
def test_a_mistake_is_told_in_one_sentence(fields: dict[str, Any], words: str):
    with pytest.raises(UsageError, match=words) as caught:
        make_plan(fields)

    assert "\n" not in str(caught.value)
    assert "sk-secret" not in str(caught.value)


def test_arms_are_all_combinations_in_a_stable_order():
    plan = make_plan({"models": ["fake/A", "fake/B"], "methods": ["default", "cot"], "seeds": [0, 1]})

    arms = plan.arms()

    assert [arm.number for arm in arms] == list(range(1, 9))
    assert arms[0].label == "default · fake/A · seed 0"
    assert len({arm.label for arm in arms}) == 8


def test_labels_say_only_what_tells_arms_apart():
    methods = [{"name": "cot", "options": {"max_tokens": 5}}, {"name": "cot", "options": {"max_tokens": 9}}]

    assert [arm.label for arm in make_plan({**BASE, "methods": ["default", "cot"]}).arms()] == ["default", "cot"]
    assert [arm.label for arm in make_plan({**BASE, "methods": methods}).arms()] == [
        "cot(max_tokens=5)",
        "cot(max_tokens=9)",
    ]


def test_methods_are_named_by_specs_and_presets_are_recorded():
    methods = ["stardtox:preset=paper", "stardtox:preset=paper,iterations=1", "default"]
    plan = make_plan({"models": ["fake/A"], "methods": methods})

    assert [each.options for each in plan.methods] == [{"preset": "paper"}, {"preset": "paper", "iterations": 1}, {}]
    assert [arm.label for arm in plan.arms()] == [
        "stardtox(preset=paper)",
        "stardtox(preset=paper, iterations=1)",
        "default",
    ]


def test_a_model_with_and_without_an_adapter_is_told_apart_by_it():
    plan = make_plan({**BASE, "models": ["local/x", "local/x?lora=f.gguf"]})

    assert [arm.label for arm in plan.arms()] == ["local/x", "local/x?lora=f.gguf"]


def test_a_method_in_a_file_has_the_name_that_the_file_gives_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    source = (
        "from evenhand import method\n\n\n@method('careful', kinds={'choice'})\nasync def f(sample, session): ...\n"
    )
    (tmp_path / "mine.py").write_text(source)
    (tmp_path / "other.py").write_text(source)

    def labels(*methods: str) -> list[str]:
        return [arm.label for arm in make_plan({**BASE, "methods": list(methods)}).arms()]

    assert labels("default", "./mine.py") == ["default", "careful"]
    assert labels("./mine.py", "./other.py") == ["./mine.py", "./other.py"]
    (tmp_path / "mine.py").unlink()  # a run that was copied here without it
    assert labels("default", "./mine.py") == ["default", "mine"]
    assert labels("default", "./mine.py:careful") == ["default", "careful"]


def test_the_same_arm_twice_is_refused():
    with pytest.raises(PlanError, match="names the same arm twice: default"):
        make_plan({**BASE, "methods": ["default", "default"]}).arms()


def identity_of(fields: dict[str, Any], data: str = "d1", model: str = "m1") -> str:
    return identity(make_plan({**BASE, **fields}), {"sha": data}, {"key": {"spec": model}})


CHANGES: list[dict[str, Any]] = [
    {"models": ["fake/B"]},
    {"models": [{"spec": "fake/A", "base_url": "http://x"}]},
    {"models": [{"spec": "fake/A", "extra": {"x": 1}}]},
    {"methods": ["cot"]},
    {"methods": [{"name": "default", "options": {"x": 1}}]},
    {"seeds": [1]},
    {"limit": 5},
    {"orders": 2},
    {"reading": "text"},
    {"temperature": 0.5},
    {"max_tokens": 5},
    {"max_tokens": {"base": 5}},
    {"judge_samples": 3},
    {"benchmark": "bbq"},
    {"benchmark_options": {"x": 1}},
]


@pytest.mark.parametrize("fields", CHANGES, ids=str)
def test_whatever_changes_results_changes_the_identity(fields: dict[str, Any]):
    assert identity_of(fields) != identity_of({})


def test_the_identity_of_a_plan_does_not_change_from_version_to_version():
    assert identity_of({})[:16] == "ee35aa463f567dc2"
    assert identity_of({"max_tokens": 5})[:16] == "02ae5e396330eef6"


LIMITS: list[tuple[Any, dict[str, int]]] = [
    (None, {}),
    (7, {"all": 7}),
    ({"base": 7, "judge": 9}, {"base": 7, "judge": 9}),
]


@pytest.mark.parametrize(("given", "limits"), LIMITS, ids=str)
def test_a_limit_of_tokens_is_one_number_or_one_for_each_role(given: Any, limits: dict[str, int]):
    plan = make_plan({**BASE, "max_tokens": given})

    assert plan.limits() == limits
    assert make_plan(plan.model_dump()) == plan


@pytest.mark.parametrize("given", [0, -1, "many", 1.5, True, {}, {"base": 0}, {"base": None}, [5]], ids=str)
def test_a_limit_that_is_none_is_refused(given: Any):
    with pytest.raises(PlanError, match=r"max_tokens is a number from 1, or one for each role \(judge: 400\), not "):
        make_plan({**BASE, "max_tokens": given})


def test_data_and_weights_are_part_of_the_identity():
    assert len({identity_of({}), identity_of({}, data="d2"), identity_of({}, model="m2")}) == 3


def test_patience_is_no_part_of_the_identity():
    assert identity_of({"models": [{"spec": "fake/A", "timeout": 9, "retries": 1}]}) == identity_of({})


def test_a_plan_survives_being_stored():
    plan = make_plan({"models": [{"base": "fake/A", "judge": {"spec": "fake/B"}}], "methods": ["cot"], "limit": 3})

    assert make_plan(plan.model_dump()) == plan


@pytest.mark.parametrize(
    ("name", "text"),
    [("plan.yaml", "models: [fake/A]\nlimit: 5\n"), ("plan.toml", 'models = ["fake/A"]\nlimit = 5\n')],
)
def test_plans_are_read_from_files(tmp_path: Path, name: str, text: str):
    (tmp_path / name).write_text(text)

    assert make_plan(read_plan_file(tmp_path / name)).limit == 5


BAD_FILES: list[tuple[str, bytes, str]] = [
    ("plan.yaml", b"models: [fake/A\nlimit: 5", r"plan\.yaml, line \d+: not valid YAML"),
    ("plan.yaml", b"- a\n- b", "a plan is a list of 'field: value' lines"),
    ("plan.yaml", b"", "a plan is a list of 'field: value' lines"),
    ("plan.yaml", b"\xff\xfe\x00", "cannot be read"),
    ("plan.yaml", b"a: !!python/object/apply:os.system [ls]", "not valid YAML"),
    ("plan.toml", b"models = [", "not valid TOML"),
]


@pytest.mark.parametrize(("name", "content", "words"), BAD_FILES, ids=lambda value: str(value)[:30])
def test_a_bad_file_is_told_with_its_name(tmp_path: Path, name: str, content: bytes, words: str):
    (tmp_path / name).write_bytes(content)

    with pytest.raises(DataError, match=words):
        read_plan_file(tmp_path / name)


def test_a_missing_file_is_told_with_its_name(tmp_path: Path):
    with pytest.raises(DataError, match=r"gone\.yaml: cannot be read: No such file"):
        read_plan_file(tmp_path / "gone.yaml")


def test_an_arm_is_found_by_its_fields_whatever_its_label_is():
    methods = ["stardtox", {"name": "stardtox", "options": {"performance": False}}]
    plan = make_plan({"models": ["fake/A", {"base": "fake/B", "judge": "fake/C"}], "methods": methods, "seeds": [7]})

    keys = [arm.key for arm in plan.arms()]

    assert {key.method for key in keys} == {"stardtox"}
    assert [key.options.get("performance") for key in keys] == [None, False, None, False]
    assert keys[2].models == {"base": "fake/B", "judge": "fake/C"}
    assert {key.seed for key in keys} == {7}
