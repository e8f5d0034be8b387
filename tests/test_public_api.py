"""What `import evenhand` promises."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import evenhand

ROOT = Path(__file__).parents[1]


def test_every_public_name_can_be_had_and_nothing_else_is_promised():
    assert (
        sorted(evenhand.__all__, key=lambda name: (not name.isupper(), not name[0].isupper(), name)) == evenhand.__all__
    )
    for name in evenhand.__all__:
        assert getattr(evenhand, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = evenhand.nothing


@pytest.mark.parametrize("command", ["import evenhand", "import evenhand.cli.main"])
def test_start_up_imports_nothing_heavy(command: str):
    heavy = ("torch", "transformers", "xllamacpp", "inspect_ai", "numpy", "aiohttp", "rich", "pydantic")
    code = f"{command}; import sys; print([name for name in {heavy!r} if name in sys.modules])"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


def test_core_never_imports_torch():
    code = (
        "import sys; from evenhand.cli import run, report, show, export, methods, benchmarks, doctor, metrics, data;"
        "from evenhand.cli import score, scorers; import evenhand.cli.models;"
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
