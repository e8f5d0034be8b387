"""Every `evenhand` command in the documentation exists with its options; what is quick and offline also runs."""

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from evenhand import BENCHMARKS, METHODS
from evenhand.cli.groups import Group
from evenhand.cli.main import entry, main
from evenhand.core.specs import read_spec
from support.docs import DOCS, ROOT, Command, blocks, commands, lines

COMMANDS = commands()
PROGRAMS = {
    "evenhand",
    "make",
    "pip",
    "python",
    "curl",
    "docker",
    "inspect",
    "kubectl",
    "bash",
    "vllm",
    "npm",
    "lm_eval",
    "systemctl",
    "accelerate",
    "torchrun",
    "OPENBLAS_NUM_THREADS=1",
    "cp",
    "head",
    "mv",
    "printf",
}
_CHECKED = (click.Choice, click.types.IntParamType, click.types.FloatParamType)
_PUBLIC = {
    *("bbq", "bbq_hard", "realtoxicity", "squad", "decisions", "difference_awareness", "crows_pairs", "stereoset"),
    "hiring",
}
_PLACEHOLDERS = {"MODEL": "fake/A", "OTHER": "fake/B", "JUDGE": "fake/C", "T": "fake/T", "R": "fake/R"}


def check(command: click.Command, words: Sequence[str], whole: bool, parent: click.Context) -> None:
    """Parses as the command line does, but runs no callback and looks at no file."""
    context = click.Context(command, parent=parent, info_name=command.name)
    is_meant = isinstance(command, Group) and command.default and {*words[:1]} - {*command.list_commands(context)}
    if is_meant:
        words = [str(command.default), *words]
    values, rest, _ = command.make_parser(context).parse_args(list(words))
    if isinstance(command, click.Group) and rest:
        found = command.get_command(context, rest[0])
        assert found, f"there is no {command.name} {rest[0]}"
        return check(found, rest[1:], whole, context)
    assert not rest, f"{command.name} takes no {rest}"
    for parameter in command.params:
        given = values.get(parameter.name)
        if whole and parameter.required:
            assert given, f"{command.name} needs {parameter.name}"
        if isinstance(parameter.type, _CHECKED):
            for value in given if isinstance(given, list | tuple) else [given]:
                if isinstance(value, str) and not value.isupper():
                    parameter.type.convert(value, parameter, context)
    return None


@pytest.mark.parametrize("command", COMMANDS, ids=str)
def test_a_command_and_its_options_exist(command: Command):
    check(main, command.words, command.whole, click.Context(main, info_name="evenhand"))


@pytest.mark.parametrize(
    ("option", "known"),
    [("--method", METHODS), ("--benchmark", BENCHMARKS)],
    ids=["--method", "--benchmark"],
)
def test_methods_and_benchmarks_in_commands_exist(option: str, known: Any):
    given = {after for command in COMMANDS for at, after in pairwise(command.words) if at == option}

    assert given
    for value in given - {"NAME"}:
        assert known.get(value.partition(":")[0])


def test_options_of_methods_in_commands_exist():
    given = {after for command in COMMANDS for at, after in pairwise(command.words) if at == "--method"}
    specs = [read_spec(value) for value in given - {"NAME"} if ":" in value and "NAME:" not in value]

    assert len(specs) > 10
    for name, options in specs:
        method = METHODS.get(name)
        placeholders = [key for key, value in options.items() if isinstance(value, str) and value.isupper()]
        method.options.parse(f"method {name}", {key: options[key] for key in options if key not in placeholders})
        assert {*placeholders} <= {*method.options.model_fields, "preset"}


def test_shell_blocks_hold_commands():
    assert {words[0] for block in blocks("sh") for words in lines(block)} <= PROGRAMS


def _value(command: Command, option: str) -> str | None:
    return next((after for at, after in pairwise(command.words) if at == option), None)


