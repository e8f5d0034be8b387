"""`evenhand judges attention`: a page and a file of numbers from an hf/ model."""

import csv
from pathlib import Path

import pytest

from support.tiny import make_model


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (("--model", "local/builtin"), "hf/ models only"),
        (("--model", "local"), "not a model spec"),
        (("--model", "hf/x", "--text", "age-1-biased"), "did you mean age-01-biased"),
        (("--model", "hf/x", "--text", "none.yaml"), "No such file"),
        (("--model", "hf/x", "--text", "wrong.yaml"), "the field answer is missing"),
        (("--model", "hf/x", "--out", "page.csv"), "should end in .html"),
        ((), "Missing option"),
    ],
)
def test_bad_input_is_one_sentence(cli, tmp_path: Path, arguments: tuple[str, ...], fault: str):
    (tmp_path / "wrong.yaml").write_text("question: Why?\n")

    result = cli("judges", "attention", *arguments)

    assert result.code == 2
    assert fault in result.err and len(result.err.strip().splitlines()) == 1
    assert not (tmp_path / "attention.html").exists()


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """A model with room for the whole prompt; most of its words are unknown to it."""
    pytest.importorskip("torch", reason="needs pip install 'evenhand[hf]'")
    pytest.importorskip("transformers", reason="needs pip install 'evenhand[hf]'")
    folder = tmp_path / "tiny"
    make_model(folder)
    config = folder / "config.json"
    config.write_text(config.read_text().replace('"max_position_embeddings": 64', '"max_position_embeddings": 512'))
    return folder


def test_page_and_numbers_of_a_text_of_ones_own(cli, tiny: Path, tmp_path: Path):
    (tmp_path / "mine.yaml").write_text("question: cat dog\nanswer: tree sun\n")

    result = cli(
        "judges", "attention", "--model", f"hf/{tiny}", "--text", "mine.yaml", "--layers", "--out", "out/page.html"
    )

    assert result.code == 0, result
    assert "competitor" in result.out and "page.csv" in result.out
    page = (tmp_path / "out/page.html").read_text(encoding="utf-8")
    assert all(f'id="{name}"' in page for name in ("own", "other", "competitor"))
    assert "Layer 2" in page
    with (tmp_path / "out/page.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {(row["framing"], row["layer"]) for row in rows} == {
        (framing, layer) for framing in ("own", "other", "competitor") for layer in ("mean", "1", "2")
    }
    mean = [float(row["attention"]) for row in rows if (row["framing"], row["layer"]) == ("own", "mean")]
    assert sum(mean) == pytest.approx(1, abs=1e-3)
