"""Commands whose models run on a real Ray: the same results as in one process."""

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from evenhand.models.base import PROVIDERS
from evenhand.models.ray.connect import connect
from evenhand.runs.store import FILE_NAME, Store
from evenhand.studies.export import export

pytest.importorskip("ray", reason="needs pip install 'evenhand[ray]'")

from support.ray_stub_engine import StubEngine, install

pytestmark = [
    pytest.mark.processes,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),  # of a Ray that starts slowly
]
TEXTS = ("run", "--model", "stub/base", "--benchmark", "realtoxicity_builtin", "--limit", "2", "--set", "completions=2")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A Ray of this machine that has the stub engine installed."""
    import ray

    packages = tmp_path_factory.mktemp("packages")
    install(packages)
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(packages), before]))
    try:
        connect()
        yield
    finally:
        ray.shutdown()
        os.environ.pop("PYTHONPATH") if before is None else os.environ.update(PYTHONPATH=before)


@pytest.fixture(autouse=True)
def stub(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine in this process, too."""
    monkeypatch.setitem(PROVIDERS._things, "stub", StubEngine)


def results(folder: Path) -> dict[str, str]:
    """The outcomes of all runs in a folder, by their places in it."""
    found: dict[str, str] = {}
    for file in sorted(folder.rglob(FILE_NAME)):
        target = folder.with_suffix(".jsonl")
        assert export(file.parent, "outcomes", "jsonl", target) > 0
        found[str(file.parent.relative_to(folder))] = target.read_text(encoding="utf-8").replace("ray/stub", "stub")
    return found


@pytest.mark.parametrize(
    "command",
    [
        ("judges", "malibu", "--method", "judge", "--limit", "1", "--phase", "1", "--model", "MODEL"),
        ("train", "debate", "--topics", "2", "--rounds", "1", "--model", "MODEL"),
        ("papers", "mabrf", "--builtin", "--limit", "1", "--model", "MODEL"),
        (*TEXTS, "--scorer", "judge:MODEL"),
    ],
    ids=["malibu", "debate", "paper", "scorer"],
)
def test_a_command_gives_the_results_of_one_process(cluster: None, cli: Any, tmp_path: Path, command: tuple[str, ...]):
    for name, model in (("one", "stub/one"), ("two", "ray/stub/one?replicas=2&cpus_per_replica=0.5")):
        done = cli(*(part.replace("MODEL", model) for part in command), "--no-cache", "--out", name)
        assert done.code == 0, done.err + done.out

    expected = results(tmp_path / "one")
    assert expected
    assert '"graded"' in "".join(expected.values())
    assert results(tmp_path / "two") == expected


def test_rescore_on_replicas_gives_the_scores_of_one_process(cluster: None, cli: Any, tmp_path: Path):
    scores: list[list[Any]] = []
    for name, model in (("one", "stub/judge"), ("two", "ray/stub/judge?replicas=2&cpus_per_replica=0.5")):
        assert cli(*TEXTS, "--out", name).code == 0
        done = cli("run", "rescore", name, "--scorer", f"judge:{model}", "--no-cache")
        assert done.code == 0, done.err + done.out
        with closing(Store(tmp_path / name)) as store:
            columns = "sample, arm, iteration, status, reason, body"
            found = store.select(
                f"SELECT {columns} FROM scores WHERE scorer LIKE 'judge%' ORDER BY sample, arm, iteration"
            )
            scores.append(list(found))

    assert {row[3] for row in scores[0]} == {"graded"}
    assert scores[0] == scores[1]