def _plannable(command: Command) -> bool:
    """A run that a dry run can plan with nothing but what is built in."""
    verb, *more = command.words
    groups = {("train", "debate"), ("judges", "malibu"), ("judges", "framing"), ("data", "hard")}
    plans = verb in {"audit", "compare"} or command.words[:2] in groups
    plans = plans or (verb == "run" and bool(more) and more[0].startswith("-"))
    data = _value(command, "--benchmark") or {"data": "bbq"}.get(verb, "")
    files = {"--config", "--data", "--identities", "--system", "--history", "--profile"} & {*command.words}
    made = any(word.startswith(("data=", "hf/", "call/", "runs/", "ids=")) for word in command.words)
    replays = "replay:" in " ".join(command.words)
    corpus = any(word.startswith("mabrf:search=corpus:F") for word in command.words)
    stored = corpus or bool({"RUN", "--own"} & {*command.words})
    return command.whole and plans and data not in _PUBLIC and not (files or made or replays or stored)


PLANS = [command for command in COMMANDS if _plannable(command)]


def fake(word: str) -> str:
    """The word with a model that answers at once in place of any that is named."""
    role, equals, spec = word.rpartition("=") if word.startswith(("judge=", "referee=", "teacher=")) else ("", "", word)
    answer = "fake/B" if spec == "local/builtin-fair" else "fake/A"  # next to local/builtin, in one comparison
    spec = answer if spec.startswith(("openai/", "local/")) else _PLACEHOLDERS.get(spec, spec)
    return f"{role}{equals}{spec}".replace(":JUDGE", ":fake/C")


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Any:
    """Runs `evenhand WORDS` in a folder of its own and returns what it printed; any failure is one of the test."""
    monkeypatch.delenv("EVENHAND_DATA", raising=False)
    monkeypatch.setenv("EVENHAND_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "prompts.csv").write_text("prompt\nA nurse asks for a loan.\n")
    (tmp_path / "prompts.txt").write_text("Write one sentence about {person}, who asks for a loan.\n")
    (tmp_path / "team.yaml").write_text(blocks("yaml", (DOCS / "measure" / "panels.md",))[0].text)
    profile = {"id": "a", "domain": "hiring", "title": "Baker", "content": "Has baked for six years."}
    (tmp_path / "public_dev.jsonl").write_text(json.dumps(profile))
    pq.write_table(pa.table({"prompt": ["A nurse asks for a loan."]}), tmp_path / "prompts.parquet")

    def call(*words: str) -> str:
        monkeypatch.setattr("sys.argv", ["evenhand", *words])
        with pytest.raises(SystemExit) as ended:
            entry()
        captured = capsys.readouterr()
        assert not ended.value.code, captured.err
        return captured.out

    return call


@pytest.mark.parametrize("command", PLANS, ids=str)
def test_a_run_can_be_planned(run: Any, command: Command):
    # A fake model has no batch API.
    words = [fake(word) for word in command.words if word not in ("--dry-run", "--batch-api")]

    assert "Nothing was called" in run(*words, "--dry-run")


def test_the_plan_file_of_the_page_can_be_planned(run: Any):
    text = blocks("yaml", (DOCS / "measure" / "runs.md",))[0].text
    Path("plan.yaml").write_text(text.replace("local/builtin", "fake/A"), encoding="utf-8")

    assert "Nothing was called" in run("run", "--config", "plan.yaml", "--dry-run")


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("train/debates.md", "train debate --rounds 1 --data own.yaml"),
        ("measure/framing.md", "judges framing --data own.yaml"),
        ("papers/malibu.md", "judges malibu --limit 20 --identities own.yaml"),
    ],
)
def test_data_of_ones_own_as_a_page_shows_it_can_be_planned(run: Any, page: str, words: str):
    Path("own.yaml").write_text(blocks("yaml", (DOCS / page,))[-1].text, encoding="utf-8")

    assert "Nothing was called" in run(*words.split(), "--model", "fake/A", "--dry-run")


@pytest.mark.parametrize(
    "words",
    [("models",), ("list", "methods"), ("list", "benchmarks"), ("list", "scorers"), ("data", "search", "--list")],
    ids=" ".join,
)
def test_lists_are_printed(run: Any, words: Sequence[str]):
    assert run(*words).strip()


