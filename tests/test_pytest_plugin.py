"""The pytest plug-in as a user's suite meets it: pytest in a process of its own, found by its entry point."""

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
Suite = Callable[..., "subprocess.CompletedProcess[str]"]
STUB = """
import itertools
calls = itertools.count(1)
def letter(text):
    next(calls)
    return "A"
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What an installer writes from the project's entry points."""
    target = tmp_path_factory.mktemp("site")
    points = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["pytest11"]
    info = target / "evenhand_points-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: evenhand-points\nVersion: 1.0\n")
    lines = [f"{name} = {where}" for name, where in points.items()]
    (info / "entry_points.txt").write_text("\n".join(["[pytest11]", *lines, ""]))
    return target


@pytest.fixture
def suite(site: Path, tmp_path: Path) -> Suite:
    """Runs pytest on a file with this content, every warning an error."""

    def run(content: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
        (tmp_path / "test_it.py").write_text(content)
        (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers\nfilterwarnings = error\n")
        environment = os.environ | {
            "PYTHONPATH": f"{site}{os.pathsep}{ROOT / 'src'}",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "EVENHAND_CACHE": str(tmp_path / "cache"),
        }
        for name in ("PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT"):
            environment.pop(name, None)
        call = [sys.executable, "-m", "pytest", "-p", "evenhand", *arguments]
        return subprocess.run(call, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    return run


def _outcomes(ended: "subprocess.CompletedProcess[str]") -> dict[str, int]:
    found = re.findall(r"(\d+) (passed|failed|deselected|errors?)\b", ended.stdout.splitlines()[-1])
    return {word: int(count) for count, word in found}


def test_whole_intervals_pass_fail_or_cannot_tell(suite: Suite):
    ended = suite(
        """
import pytest
def test_passes(evenhand):
    evenhand.audit("fake/A", limit=44).assert_above("coverage", 50)
def test_fails(evenhand):
    evenhand.audit("fake/A", limit=44).assert_above("accuracy_disambig", 80)
def test_is_signed(evenhand):
    evenhand.audit("fake/A", limit=44).assert_below("bias_ambig", 10)
@pytest.mark.evenhand(limit=44, undecided="pass")
def test_may_be_undecided(evenhand):
    evenhand.audit("fake/A").assert_below("bias_ambig", 10)
def test_is_out_of_100(evenhand):
    evenhand.audit("fake/A", limit=44).assert_above("coverage", 0.5)
"""
    )

    assert _outcomes(ended) == {"passed": 2, "failed": 3}, ended.stdout + ended.stderr
    assert "failed: default: fails if accuracy_disambig <= 80: 40.91 [22.13, 62.78], n = 22" in ended.stdout
    assert "cannot tell: default: fails if |bias_ambig| >= 10: 22.73 [0, 56.61], n = 22" in ended.stdout
    assert "evenhand: cannot tell, and passed: default: |bias_ambig| >= 10" in ended.stdout
    assert "pytest_plugin.py:" not in ended.stdout
    assert ended.stdout.count(": run in") == 1
    assert ended.stdout.count(": stored run in") == 4
    assert "coverage goes to 100, not to 1: write 'coverage <= 50'" in ended.stdout


def test_specs_are_kept_between_sessions_and_functions_are_not(suite: Suite):
    content = (
        STUB
        + """
def test_spec(evenhand):
    evenhand.audit("fake/A", limit=22).assert_above("coverage", 50)
def test_function(evenhand):
    for _ in range(2):
        evenhand.audit(letter, limit=22).assert_above("coverage", 50)
    assert next(calls) == 23
"""
    )

    first, second, cleared = suite(content), suite(content), suite(content, "--cache-clear", "-k", "spec")

    assert _outcomes(first) == _outcomes(second) == {"passed": 2}, first.stdout + second.stdout
    assert len(re.findall(r"fake/A.*: run in", first.stdout)) == 1
    assert len(re.findall(r"fake/A.*: stored run in", second.stdout)) == 1
    assert len(re.findall(r"letter.*: run in", second.stdout)) == 1
    assert len(re.findall(r"fake/A.*: run in", cleared.stdout)) == 1


def test_what_may_have_changed_behind_its_name_is_measured_in_every_session(suite: Suite, tmp_path: Path):
    (tmp_path / "team.py").write_text("def reply(prompt): return 'A'\n")
    content = """
def test_name(evenhand):
    for _ in range(2):
        evenhand.audit("call/./team.py:reply", limit=22).assert_above("coverage", 50)
def test_pinned(evenhand):
    evenhand.audit("call/./team.py:reply?pinned=r1", limit=22).assert_above("coverage", 50)
"""

    first, second = suite(content), suite(content)

    assert _outcomes(first) == _outcomes(second) == {"passed": 2}, first.stdout + second.stdout
    assert (first.stdout.count(": run in"), first.stdout.count(": stored run in")) == (2, 1)
    assert (second.stdout.count(": run in"), second.stdout.count(": stored run in")) == (1, 2)


def test_the_option_limits_every_audit_and_needs_no_cache(suite: Suite):
    content = """
def test_small(evenhand):
    audited = evenhand.audit("fake/A", limit=2000)
    assert sum(audited.study.arms[0].statuses.values()) == 22
"""

    assert _outcomes(suite(content, "--evenhand-limit", "22", "-p", "no:cacheprovider")) == {"passed": 1}


def test_tests_that_audit_are_marked(suite: Suite):
    content = "def test_audits(evenhand): assert False\ndef test_other(): pass\n"

    assert _outcomes(suite(content, "-m", "not evenhand")) == {"passed": 1, "deselected": 1}


def test_a_wrong_mark_is_one_sentence(suite: Suite):
    content = "import pytest\n@pytest.mark.evenhand(limt=3)\ndef test_it(evenhand): pass\n"

    assert "The mark evenhand takes limit and undecided, not limt." in suite(content).stdout


def test_other_suites_see_nothing_of_it(suite: Suite):
    content = """
import sys
def test_nothing_is_imported():
    loaded = {name for name in sys.modules if name.startswith("evenhand")}
    assert loaded == {"evenhand", "evenhand.pytest_plugin"}
    assert not {"numpy", "pydantic", "aiohttp"} & sys.modules.keys()
"""

    ended = suite(content)

    assert _outcomes(ended) == {"passed": 1}, ended.stdout
    assert "evenhand:" not in ended.stdout


@pytest.mark.weights
def test_the_builtin_model_in_a_test(suite: Suite, tmp_path: Path):
    """With its weights from the cache folder of this machine."""
    from evenhand.core.files import cache_folder

    (tmp_path / "cache").symlink_to(cache_folder())

    ended = suite(
        """
def test_model(evenhand):
    audited = evenhand.audit("local/builtin", limit=11)
    audited.assert_above("coverage", 20)
    audited.assert_below("coverage", 101)
"""
    )

    assert _outcomes(ended) == {"passed": 1}, ended.stdout
