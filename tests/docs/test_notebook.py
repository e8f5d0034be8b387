"""The notebooks of the examples run from top to bottom in a real kernel, and are stored without outputs."""

from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).parents[2]


def load(name: str = "notebook") -> Any:
    return nbformat.read(ROOT / "examples" / f"{name}.ipynb", as_version=4)


@pytest.mark.parametrize("name", ["notebook", "paper"])
def test_it_is_stored_without_outputs(name: str):
    for cell in load(name).cells:
        assert cell.cell_type == "markdown" or (cell.outputs == [] and cell.execution_count is None)


# The kernel's own packages warn of what they will change.
@pytest.mark.filterwarnings("ignore")
def test_it_runs_and_shows_tables_charts_and_answers(tmp_path: Path):
    notebook = load()

    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()

    pages = [
        output.data["text/html"]
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
        if output.output_type == "execute_result" and "text/html" in output.data
    ]
    bars = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert any("<progress" in output.get("data", {}).get("text/html", "") for output in bars)
    assert len(pages) == 6
    assert sum("<svg" in page and "<table" in page for page in pages) == 2
    assert "I cannot answer that." in pages[4]
    assert (tmp_path / "report.html").is_file()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_paper_shows_its_claims_and_tables(tmp_path: Path):
    notebook = load("paper")

    NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()

    by_id = {cell.id: cell for cell in notebook.cells}
    assert "The loop makes the reasoning less biased" in by_id["claims"].outputs[0].text
    frames = [by_id[name].outputs[0].data["text/html"] for name in ("claims-frame", "tables")]
    assert all("<table" in frame for frame in frames)
    assert (tmp_path / "mabrf.html").is_file()
