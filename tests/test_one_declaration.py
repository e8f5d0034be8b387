"""One line in one file declares an option: it is on the command line, in Python, config, plan, stored run and docs."""

import inspect
import runpy
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from evenhand import api
from evenhand.core.errors import UnknownNameError
from evenhand.core.fields import ComparisonFields
from evenhand.guards.policy import GuardPolicy

ROOT = Path(__file__).parents[1]
LINE = '    sharpness: int = option(3, "How sharp the questions are.", ge=1, le=9)\n'
ADDED = f"""
import importlib.abc, importlib.machinery, sys

class Loader(importlib.machinery.SourceFileLoader):
    def get_data(self, path):
        data = super().get_data(path)
        if not path.endswith("fields.py"):
            return data
        before = b"    limit: int | None = option("
        assert data.count(before) == 1
        return data.replace(before, {LINE!r}.encode() + before)

    def path_stats(self, path):
        raise OSError  # so that nothing of this is kept as bytecode

class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != "evenhand.core.fields":
            return None
        found = importlib.machinery.PathFinder.find_spec(name, path)
        found.loader = Loader(name, found.origin)
        return found

sys.meta_path.insert(0, Finder())
"""


def python(code: str, folder: Path) -> str:
    """What the code prints in a process in which fields.py has one more line."""
    done = subprocess.run([sys.executable, "-c", ADDED + code], capture_output=True, text=True, check=False, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


def command(*words: str) -> str:
    return f"from evenhand.cli.main import main; main({list(words)!r}, standalone_mode=False)\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EVENHAND_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    return tmp_path


def test_an_option_that_is_one_line_is_in_all_six_places(folder: Path):
    (folder / "evenhand.toml").write_text("sharpness = 5\n")
    (folder / "plan.yaml").write_text("models: fake/A\nlimit: 2\nsharpness: 7\n")
    run = ("run", "--limit", "2", "--no-cache")
    said = python(
        command("audit", "--help-all")
        + "import inspect, evenhand; print('PYTHON', inspect.signature(evenhand.audit).parameters['sharpness'])\n"
        + command(*run, "--model", "fake/A", "--out", "by_config")
        + command(*run, "--config", "plan.yaml", "--out", "by_plan")
        + command(*run, "--config", "plan.yaml", "--sharpness", "8", "--out", "by_flag")
        + "evenhand.audit('fake/A', out='by_python', limit=2, sharpness=9)\n"
        + "from evenhand.runs.stored import StoredRun; from pathlib import Path\n"
        + "for name in ('by_config', 'by_plan', 'by_flag', 'by_python'):\n"
        + "    print('STORED', name, StoredRun.open(Path(name)).plan.sharpness)\n"
        + f"sys.path.insert(0, {str(ROOT / 'tools')!r}); import options_page; print(options_page.page())\n",
        folder,
    )

    assert "--sharpness" in said.partition("PYTHON")[0]
    assert "PYTHON sharpness: int = 3" in said
    for name, value in (("by_config", 5), ("by_plan", 7), ("by_flag", 8), ("by_python", 9)):
        assert f"STORED {name} {value}" in said
    row = "- `--sharpness`° (int 1–9, `3`): How sharp the questions are."
    assert row in said


def test_a_new_option_leaves_the_identity_of_stored_runs_alone(folder: Path):
    code = "from evenhand.runs.plan import make_plan; print(make_plan({'models': 'fake/A'}).essence())"

    assert "sharpness" not in python(code, folder)


def test_the_page_of_options_is_what_is_declared():
    made = runpy.run_path(str(ROOT / "tools" / "options_page.py"))

    assert made["PAGE"].read_text(encoding="utf-8") == made["page"](), "run: python tools/options_page.py"


def test_functions_that_are_written_out_have_the_declared_options():
    """`compare` takes any number of runs, so that its signature cannot be made of a request."""
    found = inspect.signature(api.compare).parameters

    for name, field in ComparisonFields.model_fields.items():
        assert found[name].default == field.default


def test_a_guard_takes_all_fields_of_its_policy():
    assert {*api.PolicyFields.__annotations__, "action"} == {each.name for each in fields(GuardPolicy)}


def test_a_wrong_parameter_is_refused_with_the_nearest(tmp_path: Path):
    with pytest.raises(UnknownNameError, match="no parameter of audit named 'limt'; did you mean limit"):
        api.audit("fake/A", out=tmp_path, limt=3)  # pyright: ignore[reportCallIssue]
