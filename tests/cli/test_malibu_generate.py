"""`evenhand judges malibu generate`: what is written and frozen, what it costs, and how bad input is told."""

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from evenhand.benchmarks.malibu.scenarios import load_bases
from evenhand.core.errors import BadResponseError, DataError
from evenhand.core.types import Message, Params
from evenhand.models.base import PROVIDERS
from evenhand.models.fake import FunctionModel, Reply

ONE = " ".join(["I check the lock twice and write it down."] * 8)
OTHER = " ".join(["Twice I look at the lock and note it."] * 8)
ARGUMENTS = ("judges", "malibu", "generate", "--model", "stub/one", "--bases", "2", "--derived", "2", "--out", "made")


def written(request: int, text: str) -> Reply:
    """A piece of the kind that is asked for; professions are told apart by the request's number."""
    if '"profession":' in text:
        return json.dumps({"profession": f"keeper of {'abcdefgh'[request % 8]}", "task": "Keep.", "surfaces": "Trust."})
    if '"cases":' in text:
        count = int(re.findall(r"with (\d+) cases", text)[0])
        return json.dumps({"cases": [{"role": f"r{n}", "setting": "s", "situation": "It jams."} for n in range(count)]})
    return json.dumps({"first": ONE, "second": OTHER})


@pytest.fixture
def plug(monkeypatch: pytest.MonkeyPatch) -> Callable[..., FunctionModel]:
    """`plug(reply)` makes stub/one a model that answers the n-th request as `reply(n, text)` says."""

    def make(reply: Callable[[int, str], Reply] = written) -> FunctionModel:
        def answer(messages: Sequence[Message], _params: Params) -> Reply:
            return reply(len(model.requests), "\n".join(each.content for each in messages))

        model = FunctionModel(answer, spec="stub/one")
        monkeypatch.setitem(PROVIDERS._things, "stub", _Stub(model))
        return model

    return make


class _Stub:
    """A provider that always gives the same model."""

    free = False
    features = frozenset[str]()

    def __init__(self, model: FunctionModel) -> None:
        self._model = model

    def __call__(self, _name: str, _options: Any) -> FunctionModel:
        return self._model


def provenance(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "provenance.json").read_text(encoding="utf-8"))


def test_scenarios_are_written_as_files_that_can_be_used(cli: Any, plug: Any, tmp_path: Path):
    model = plug()

    result = cli(*ARGUMENTS)

    assert result.code == 0, result.err
    assert "made: 2 of 2 base scenarios with 4 scenarios; 0 pieces were left out." in result.out
    bases = load_bases(tmp_path / "made")
    assert [len(base.derived) for base in bases] == [2, 2]
    assert bases[0].derived[0].responses == (ONE, OTHER)
    assert len(model.requests) == 2 * (2 + 2)
    assert any(bases[0].profession in text[-1].content for text, _ in model.requests[1:])


def test_the_folder_says_how_it_was_made_and_is_frozen(cli: Any, plug: Any, tmp_path: Path):
    plug()
    cli(*ARGUMENTS, "--seed", "7")
    folder = tmp_path / "made"

    made = provenance(folder)

    files = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.glob("*.yaml")}
    assert (made["format"], made["seed"], made["sha256"]) == ("evenhand-malibu-1", 7, files)
    assert made["model"]["spec"] == "stub/one"
    assert {"made/scenarios/base", "made/scenarios/cases"} < set(made["prompts"])
    assert (made["asked"], made["written"]) == ({"bases": 2, "derived": 2}, {"bases": 2, "scenarios": 4})
    assert (made["dropped"], "python" in made["versions"]) == ({}, True)
    changed = next(iter(files))
    (folder / changed).write_text("id: other\n")
    with pytest.raises(DataError, match=f"{changed} was changed"):
        load_bases(folder)


