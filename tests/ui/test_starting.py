"""Runs that are started from the page: only what is configured, within a budget, watched, cancelled and resumed."""

from __future__ import annotations

import io
import re
import zipfile
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from evenhand.benchmarks.base import BENCHMARKS
from evenhand.core.errors import UsageError
from evenhand.methods.base import METHODS
from evenhand.runs.store import Store
from evenhand.runs.summary import read_summary
from evenhand.ui import offers
from evenhand.web.keys import KeyConfig, new_key
from support.guard_server import until
from support.workbench import HTML, Pages, opened

CONFIG = """
[providers.demo]
type = "fake"

[providers.mine]
type = "call"

[prices]
"openai/priced" = "1/2"
"call/os.system" = "1/2"
"openai/odd?base_url=http://evil.example" = "1/2"
"""
RUBRIC = """
task: Somebody gave an opinion.
scale: 5
criteria:
  - {name: politeness, short: PO, better: higher, text: How polite it is., low: rude, high: warm}
"""
ASKED: dict[str, Any] = {
    "model": "demo/A",
    "benchmark": "bbq_builtin",
    "method": "default",
    "limit": "8",
    "budget": "50 calls",
}


@pytest.fixture
def project(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (folder.parent / "evenhand.toml").write_text(CONFIG, encoding="utf-8")
    monkeypatch.chdir(folder.parent)
    offers.prepare()  # as the command does
    return folder


async def started(pages: Pages, **changes: Any) -> str:
    """The id of a run that was just started."""
    _, place = await pages.post("/start", 303, **ASKED | changes, step="start")
    return parse_qs(urlsplit(place).query)["id"][0]


async def ended(pages: Pages, run_id: str) -> None:
    job = pages.workbench.jobs._jobs[run_id]
    assert job.reading is not None
    await job.reading


async def until_stored(pages: Pages, run_id: str, folder: Path) -> None:
    file = folder / run_id / "run.sqlite"
    await until(lambda: file.exists() or not pages.workbench.jobs.is_ours(run_id))


def names(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


async def test_the_form_says_in_a_sentence_what_methods_and_benchmarks_are(project: Path):
    async with opened(project) as pages:
        text = unescape(await pages.get("/start"))

    assert f"{METHODS.get('cot').summary} For chat, choice." in text
    assert (
        f"bbq_builtin (choice): {(BENCHMARKS.get('bbq_builtin').__doc__ or '').strip().partition(chr(10))[0]}" in text
    )


async def test_the_dry_run_is_shown_before_anything_is_started(project: Path):
    async with opened(project) as pages:
        text, _ = await pages.post("/start", 200, **ASKED)
        assert "What it would take" in text
        assert re.search(r"<td class=\"num\">8</td>\s*<td class=\"num\">8</td>", text)
        assert names(project) == ["first", "notes", "suite"]


async def test_prompts_are_uploaded_seen_filled_and_asked(project: Path):
    own = {**ASKED, "benchmark": "bbq_builtin", "file": io.BytesIO(b"Describe {person}, a nurse, in one sentence.\n")}
    own["file"].name = "prompts.txt"
    groups = "seniority: beginner, veteran"
    async with opened(project) as pages:
        text, _ = await pages.post("/start", 200, **own, groups=groups)
        assert "Describe a beginner, a nurse" in text
        assert "Describe a veteran, a nurse" in text
        kept = re.search(r'name="prompts" value="([0-9a-f]{16}\.txt)"', text)
        assert kept
        run_id = await started(pages, prompts=kept[1], groups=groups)
        await ended(pages, run_id)
    found = read_summary(project / run_id)
    assert (found.state, found.benchmark, found.done) == ("complete", "prompts", 2)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"prompts": "../../evenhand.toml"}, "not here any more"),
        ({"prompts": "0123456789abcdef.txt"}, "not here any more"),
        ({"groups": "seniority: beginner"}, "two or more on a line"),
        ({"groups": "seniority: beginner, veteran"}, "upload a file"),
    ],
)
async def test_a_page_names_no_file_that_it_did_not_upload(project: Path, changes: dict[str, str], said: str):
    async with opened(project) as pages:
        assert said in unescape((await pages.post("/start", 400, **ASKED | changes))[0])


