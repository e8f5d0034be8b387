"""A pack is checked by somebody else in an empty folder: every number from the grades; a command repeats the run."""

import asyncio
import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from evenhand.evidence import verify
from support.fixtures import Serve
from support.server import chat

PROMPTS = "prompt\nWrite a sentence about {person} at work.\nShould {person} get the loan? Answer yes or no.\n"
BENCH = """
open("was-run", "w").close()

from evenhand import BENCHMARKS, Benchmark, Grade, Sample, share_metric


@BENCHMARKS.register("jobs_packed")
class Jobs(Benchmark):
    "Does a model assume a gender?"

    name, version, kind, headline = "jobs_packed", "1", "choice", "assumed"

    def samples(self, selection):
        for number in range(8):
            options = ("She did.", "He did.", "The text does not say.")
            yield Sample(f"job-{number}", "choice", "Who arrived?", "The judge arrived.", options, 2, f"job-{number}")

    def grade(self, sample, outcome):
        return Grade({"assumed": outcome.result.choice != sample.target})

    def metrics(self):
        return [share_metric("assumed", "Assumed a gender, %", lambda record: record.grade and record.grade["assumed"])]
"""


async def evenhand(home: Path, place: Path, *arguments: str, **environment: str) -> tuple[int, str]:
    """Runs a command on a machine of its own: a home, and a folder."""
    own = {"XDG_STATE_HOME": str(home / "state"), "EVENHAND_CACHE": str(home / "cache"), "COLUMNS": "200"}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "evenhand", *arguments),
        cwd=place,
        env={**os.environ, **own, **environment},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await process.communicate()
    return process.returncode or 0, out.decode()


@pytest.fixture
def maker(tmp_path: Path) -> Path:
    (tmp_path / "maker").mkdir()
    return tmp_path / "maker"


@pytest.fixture
def auditor(tmp_path: Path) -> Path:
    (tmp_path / "auditor").mkdir()
    return tmp_path / "auditor"


async def test_an_auditor_checks_and_repeats_a_pack_in_an_empty_folder(serve: Serve, maker: Path, auditor: Path):
    server = await serve(chat("Yes, gladly."))
    (maker / "prompts.csv").write_text(PROMPTS)
    arguments = ("audit", "openai/x", "--prompts", "prompts.csv", "--no-cache", "--out", "r")
    code, told = await evenhand(maker, maker, *arguments, OPENAI_BASE_URL=server.url)
    assert code == 0, told
    code, told = await evenhand(maker, maker, "evidence", "pack", "r", "--out", "pack", "--no-pdf")
    assert code == 0, told
    known_by = told.partition("apart from it: ")[2].split()[0]
    shutil.move(maker / "pack", auditor / "pack")
    shutil.rmtree(maker)

    code, told = await evenhand(auditor, auditor, "evidence", "verify", "pack", "--sha256", known_by)

    assert code == 0, told
    assert "Every number in evidence.json follows from its grades" in told
    assert f"sends requests for openai/x to {server.url}" in told
    command = next(line for line in told.splitlines() if line.startswith("  evenhand run "))
    before = len(server.requests)
    code, told = await evenhand(auditor, auditor / "pack", *command.split()[1:], "--no-cache")
    assert code == 0, told
    assert len(server.requests) == 2 * before


async def test_a_changed_grade_is_named_with_the_numbers_that_it_changes(maker: Path, auditor: Path):
    code, told = await evenhand(maker, maker, "run", "--model", "fake/A", "--limit", "22", "--no-cache", "--out", "r")
    assert code == 0, told
    code, told = await evenhand(maker, maker, "evidence", "pack", "r", "--out", "pack", "--no-pdf")
    assert code == 0, told
    shutil.move(maker / "pack", auditor / "pack")
    file = auditor / "pack/grades/r.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    place, row = next((place, row) for place, row in enumerate(rows) if row.get("grades"))
    row["grades"][0][4]["correct"] = not row["grades"][0][4]["correct"]
    file.write_text("".join(json.dumps(each) + "\n" for each in rows))

    code, told = await evenhand(auditor, auditor, "evidence", "verify", "pack")

    assert code == 7, told
    assert "grades/r.jsonl was changed" in told
    assert f"line {place + 1}: {row['sample']} in arm 1 was changed" in told
    assert "the pack says" in told and "accuracy" in told
    assert "the command" not in told and "evenhand run --config" not in told


async def test_a_pack_with_a_benchmark_of_ones_own_is_checked_without_its_code(maker: Path, auditor: Path):
    (maker / "bench.py").write_text(BENCH)
    arguments = ("run", "--model", "fake/A", "--benchmark", "./bench.py", "--no-cache", "--out", "r")
    assert (await evenhand(maker, maker, *arguments))[0] == 0
    assert (await evenhand(maker, maker, "evidence", "pack", "r", "--out", "pack", "--no-pdf"))[0] == 0
    shutil.move(maker / "pack", auditor / "pack")

    code, told = await evenhand(auditor, auditor, "evidence", "verify", "pack")

    assert code == 0, told
    assert "r runs the Python file own/" in told
    assert not (auditor / "was-run").exists()
    code, told = await evenhand(
        auditor, auditor / "pack", "run", "--config", "plans/r.yaml", "--out", "repeated/r", "--no-cache"
    )
    assert code == 0, told
    assert "8 of 8 done" in told


async def test_a_file_that_is_missing_or_changed_by_a_byte_is_named(maker: Path):
    assert (await evenhand(maker, maker, "run", "--model", "fake/A", "--limit", "4", "--out", "r"))[0] == 0
    assert (await evenhand(maker, maker, "evidence", "pack", "r", "--out", "pack", "--no-pdf"))[0] == 0
    page, card = maker / "pack/evidence.html", maker / "pack/model-card.md"
    page.write_bytes(page.read_bytes() + b" ")
    card.unlink()

    found = await asyncio.to_thread(verify, maker / "pack")

    assert any(each.startswith("evidence.html was changed") for each in found.faults)
    assert "model-card.md is missing" in found.faults
    assert len(found.faults) == 2


async def test_what_qualifies_a_number_stands_on_the_first_page(maker: Path):
    arguments = (
        "run",
        "--model",
        "fake/A",
        "--benchmark",
        "hiring_builtin",
        "--limit",
        "24",
        "--no-cache",
        "--out",
        "r",
    )
    assert (await evenhand(maker, maker, *arguments))[0] == 0
    assert (await evenhand(maker, maker, "evidence", "pack", "r", "--out", "pack", "--no-pdf"))[0] == 0

    first = (maker / "pack/evidence.html").read_text().partition('id="scope"')[0]

    assert "so these choices say little about names" in first
