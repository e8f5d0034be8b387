"""The pages of `evenhand ui` over real runs: the list, a run, samples, answers, comparisons, ranks."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from contextlib import closing
from html import unescape
from pathlib import Path

import orjson
import pytest

from evenhand.models.request import pack, unpack
from evenhand.runs.file import locked
from evenhand.runs.store import Store
from evenhand.studies.study import study
from evenhand.ui import samples
from evenhand.ui.pages import runs
from support.workbench import make_run, opened

FIRST, COT, SECOND = "first::1", "first::2", "suite/second::1"
LITERAL = "<script>alert(1)</script>"


def rows_of(page: str) -> list[str]:
    return re.findall(r'<a href="/run\?id=([^"]+)"', page)


def words(page: str) -> str:
    return " ".join(unescape(re.sub(r"<(script|style).*?</\1>|<[^>]+>", " ", page, flags=re.DOTALL)).split())


def change_answer(run: Path, sample: int, arm: int, text: str) -> None:
    with closing(sqlite3.connect(run / "run.sqlite")) as db:
        (body,) = db.execute("SELECT body FROM outcomes WHERE sample = ? AND arm = ?", (sample, arm)).fetchone()
        outcome = unpack(body)
        outcome["result"]["value"]["text"] = text
        db.execute(
            "INSERT OR REPLACE INTO outcomes SELECT sample, arm, status, reason, seconds, ?, at_limit, reading"
            " FROM outcomes WHERE sample = ? AND arm = ?",
            (pack(outcome), sample, arm),
        )
        db.commit()


async def test_the_list_has_all_runs_also_those_in_subfolders(folder: Path):
    async with opened(folder) as pages:
        await pages.all_measured()
        page = await pages.get("/")
    assert rows_of(page) == ["suite%2Fsecond", "first"]
    assert "Bias, ambiguous" in page
    assert f'value="{COT}"' in page


async def test_the_first_sentence_has_its_numbers(folder: Path):
    async with opened(folder) as pages:
        await pages.all_measured()
        with closing(Store(folder / "first")) as store:
            store.put(headline={"text": "without numbers", "done": 24})  # as `evenhand report` does
        pages.workbench.index._searched = -10.0
        await pages.all_measured()
        page = words(await pages.get("/"))
    finding = study([folder / "suite" / "second"]).findings[0]
    numbers = finding.detail.partition(". ")[0]
    assert f"{finding.sentence} {numbers}" in page
    assert "n = 6" in page
    assert "without numbers" not in page


async def test_judges_are_no_models_of_a_run(folder: Path):
    judged = {"base": "fake/C", "judge1": "fake/JUDGE"}
    await make_run(folder / "judged", models=[judged], methods=["panel:judges=2"])
    async with opened(folder) as pages:
        await pages.all_measured()
        assert "3 models" in words(await pages.get("/boards"))
        for path in ("/", "/history"):
            page = await pages.get(path)
            assert '<option value="fake/C">' in page
            assert '<option value="fake/JUDGE">' not in page


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ({"model": "fake/B"}, ["suite%2Fsecond"]),
        ({"method": "cot"}, ["first"]),
        ({"benchmark": "squad"}, []),
        ({"state": "complete"}, ["suite%2Fsecond", "first"]),
        ({"state": "running"}, []),
        ({"folder": "suite"}, ["suite%2Fsecond"]),
        ({"text": "FIRST fake"}, ["first"]),
        ({"until": "2020-01-01"}, []),
        ({"since": "2020-01-01"}, ["suite%2Fsecond", "first"]),
    ],
)
async def test_filters_leave_the_runs_that_match(folder: Path, filters: dict[str, str], found: list[str]):
    async with opened(folder) as pages:
        await pages.all_measured()
        assert rows_of(await pages.get("/", **filters)) == found


async def test_a_run_appears_changes_and_goes_without_a_restart(folder: Path):
    async with opened(folder) as pages:
        pages.workbench.index._searched = -10.0
        await make_run(folder / "third")
        await pages.all_measured()
        assert "third" in rows_of(await pages.get("/"))
        (folder / "third" / "run.sqlite").unlink()
        pages.workbench.index._searched = -10.0
        assert "third" not in rows_of(await pages.get("/"))


async def test_a_running_run_has_a_bar_that_a_script_can_follow(folder: Path):
    with locked(folder / "first"):
        async with opened(folder) as pages:
            page = await pages.get("/")
            assert 'data-running="first"' in page
            async with pages.client.get("/state.json") as response:
                state = orjson.loads(await response.read())
    assert state["running"]["first"] == {"done": 24, "total": 24, "words": "running, 24 of 24"}


async def test_a_damaged_run_is_listed_with_the_reason(folder: Path):
    (folder / "bad").mkdir()
    (folder / "bad" / "run.sqlite").write_bytes(b"no database at all, but long enough to be looked at" * 30)
    async with opened(folder) as pages:
        page = await pages.get("/", state="damaged")
        assert rows_of(page) == ["bad"]
        assert "file is not a database" in await pages.get("/run", id="bad")


async def test_what_is_known_of_runs_is_kept_for_the_next_start(folder: Path, monkeypatch: pytest.MonkeyPatch):
    async with opened(folder) as pages:
        await pages.all_measured()

    def fail(*_: object) -> None:
        raise AssertionError("read again")

    monkeypatch.setattr("evenhand.ui.index.read_row", fail)
    monkeypatch.setattr("evenhand.ui.work.measured", fail)
    async with opened(folder) as pages:
        await pages.all_measured()
        assert len(rows_of(await pages.get("/"))) == 2


async def test_a_runs_page_is_its_report(folder: Path):
    async with opened(folder) as pages:
        page = await pages.get("/run", id="first")
    for verdict in study([folder / "first"]).verdicts:
        assert words(verdict)[:60] in words(page)
    assert 'id="groups"' in page


@pytest.mark.parametrize("run_id", ["", "..", "../runs/first", "/etc", "notes", "first/", "nowhere"])
async def test_only_runs_of_the_folder_can_be_named(folder: Path, run_id: str):
    async with opened(folder) as pages:
        for path, name in (("/run", "id"), ("/samples", "run"), ("/sample.json", "run")):
            assert "no such run" in await pages.get(path, 404, **{name: run_id})


async def test_samples_are_searched_on_the_server(folder: Path):
    change_answer(folder / "first", 3, 2, "A Unicorn did it")
    async with opened(folder) as pages:
        await pages.get("/samples", run="first", sort="plan", text="unicorn")
        found = embedded(await pages.get("/samples", run="first", text="unicorn"))
        assert [each["outcomes"][1]["answer"] for each in found] == ["A Unicorn did it"]
        assert len(embedded(await pages.get("/samples", run="first", text=""))) == 12
        assert embedded(await pages.get("/samples", run="first", text="' OR 1=1 --")) == []
        assert embedded(await pages.get("/samples", run="first", differs="1"))[0]["id"] == found[0]["id"]
        assert embedded(await pages.get("/samples", run="first", status="failed")) == []


async def test_a_sample_comes_whole_when_it_is_opened(folder: Path):
    async with opened(folder) as pages:
        sample = embedded(await pages.get("/samples", run="first", text="a"))[0]
        async with pages.client.get("/sample.json", params={"run": "first", "id": sample["id"]}) as response:
            whole = orjson.loads(await response.read())
        assert [each["arm"] for each in whole["outcomes"]] == ["1.1", "1.2"]
        assert whole["outcomes"][0]["turns"][0]["messages"]
        await pages.get("/sample.json", 400, run="first", id="no such sample")


async def test_samples_that_judges_see_differently_come_first(folder: Path):
    with closing(sqlite3.connect(folder / "first" / "run.sqlite")) as db:
        db.execute("UPDATE outcomes SET reading = 'judges_disagreed and logprobs' WHERE sample = 9 AND arm = 1")
        db.commit()
        (expected,) = db.execute("SELECT id FROM samples WHERE number = 9").fetchone()
    async with opened(folder) as pages:
        first = embedded(await pages.get("/samples", run="first", text="a"))[0]
    assert first["id"] == expected
    assert first["group"].startswith("judges disagree")


def test_the_search_index_reads_only_what_was_added(folder: Path, tmp_path: Path):
    run, file = folder / "first", tmp_path / "index.sqlite"
    assert samples.update_index(run, file) == 12
    assert samples.update_index(run, file) == 0
    change_answer(run, 5, 1, "Something else")
    assert not samples.is_ready(run, file)
    assert samples.update_index(run, file) in (1, 12)
    assert samples.listed(file, samples.Query("something else")).found == 1


async def test_two_answers_stand_side_by_side_with_marked_words(folder: Path):
    async with opened(folder) as pages:
        page = await pages.get("/answers", arm=[FIRST, SECOND])
        assert "12 answers of 12 differ" in page
        assert "<mark>" in page
        assert "Choose two arms" in await pages.get("/answers", 400, arm=[FIRST])


async def test_a_comparison_has_the_numbers_of_the_command(folder: Path):
    result = study([folder / "first", folder / "suite" / "second"], arms=["1.1", "2.1"], baseline="1.1")
    async with opened(folder) as pages:
        page = words(await pages.get("/compare", arm=[FIRST, SECOND], baseline=FIRST))
    assert len(result.arms) == 2
    assert words(result.verdicts[0])[:80] in page


@pytest.mark.parametrize(
    ("arms", "said"),
    [([FIRST], "at least two arms"), ([], "at least two arms"), (["first::9", FIRST, FIRST], "at least two arms")],
)
async def test_a_comparison_that_is_not_possible_says_why(folder: Path, arms: list[str], said: str):
    async with opened(folder) as pages:
        assert said in await pages.get("/compare", arm=arms)


async def test_arms_that_cannot_be_told_apart_share_a_rank(folder: Path):
    async with opened(folder) as pages:
        await pages.all_measured()
        assert "bbq_builtin" in await pages.get("/boards")
        page = await pages.get("/board", benchmark="bbq_builtin")
    assert re.findall(r'class="rank">([^<]+)<', page) == ["1", "1", "1"]


async def test_a_model_over_time_has_all_its_runs(folder: Path):
    await make_run(folder / "later", seeds=[1])
    async with opened(folder) as pages:
        await pages.all_measured()
        page = await pages.get("/history", model="fake/A", benchmark="bbq_builtin")
    assert rows_of(page) == ["later", "first"]


async def test_text_of_models_and_folders_is_escaped(folder: Path):
    change_answer(folder / "first", 1, 1, LITERAL)
    (folder / "first").rename(folder / "<b>bold")
    async with opened(folder) as pages:
        await pages.all_measured()
        arms = ["<b>bold::1", "<b>bold::2"]
        for path, query in (
            ("/", {}),
            ("/run", {"id": "<b>bold"}),
            ("/samples", {"run": "<b>bold", "text": "alert"}),
            ("/answers", {"arm": arms}),
            ("/compare", {"arm": arms}),
            ("/board", {"benchmark": LITERAL}),
            ("/history", {"model": LITERAL, "benchmark": "x"}),
        ):
            page = await pages.get(path, **query)
            assert LITERAL not in page
            assert "<b>bold" not in page


async def test_a_benchmark_in_a_file_is_not_executed(folder: Path, tmp_path: Path):
    code = tmp_path / "mine.py"
    code.write_text(f"open({str(tmp_path / 'executed')!r}, 'w')", encoding="utf-8")
    with closing(sqlite3.connect(folder / "first" / "run.sqlite")) as db:
        (text,) = db.execute("SELECT value FROM facts WHERE key = 'plan'").fetchone()
        plan = orjson.loads(text) | {"benchmark": str(code)}
        db.execute("UPDATE facts SET value = ? WHERE key = 'plan'", (orjson.dumps(plan).decode(),))
        db.commit()
    async with opened(folder) as pages:
        await pages.all_measured()
        assert "is not executed" in await pages.get("/run", 400, id="first")
        await pages.get("/samples", run="first", text="a")
    assert not (tmp_path / "executed").exists()


async def test_a_failure_after_the_beginning_of_a_page_is_one_sentence(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    async def fail(*_: object) -> None:
        await asyncio.sleep(0.5)
        raise ZeroDivisionError("secret detail")

    async with opened(folder) as pages:
        monkeypatch.setattr(pages.workbench.workers, "run", fail)
        page = await pages.get("/run", id="first")
    assert "This page failed" in page
    assert "secret detail" not in page
    assert "secret detail" in caplog.text


async def test_the_work_is_done_in_other_processes(folder: Path):
    async with opened(folder, processes=True) as pages:
        page = await pages.get("/run", id="suite/second")
        assert 'id="groups"' in page
        assert "Computing the report" in page  # its beginning was sent at once


def embedded(page: str) -> list[dict]:
    found = re.search(r'id="sample-data">(.*?)</script>', page)
    return orjson.loads(found[1])["samples"] if found else []


def test_a_headline_has_the_verdict_and_each_arm_on_its_own_line() -> None:
    said = runs.in_lines("Worse: b can be read in 0 % of the cases; a 100 %. Bias: a −1.0 [−2.4, 0.5]; b undefined")

    assert said.split("\n") == [
        "Worse: b can be read in 0 % of the cases; a 100 %.",
        "Bias: a −1.0 [−2.4, 0.5];",
        "b undefined",
    ]
    assert runs.in_lines("Bias: 1.5 [1.4, 7.4]") == "Bias: 1.5 [1.4, 7.4]"
