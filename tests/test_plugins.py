"""Things from outside: a package with entry points, and a plain file named by path; wrong ones are told with a line."""

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import evenhand
from evenhand.benchmarks.base import BENCHMARKS
from evenhand.core import registry
from evenhand.core.errors import UsageError
from evenhand.core.registry import Registry, load_file
from evenhand.core.specs import read_spec
from evenhand.methods.base import METHODS

PLUGIN = Path(__file__).parents[1] / "examples/evenhand_plugin"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a process that has the plug-in installed."""
    target = tmp_path_factory.mktemp("site")
    shutil.copytree(PLUGIN / "evenhand_plugin", target / "evenhand_plugin")
    # What an installer writes; building a wheel needs a build backend, which tests should not.
    project = tomllib.loads((PLUGIN / "pyproject.toml").read_text())["project"]
    info = target / f"evenhand_plugin-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    groups = project["entry-points"].items()
    lines = [line for group, points in groups for line in (f"[{group}]", *(f"{k} = {v}" for k, v in points.items()))]
    (info / "entry_points.txt").write_text("\n".join(lines))
    path = os.pathsep.join(filter(None, [str(target), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path, "COLUMNS": "160", "EVENHAND_CACHE": str(target / "cache")}


def _evenhand(environment: dict[str, str], folder: Path, *arguments: str) -> str:
    command = [sys.executable, "-W", "error::UserWarning", "-m", "evenhand", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=folder)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("list methods", "second_look"),
        ("list benchmarks", "greetings"),
        ("list scorers", "shouting"),
        ("models", "parrot"),
    ],
)
def test_an_installed_plug_in_is_listed(installed: dict[str, str], tmp_path: Path, command: str, name: str):
    assert name in _evenhand(installed, tmp_path, *command.split())


def test_an_installed_plug_in_runs_end_to_end(installed: dict[str, str], tmp_path: Path):
    methods = [part for name in ("default", "second_look:looks=2") for part in ("--method", name)]
    _evenhand(installed, tmp_path, "audit", "parrot/polly", "-b", "greetings", *methods, "--out", "run")
    evaluators = "stardtox:evaluators=polite,iterations=1"
    _evenhand(
        installed, tmp_path, "run", "-m", "parrot/polly", "-b", "greetings", "--method", evaluators, "--out", "other"
    )

    code = (
        "import evenhand; arms = evenhand.compare('run').arms;"
        "print([(arm.label, *(arm.estimate(n).value for n in ('calm', 'shouting'))) for arm in arms]);"
        "print([arm.iteration for arm in evenhand.compare('run', iterations=True).arms])"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=installed, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "('default', 0.0, 100.0), ('second_look', 100.0, 0.0)]" in done.stdout
    assert done.stdout.splitlines()[1] == "[None, 1, 2, None]"
    assert "Say it in a calm voice." in _evenhand(installed, tmp_path, "run", "show", "other", "Ana")


METHOD = '''
from evenhand import Outcome, choose, method, parse_prompt

PROMPT = parse_prompt("mine/ask", "# user\\n{{context}} {{question}}\\n{{options}}\\n")


@method("NAME", kinds={"choice"})
async def mine(sample, session):
    """Mine."""
    return Outcome(await choose(session, sample, PROMPT))
'''


def test_a_method_in_a_file_is_run_and_its_hash_recorded(tmp_path: Path):
    file = tmp_path / "mine.py"
    file.write_text(METHOD.replace("NAME", "in_a_file"))

    found = evenhand.audit("fake/echo", out=tmp_path / "run", methods=[str(file)], limit=2)

    assert list(found.provenance["run"]["files"]) == [str(file)]
    file.write_text(file.read_text() + "# changed\n")
    with pytest.raises(evenhand.PlanError, match="another plan"):
        evenhand.audit(
            "fake/echo",
            out=tmp_path / "run",
            methods=[f"{file}"],
            limit=2,
            settings=evenhand.Settings(resume=True),
        )


def test_of_several_methods_in_a_file_one_is_named(tmp_path: Path):
    file = tmp_path / "two.py"
    file.write_text(METHOD.replace("NAME", "one_of_two") + METHOD.replace("NAME", "two_of_two"))

    assert METHODS.get(f"{file}:two_of_two").name == "two_of_two"
    assert read_spec(f"{file}:two_of_two:a=1") == (f"{file}:two_of_two", {"a": 1})
    assert read_spec(f"{file}:a=1") == (f"{file}", {"a": 1})
    with pytest.raises(UsageError, match=r"registers several methods; write .*two.py:one_of_two or"):
        METHODS.get(str(file))
    with pytest.raises(UsageError, match=r"no method in .*two.py named 'two_of_tow'; did you mean"):
        METHODS.get(f"{file}:two_of_tow")


def test_a_file_may_run_an_audit_of_its_own_method(tmp_path: Path):
    file = tmp_path / "own.py"
    audit = f"evenhand.audit('fake/A', methods=['own_audit', 'cot'], limit=1, out={str(tmp_path / 'run')!r})"
    file.write_text(f"{METHOD.replace('NAME', 'own_audit')}\nimport evenhand\n{audit}\n")
    script = f"from evenhand.methods.base import METHODS\nprint(METHODS.get({str(file)!r}).name)"

    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)

    assert told.stdout == "own_audit\n", told.stderr


def test_a_function_in_a_file_is_a_model(tmp_path: Path):
    file = tmp_path / "team.py"
    file.write_text("def judge(prompt):\n    return 'A'\n")

    found = evenhand.audit(f"call/{file}:judge", out=tmp_path / "run", limit=2)

    assert found.arms[0].key.models == {"base": f"call/{file}:judge"}


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("import nowhere_at_all\n", "line 1: ModuleNotFoundError: No module named 'nowhere_at_all'"),
        ("x = 1\nx.y\n", "line 2: AttributeError: 'int' object has no attribute 'y'"),
        ("x = 1\nx = (\n", "line 2: SyntaxError"),
        ("x = 1\n", "registers no method"),
        (
            "import evenhand\n@evenhand.method('few', kinds={'choice'})\nasync def few(sample):\n    pass\n",
            r"line 2: the method 'few' must be written `async def few\(sample, session\)`",
        ),
        (
            "import evenhand\n\n@evenhand.method('sync', kinds={'choice'})\ndef sync(sample, session):\n    pass\n",
            r"line 3: the method 'sync' must be written `async def sync\(sample, session\)`",
        ),
        (
            "from evenhand import *\n@BENCHMARKS.register('half')\nclass Half(Benchmark):\n    name = 'half'\n",
            r"line [23]: the benchmark 'half' lacks version, kind, headline, grade\(\), metrics\(\), samples\(\)",
        ),
        (
            "from evenhand import *\n@SCORERS.register('odd')\ndef odd(text):\n    return 1\n",
            "line 2: the scorer 'odd' must be a subclass of evenhand.Scorer",
        ),
    ],
)
def test_a_wrong_file_is_told_with_its_line(tmp_path: Path, source: str, says: str):
    file = tmp_path / "wrong.py"
    file.write_text(source)

    with pytest.raises(UsageError, match=says) as told:
        METHODS.get(str(file))

    assert str(told.value).startswith(str(file))


def test_a_file_that_is_not_there_is_told(tmp_path: Path):
    with pytest.raises(UsageError, match=r"There is no file .*none.py"):
        load_file(str(tmp_path / "none.py"))
    assert isinstance(METHODS, Registry)


BENCHMARK = """
import evenhand
from evenhand.benchmarks.base import BENCHMARKS