async def test_a_run_is_gated_and_packed_from_its_page(project: Path):
    async with opened(project) as pages:
        await pages.all_measured()
        assert "Hold it to limits" in await pages.get("/run", id="first")
        passed, _ = await pages.post("/gate", 200, id="first", fail_if="coverage < 1")
        assert "The gate passes" in passed
        failed, _ = await pages.post("/gate", 200, id="first", fail_if="coverage < 1, coverage > 1")
        assert "The gate fails" in failed
        assert "no such run" in (await pages.post("/gate", 404, id="../x", fail_if="coverage < 1"))[0]
        assert "no metric" in unescape((await pages.post("/gate", 400, id="first", fail_if="nonsense < 1"))[0])

        packed, _ = await pages.post("/evidence", 200, id="first")
        address = re.search(r'href="(/evidence\.zip\?pack=[^"]+)"', packed)
        assert address
        async with pages.client.get(address[1]) as response:
            names = zipfile.ZipFile(io.BytesIO(await response.read())).namelist()
        assert any(name.endswith("evidence.json") for name in names), names
        await pages.get("/evidence.zip", 404, pack="../first")


async def test_people_rate_a_run_by_scales_of_a_rubric_file(project: Path):
    rubric = io.BytesIO(RUBRIC.encode())
    rubric.name = "polite.yaml"
    async with opened(project) as pages:
        run_id = await started(pages, benchmark="prompts", limit="2")
        await ended(pages, run_id)
        pages.workbench.index._searched = -10.0
        await pages.get("/run", id=run_id)
        text, _ = await pages.post("/annotate", 200, id=run_id, raters="ann,ben", rubric=rubric)
        links = re.findall(r'href="(http://127\.0\.0\.1:\d+/[^"]*)"', text)
        assert len(links) == 3
        assert "PO" in next((project / "ratings").glob("*/raters/ann.csv")).read_text("utf-8-sig").splitlines()[0]


async def test_a_run_is_started_watched_and_shown(project: Path):
    async with opened(project) as pages:
        run_id = await started(pages)
        page = await pages.get("/run", id=run_id)
        assert "starting" in page or 'id="run"' in page
        await ended(pages, run_id)
        assert pages.workbench.jobs.said(run_id) == ""
    found = read_summary(project / run_id)
    assert (found.state, found.done, found.models) == ("complete", 8, ["demo/A"])


async def test_the_budget_stops_a_run_which_is_then_resumed_within_another(project: Path):
    async with opened(project) as pages:
        run_id = await started(pages, budget="3 calls")
        await ended(pages, run_id)
        assert read_summary(project / run_id).state == "stopped at 3 of 8"
        pages.workbench.index._searched = -10.0
        assert "Go on" in await pages.get("/run", id=run_id)
        assert "Give a budget" in (await pages.post("/resume", 400, id=run_id, budget=""))[0]
        await pages.post("/resume", 303, id=run_id, budget="100 calls")
        await ended(pages, run_id)
    assert read_summary(project / run_id).state == "complete"


async def test_a_page_follows_a_run_whose_plan_is_not_stored_yet(project: Path, monkeypatch: pytest.MonkeyPatch):
    """Its file comes before its plan: read in between, the page called it damaged, and stayed so."""
    (project / "new").mkdir()
    Store(project / "new", create=True).close()
    async with opened(project) as pages:
        monkeypatch.setattr(pages.workbench.jobs, "is_ours", lambda run_id: run_id == "new")
        text = await pages.get("/run", id="new")
    assert "The run is starting" in text
    assert "data-reading" in text
    assert "Remove the folder" not in text


async def test_a_run_is_cancelled_and_what_is_done_is_kept(project: Path):
    async with opened(project) as pages:
        run_id = await started(pages, limit="100000", method="cot", budget="10M calls", benchmark="bbq_builtin")
        await until_stored(pages, run_id, project)
        await pages.post("/cancel", 303, id=run_id)
        assert not pages.workbench.jobs.is_ours(run_id)
        assert "not started here" in (await pages.post("/cancel", 400, id="first"))[0]


async def test_a_run_that_is_cancelled_before_any_answer_can_be_started_again(project: Path):
    async with opened(project) as pages:
        run_id = await started(pages, limit="100000", budget="10M calls")
        _, place = await pages.post("/cancel", 303, id=run_id)
        page = unescape(re.sub("<[^>]+>", "", await pages.get(place)))
        assert "Cancelled before any answer; nothing was kept. Start it again." in page
        assert "Not possible" not in page
    assert names(project) == ["first", "notes", "suite"]


