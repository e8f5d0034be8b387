"""Runs are copied to storage and back whole, also while they go on."""

from pathlib import Path

import fsspec
import pytest

from evenhand.core.errors import PlanError, StoreError, UsageError
from evenhand.runs.remote import pull, push
from evenhand.runs.store import FILE_NAME, Store
from support.runs import Workshop
from support.toy import right_answer

URL = "memory://bucket/5f4dcc3b5aa765d61d8327deb882cf99/first"


@pytest.fixture(autouse=True)
def _empty_storage() -> None:
    storage = fsspec.filesystem("memory")
    if storage.exists("/bucket"):
        storage.rm("/bucket", recursive=True)


@pytest.fixture
async def run(workshop: Workshop) -> Path:
    workshop.model(lambda messages, _params: right_answer(messages))
    await workshop.run()
    return workshop.directory / "run"


def drafts(folder: Path) -> list[Path]:
    return list(folder.glob(".*"))


async def test_a_run_comes_back_as_it_was(workshop: Workshop, run: Path):
    (run / "report.html").write_text("<p>report")
    before = workshop.exported("run")

    assert push(run, URL) == 2
    assert pull(URL, workshop.directory / "back") == 2

    assert workshop.exported("back") == before
    assert sorted(path.name for path in (workshop.directory / "back").iterdir()) == ["report.html", FILE_NAME]


async def test_rows_in_the_log_of_a_run_that_goes_on_are_copied_too(workshop: Workshop, run: Path):
    store = Store(run)
    store.put(caveats=["written a moment ago"])

    push(run, URL)
    pull(URL, workshop.directory / "back")

    assert Store(workshop.directory / "back").get("caveats") == ["written a moment ago"]
    store.close()


async def test_a_folder_of_runs_is_copied_with_all_of_them(workshop: Workshop, run: Path):
    workshop.model(lambda messages, _params: right_answer(messages))
    await workshop.run("paper/one")
    await workshop.run("paper/deep/two")

    push(workshop.directory / "paper", URL)
    assert pull(URL, workshop.directory / "back") == 2

    assert Store(workshop.directory / "back" / "deep" / "two").get("samples") == 24


async def test_nothing_is_replaced_unasked(run: Path, tmp_path: Path):
    push(run, URL)
    with pytest.raises(PlanError, match="holds a run already; pass --overwrite"):
        push(run, URL)
    push(run, URL, overwrite=True)
    with pytest.raises(PlanError, match="exists already"):
        pull(URL, run)
    assert not drafts(tmp_path)


async def test_what_is_no_run_is_refused_and_leaves_nothing(run: Path, tmp_path: Path):
    with pytest.raises(PlanError, match="There is no run in"):
        push(tmp_path / "empty", URL)
    with pytest.raises(PlanError, match="There is no run at"):
        pull(URL, tmp_path / "back")
    fsspec.filesystem("memory").pipe_file(f"/bucket/runs/first/{FILE_NAME}", b"no database")
    with pytest.raises((PlanError, StoreError)):
        pull(URL, tmp_path / "back")
    assert not (tmp_path / "back").exists()
    assert not drafts(tmp_path)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("nosuch://bucket/run", "nosuch"),
        ("s3://key:secret@bucket/run", "holds a password or key"),
    ],
)
async def test_an_address_that_cannot_be_used_is_named(run: Path, url: str, words: str):
    with pytest.raises(UsageError, match=words):
        push(run, url)