@BENCHMARKS.register("NAME")
class Own(BENCHMARKS.get("bbq_builtin")):
    name = "NAME"
"""


def test_a_headline_that_is_no_metric_is_refused_before_the_first_call(tmp_path: Path):
    (tmp_path / "own.py").write_text(BENCHMARK.replace("NAME", "own_headline") + '    headline = "bias"\n')
    asked: list[str] = []

    def model(prompt: str) -> str:
        asked.append(prompt)
        return "A"

    with pytest.raises(UsageError, match=r"no headline metric of .*own\.py named 'bias'; .*bias_ambig"):
        evenhand.audit(model, benchmark=str(tmp_path / "own.py"), out=tmp_path / "run", limit=2)
    assert not asked


def test_a_stored_run_does_not_execute_a_benchmark_file_that_was_changed(tmp_path: Path):
    file, mark = tmp_path / "own.py", tmp_path / "was-run"
    file.write_text(BENCHMARK.replace("NAME", "own_and_changed"))
    evenhand.audit("fake/A", benchmark=str(file), out=tmp_path / "run", limit=4)
    _forget(file)

    file.write_text(file.read_text() + f"open({str(mark)!r}, 'w').close()\n")

    assert evenhand.compare(tmp_path / "run").arms  # by the copy that the run has kept
    assert not mark.exists()

    shutil.rmtree(tmp_path / "run" / "own")
    assert evenhand.compare(tmp_path / "run").arms  # by what the run has stored of it
    assert not mark.exists()


OWN_METRIC = (
    BENCHMARK
    + """
    headline, guardrails, followed = "right", (), ()

    def metrics(self):
        return [evenhand.benchmarks.base.Metric("right", "Right", counted, better="higher")]

def counted(record):
    return RETURNED
"""
)


@pytest.mark.parametrize(
    ("name", "returned", "said"),
    [
        ("raises", "{}['nothing'], 1.0", r"own\.py, line 15, in counted: KeyError: 'nothing'\. All answers are kept"),
        ("a_text", "'a', 1.0", "What a metric of a_text returns cannot be used: ValueError: could not convert"),
        ("a_number", "1.0", "What a metric of a_number returns cannot be used: TypeError: 'float' object is not"),
    ],
)
def test_a_metric_that_fails_is_named_and_works_once_it_is_mended(tmp_path: Path, name: str, returned: str, said: str):
    file = tmp_path / "own.py"
    file.write_text(OWN_METRIC.replace("NAME", name).replace("RETURNED", returned))
    with pytest.raises(UsageError, match=said):
        evenhand.audit("fake/A", benchmark=str(file), out=tmp_path / "run", limit=4)

    _forget(file)
    BENCHMARKS._of_file.pop(file.resolve())  # pyright: ignore[reportPrivateUsage]
    file.write_text(OWN_METRIC.replace("NAME", f"{name}_mended").replace("RETURNED", "1.0, 1.0"))
    found = evenhand.compare(tmp_path / "run")

    assert found.arms[0].estimate("right").value == 1.0
    assert any("own.py was mended after the run" in each for each in found.caveats)


def test_a_stored_run_with_a_changed_method_file_is_read_without_executing_it(tmp_path: Path):
    file, mark = tmp_path / "mine.py", tmp_path / "was-run"
    file.write_text(METHOD.replace("NAME", "changed_later"))
    evenhand.audit("fake/echo", out=tmp_path / "run", methods=[str(file)], limit=2)
    _forget(file)

    file.write_text(file.read_text() + f"open({str(mark)!r}, 'w').close()\n")

    assert evenhand.compare(tmp_path / "run").arms
    assert not mark.exists()


def _forget(file: Path) -> None:
    """As if another process had loaded the file."""
    registry._files.pop(file.resolve())  # pyright: ignore[reportPrivateUsage]
