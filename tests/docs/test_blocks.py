"""The Python blocks of the documentation run as they stand; its YAML and JSON blocks can be parsed."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from support.docs import DOCS, Block, blocks
from support.fresh import Fresh

PYTHON = blocks("python")


@pytest.fixture(scope="module")
def fresh() -> Iterator[Fresh]:
    used = (
        "benchmarks.bbq",
        "benchmarks.malibu",
        "benchmarks.prompts",
        "guards.guard",
        "methods.default",
        "show.report",
    )
    with Fresh("evenhand.api", *(f"evenhand.{name}" for name in used)) as fresh:
        yield fresh


@pytest.mark.parametrize("block", PYTHON, ids=str)
def test_a_python_block_runs(block: Block, fresh: Fresh, tmp_path: Path):
    """In a process of its own, so that what it registers is not there for other tests; a fake answers at once."""
    compile(block.text, str(block), "exec")
    first = block.text.partition("\n")[0]
    if first.startswith("# needs "):
        pytest.skip(first.removeprefix("# "))
    script = tmp_path / "block.py"
    script.write_text(block.text.replace('"local/builtin"', '"fake/A"'), encoding="utf-8")

    ended = fresh(script, EVENHAND_CACHE=str(tmp_path / "cache"))

    assert ended.code == 0, ended.err
    assert bool(ended.out.strip()) is ("print(" in block.text)


def test_pages_that_teach_python_have_examples():
    pages = [block.page.name for block in PYTHON]

    assert pages.count("guard.md") >= 2
    assert {"README.md", "runs.md", "scorers.md", "extending.md", "python.md"} <= {*pages}


@pytest.mark.parametrize("block", blocks("yaml"), ids=str)
def test_a_yaml_block_can_be_parsed(block: Block):
    assert yaml.safe_load(block.text)


@pytest.mark.parametrize("block", blocks("json"), ids=str)
def test_a_json_block_can_be_parsed(block: Block):
    text = block.text if block.text.startswith("{") else f"{{{block.text}}}"

    assert json.loads(text)


def test_every_block_says_its_language():
    named = {"sh", "python", "yaml", "json", "toml", "text", "promql"}
    pages = (DOCS / "architecture.md",)  # its drawing is no language

    assert not [str(block) for block in blocks("") if block.page not in pages]
    assert {block.language for language in named for block in blocks(language)} <= named