def test_what_was_left_out_is_counted(cli: Any, plug: Any, tmp_path: Path):
    def reply(request: int, text: str) -> Reply:
        fault = "<<<r1>>>" in text
        return json.dumps({"first": ONE, "second": ONE}) if fault else written(request, text)

    plug(reply)

    result = cli(*ARGUMENTS)

    assert "2 of 2 base scenarios with 2 scenarios; 2 pieces were left out." in result.out
    assert "2 × scenario: the two responses are the same text" in result.out
    assert provenance(tmp_path / "made")["dropped"] == {"scenario: the two responses are the same text": 2}


def test_the_dry_run_counts_the_calls_that_are_made(cli: Any, plug: Any, tmp_path: Path):
    model = plug()

    dry = cli(*ARGUMENTS, "--dry-run", "--price", "stub/one=1/1")

    assert (dry.code, model.requests, (tmp_path / "made").exists()) == (0, [], False)
    cli(*ARGUMENTS)
    assert f"{len(model.requests)} calls" in dry.out
    assert "money at most: $0.0" in dry.out
    assert "price unknown" in cli(*ARGUMENTS[:-1], "other", "--dry-run").out


def test_a_folder_that_is_not_empty_is_refused(cli: Any, plug: Any, tmp_path: Path):
    model = plug()
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "notes.txt").write_text("mine")

    result = cli(*ARGUMENTS)

    assert (result.code, model.requests) == (2, [])
    assert "The folder made is not empty, and nothing is overwritten; name a new one with --out." in result.err
    assert [file.name for file in (tmp_path / "made").iterdir()] == ["notes.txt"]


def test_a_file_as_a_folder_is_refused(cli: Any, plug: Any, tmp_path: Path):
    plug()
    (tmp_path / "made").write_text("mine")

    result = cli(*ARGUMENTS)

    assert (result.code, "made is a file" in result.err) == (2, True)


def test_a_failure_on_the_way_keeps_what_is_finished(cli: Any, plug: Any, tmp_path: Path):
    plug(lambda request, text: written(request, text) if request <= 4 else BadResponseError("The server is gone."))

    result = cli(*ARGUMENTS, "--no-cache")

    assert result.code == 2
    assert "1 base scenarios were finished and are in made." in result.err
    assert "The server is gone." in result.err
    assert len(load_bases(tmp_path / "made")) == 1
    assert provenance(tmp_path / "made")["written"] == {"bases": 1, "scenarios": 2}


def test_a_budget_stops_it_and_the_cache_goes_on(cli: Any, plug: Any, tmp_path: Path):
    model = plug()

    stopped = cli(*ARGUMENTS, "--budget", "5 calls")

    assert stopped.code == 3
    assert "1 of 2 base scenarios" in stopped.out
    assert len(load_bases(tmp_path / "made")) == 1
    assert "with --reuse-answers" in stopped.out
    again = cli(*ARGUMENTS[:-1], "whole", "--reuse-answers")
    assert again.code == 0
    assert len(model.requests) == 8
    assert len(load_bases(tmp_path / "whole")) == 2


def test_a_model_that_writes_nothing_usable_leaves_no_folder(cli: Any, tmp_path: Path):
    result = cli("judges", "malibu", "generate", "--model", "fake/no", "--bases", "1", "--out", "made")

    assert result.code == 1
    assert "1 × base scenario: the reply holds no JSON object" in result.out
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--model", "nonsense", "--out", "x"), "is not a model spec"),
        (("--model", "nobody/x", "--out", "x"), "There is no model provider named 'nobody'"),
        (("--out", "x"), "Missing option '--model'"),
        (("--model", "fake/x"), "Missing option '--out'"),
        (("--model", "fake/x", "--out", "x", "--bases", "0"), "Invalid value for '--bases'"),
        (("--model", "fake/x", "--out", "x", "--identities", "none.yaml"), "none.yaml: cannot be read"),
    ],
)
def test_bad_input_is_one_sentence(cli: Any, arguments: tuple[str, ...], told: str):
    result = cli("judges", "malibu", "generate", *arguments)

    assert result.code == 2
    assert told in result.err
    assert "Traceback" not in result.err