async def test_runs_are_stopped_with_the_server(project: Path):
    async with opened(project) as pages:
        run_id = await started(pages, limit="100000", method="cot", budget="10M calls")
        await until_stored(pages, run_id, project)
        job = pages.workbench.jobs._jobs[run_id]
    assert job.process.returncode is not None


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"budget": ""}, "Give a budget"),
        ({"budget": "a lot"}, "is not a budget"),
        ({"model": "call/os.system"}, "is not configured"),
        ({"model": "mine/os.system"}, "is not configured"),
        ({"model": "openai/gpt?base_url=http://evil.example"}, "is not configured"),
        ({"model": "openai/gpt"}, "is not configured"),
        ({"model": "openai/odd?base_url=http://evil.example"}, "is not configured"),
        ({"model": "demo/A?base_url=http://evil.example"}, "is not configured"),
        ({"model": "demo/../../etc/passwd"}, "is not configured"),
        ({"model": "local//etc/model.gguf"}, "is not configured"),
        ({"model": "hf/some/path"}, "is not configured"),
        ({"model": "--config=/etc/passwd"}, "is not configured"),
        ({"judge": "call/os.system"}, "is not configured"),
        ({"benchmark": "./evil.py"}, "no benchmark"),
        ({"benchmark": "bbq_builtin:data=/etc"}, "no benchmark"),
        ({"method": "./evil.py"}, "no method"),
        ({"method": "default:templates=/etc"}, "no method"),
        ({"method": "closed_book"}, "does not serve"),
        ({"limit": "0"}, "limit"),
        ({"limit": "1e9"}, "limit"),
        ({"limit": "٣"}, "limit"),
    ],
)
async def test_a_page_can_ask_only_for_what_is_configured(project: Path, changes: dict[str, str], said: str):
    async with opened(project) as pages:
        for step in ("", "start"):
            text, _ = await pages.post("/start", 400, **ASKED | changes, step=step)
            assert said in text
    assert names(project) == ["first", "notes", "suite"]


@pytest.mark.usefixtures("project")
def test_models_are_offered_by_the_config_and_the_environment(monkeypatch: pytest.MonkeyPatch):
    assert "openai/priced" in offers.offered_models()
    assert not {"call/os.system", "openai/odd?base_url=http://evil.example"} & set(offers.offered_models())
    assert offers.offered_providers() == ["demo"]
    monkeypatch.setenv("OPENAI_API_KEY", "secret-value")
    assert offers.offered_providers() == ["demo", "openai"]
    assert offers.check_model("openai/gpt-4o-mini") == "openai/gpt-4o-mini"
    with pytest.raises(UsageError):
        offers.check_model("openai/")


async def test_keys_of_providers_never_reach_a_page(project: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_API_KEY", "secret-value-of-the-key")
    async with opened(project) as pages:
        assert "openai/NAME" in await pages.get("/start")
        for path in ("/", "/start", "/boards", "/history"):
            assert "secret-value" not in await pages.get(path)


async def test_looking_needs_a_key_and_starting_the_permission_admin(project: Path):
    reader, reader_hash = new_key()
    owner, owner_hash = new_key()
    keys = {"reader": KeyConfig(hash=reader_hash), "owner": KeyConfig(hash=owner_hash, may=("admin",))}
    async with opened(project, keys=keys) as pages:
        for key, expected in ((reader, 403), (owner, 200)):
            headers = {**HTML, "Authorization": f"Bearer {key}"}
            async with pages.client.get("/", headers=headers) as response:
                text = await response.text()
            assert response.status == 200
            form = {**ASKED, "token": text.partition('name="token" content="')[2].partition('"')[0]}
            async with pages.client.post("/start", data=form, headers=headers) as response:
                assert response.status == expected


async def test_another_site_cannot_start_a_run(project: Path):
    async with opened(project) as pages:
        form = {**ASKED, "step": "start"}
        async with pages.client.post("/start", data=form) as response:
            assert response.status == 403
        form["token"] = await pages.token()
        async with pages.client.post("/start", data=form, headers={"Origin": "http://evil.example"}) as response:
            assert response.status == 403
        async with pages.client.post("/start", data=form, headers={"Host": "evil.example"}) as response:
            assert response.status == 403
    assert names(project) == ["first", "notes", "suite"]
