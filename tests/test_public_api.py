"""What `import evenhand` promises."""

import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest

import evenhand
from evenhand.core import errors

ROOT = Path(__file__).parents[1]


def test_every_public_name_can_be_had_and_nothing_else_is_promised():
    assert (
        sorted(evenhand.__all__, key=lambda name: (not name.isupper(), not name[0].isupper(), name)) == evenhand.__all__
    )
    for name in evenhand.__all__:
        assert getattr(evenhand, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = evenhand.nothing


PUBLIC = """
BENCHMARKS EVALUATORS METHODS PROVIDERS SCORERS SEARCHES Answer Audit BadResponseError Benchmark
BudgetExhausted Calibration Completion Contrast Cut DataError EndpointError Evaluator EvenhandError FunctionModel
Generation Grade Guard GuardPolicy Guarded Hit InputPolicy JudgeTest Limits Listener Message Method Metric
MissingExtraError Model ModelError ModelFunction ModelOptions Options Outcome Params PlanError Price Prompt
Ratings Record Refusal Revision Rubric Sample Scorer ScriptedModel SearchError SearchProvider SearchResult
Section Selection Session Settings Snapshot StoreError Study Thresholds ToolCall Turn UnknownNameError Unscored
Usage UsageError Verdict add_section answer ask_json audit choose compare complete debate evaluator fenced
guard import_run judge judge_reliability judges_against_people load_benchmark load_model load_prompt load_scorer
method object_schema pairs paper parse_prompt ratio reply rescore run share_metric train write_report yes_probability
"""


def test_the_public_names_are_these():
    assert evenhand.__all__ == PUBLIC.split()


def test_the_tab_key_offers_functions_and_no_modules():
    assert {"audit", "compare", "guard", "train"} <= {*dir(evenhand)}
    assert not {"core", "runs", "cli", "importlib"} & {*dir(evenhand)}


@pytest.mark.parametrize(
    ("function", "names"),
    [
        (evenhand.audit, "model out limit methods seeds"),
        (evenhand.pairs, "out threshold margin per_topic"),
        (evenhand.train, "stage model lr batch epochs lora algorithm"),
    ],
    ids=["audit", "pairs", "train"],
)
def test_signatures_name_real_parameters(function: object, names: str):
    parameters = inspect.signature(function).parameters  # pyright: ignore

    assert {*names.split()} <= {*parameters}
    assert not [each for each in parameters.values() if each.kind is each.VAR_KEYWORD]


def test_every_error_is_public():
    tree = {name for name, each in vars(errors).items() if isinstance(each, type) and issubclass(each, Exception)}

    assert tree <= set(evenhand.__all__)


def test_every_public_name_is_documented():
    """The reference page shows the docstring of each; names of registries stand on the pages about extending."""
    pages = "\n".join(page.read_text() for page in (ROOT / "docs").rglob("*.md"))
    for name in evenhand.__all__:
        if name.isupper():
            assert f"`{name}" in pages or f"{name}." in pages, name
        else:
            assert getattr(evenhand, name).__doc__, name


@pytest.mark.parametrize("command", ["import evenhand", "import evenhand.cli.main"])
def test_start_up_imports_nothing_heavy(command: str):
    heavy = ("torch", "transformers", "xllamacpp", "inspect_ai", "numpy", "aiohttp", "rich", "pydantic")
    code = f"{command}; import sys; print([name for name in {heavy!r} if name in sys.modules])"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


def test_core_never_imports_torch():
    code = (
        "import sys; from evenhand.cli import run, report, stored, lists, doctor, metrics, data;"
        "from evenhand.cli import score; import evenhand.cli.doctor;"
        "print('torch' in sys.modules, 'xllamacpp' in sys.modules)"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.split() == ["False", "False"]


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_examples_run(example: Path, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = subprocess.run(
        [sys.executable, str(example)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": "120"},
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


async def test_a_scorer_is_loaded_by_name_and_used_by_everyone():
    async with evenhand.load_scorer("guard:fake/unsafe") as scorer:
        assert isinstance(scorer, evenhand.Scorer)
        assert await scorer.score(["text"]) == [{"toxicity": 1.0}]