SEARCHES = [words for block in blocks("sh", (DOCS / "methods" / "search.md",)) for words in lines(block)]


def test_the_search_that_is_built_in_finds_something(run: Any):
    assert "driv" in run(*SEARCHES[0][1:]).lower()


def test_a_recorded_search_is_replayed(run: Any):
    run(*SEARCHES[0][1:], "--record", "found.jsonl")

    assert "driv" in run(*SEARCHES[-1][1:]).lower()


@pytest.mark.parametrize("words", [words for words in SEARCHES if "corpus:FOLDER" in words])
def test_texts_of_ones_own_are_searched(run: Any, words: Sequence[str]):
    Path("FOLDER").mkdir()
    Path("FOLDER", "drivers.txt").write_text("Older drivers have few accidents per year.", encoding="utf-8")

    assert json.loads(run(*words[1:]))["hits"]


SCORES = [words for block in blocks("sh", (DOCS / "measure" / "scorers.md",)) for words in lines(block)]


@pytest.mark.parametrize("words", [words for words in SCORES if "openai" not in " ".join(words)], ids=" ".join)
def test_texts_are_scored(run: Any, words: Sequence[str]):
    Path("comments.txt").write_text("Have a nice day.\nYou idiot.\n", encoding="utf-8")
    Path("replies.jsonl").write_text('{"reply": "Thanks.", "text": "Thanks."}\n' * 3, encoding="utf-8")
    if "runs/first" in words:
        run("run", "--model", "fake/A", "--benchmark", "realtoxicity_builtin", "--limit", "2", "--out", "runs/first")
        run("run", "rescore", "runs/first", "--scorer", "builtin")

    run(*words[1:])


TUTORIAL = DOCS / "start" / "audit.md"


def _tutorial() -> list[list[str]]:
    steps = [words for block in blocks("sh", (TUTORIAL,)) for words in lines(block)]
    return [words[1:] for words in steps if words[0] == "evenhand" and "openai" not in " ".join(words)]


def test_the_tutorial_runs_with_a_fake_model(run: Any):
    steps = [[fake(word) for word in words] for words in _tutorial() if words[:2] != ["models", "pull"]]

    printed = [run(*words) for words in steps]

    assert "Nothing was called" in printed[0]
    assert "Report: runs/bias/report.html" in printed[1]
    assert "Report: runs/toxicity/report.html" in printed[2]
    assert "high-00033-01" in printed[3]
    assert "The first answer" in printed[4]


def test_the_doors_of_the_readme_run_in_an_empty_folder(run: Any, tmp_path: Path):
    """With a model that answers at once; training needs real weights and is tried by hand."""
    typed = [words[1:] for block in blocks("sh", (ROOT / "README.md",)) for words in lines(block)]
    audits = [[fake(word) for word in words] for words in typed if words[0] == "audit"]
    (gate,) = [[fake(word) for word in words] for words in typed if words[0] == "gate"]

    printed = {words[words.index("--out") + 1]: run(*words) for words in audits}
    (tmp_path / "baseline.json").write_text(printed["runs/old"], encoding="utf-8")

    assert "Report: runs/first/report.html" in printed["runs/first"]
    assert "Report: runs/prompts/report.html" in printed["runs/prompts"]
    assert "Report: runs/hiring/report.html" in printed["runs/hiring"]
    assert "Gate: " in run(*gate, "--undecided", "pass")


@pytest.mark.weights
def test_the_tutorial_runs_as_it_stands(run: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    from evenhand.core.files import cache_folder

    monkeypatch.delenv("EVENHAND_CACHE")
    weights = cache_folder() / "models"
    if not weights.exists():
        pytest.skip("needs the weights of the built-in model: evenhand models pull builtin")
    monkeypatch.setenv("EVENHAND_CACHE", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "models").symlink_to(weights)

    printed = "".join(run(*words) for words in _tutorial())

    assert "Better: stardtox continues the prompts" in " ".join(printed.split())
    assert "above chance" in " ".join(printed.split())
