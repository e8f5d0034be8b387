"""Results as a notebook shows them: short texts, escaped tables and charts, data frames, the report."""

import re
import shutil
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hostile import ATTACK, LITERAL, poisoned
from sample_paper import page
from sample_study import study

import evenhand
from evenhand.core.errors import UnknownNameError, UsageError
from evenhand.core.progress import Progress
from evenhand.core.types import Usage
from evenhand.guards.types import Check, CheckList, Guarded
from evenhand.papers.making import PaperResult
from evenhand.show.notebook import Study, study_of
from evenhand.studies.export import TABLES
from support.report_data import sample_data

GUARDED = Guarded(
    "Kind words.",
    {"role": "assistant"},
    "stop",
    "revised",
    why=("toxicity",),
    first="Rude words.",
    before=(Check("toxicity", 0.9, 0.5, passed=False, words="It insults."),),
    after=(Check("toxicity", 0.1, 0.5, passed=True), Check("bias", None, 0.5, passed=False, problem="no answer")),
    checks=CheckList(("toxicity (builtin 2.3)", "bias (a judge)"), ()),
)


class Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.attributes: set[str] = set()
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.names.append(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def shown(result: Any) -> Tags:
    text = result._repr_html_()
    text.encode()  # what cannot be encoded would break the notebook's message
    return Tags(text)


def sample() -> Study:
    return study_of(study(), [], ())


def test_a_study_is_a_few_lines_with_the_headline_of_every_arm():
    lines = repr(sample()).splitlines()

    assert lines[1].startswith("Worse: fair_prompt is wrong in 21 % of the cases")
    assert len(lines) == 3 + len(sample().arms)
    assert all(re.search(r"\d \[.*\], n = \d", line) for line in lines[3:])


def test_a_study_shows_verdicts_a_chart_and_a_table():
    found = shown(sample())

    assert {"ul", "svg", "circle", "table"} <= set(found.names)
    assert found.names.count("circle") == len(sample().arms)
    assert [text for text in found.texts if text.startswith(" cot gives") or text.startswith(" fair_prompt is")] == [
        f" {finding.text}. " for finding in sample().findings
    ]
    assert [text for text in found.texts if text.endswith(":")] == ["✕ Worse:", "✓ Better:"]
    assert "88.1 [85.5, 90.7]" in found.texts
    assert not any(name.startswith("on") for name in found.attributes)


def test_a_figure_has_every_arm_and_is_saved_for_a_paper(tmp_path: Path):
    figure = sample().figure("accuracy_ambig")

    saved = figure.save(tmp_path / "figure.svg").read_text(encoding="utf-8")

    assert figure._repr_svg_().startswith("<svg")
    assert saved.count("<circle") == len(sample().arms)
    assert "Accuracy, ambiguous" in saved
    assert "currentColor" not in saved
    with pytest.raises(UsageError, match=r"saved as \.svg or \.png"):
        figure.save(tmp_path / "figure.gif")
    with pytest.raises(UsageError, match="no metric named 'accuracy'"):
        sample().figure("accuracy")


def test_a_figure_is_saved_as_png(tmp_path: Path):
    pytest.importorskip("resvg_py", reason="the extra `figures` is not installed")

    saved = sample().figure().save(tmp_path / "figure.png", width=800).read_bytes()

    assert saved.startswith(b"\x89PNG")
    assert int.from_bytes(saved[16:20], "big") == 800


@pytest.mark.parametrize("table", ["metrics", "effects"])
def test_latex_has_every_row_and_escapes_what_latex_reads(table: str):
    text = study_of(replace(study(), title="50 % of a_b & c"), [], ()).to_latex(table, label="tab:bias")

    rows = text.partition("midrule")[2].partition("\\bottomrule")[0].strip().splitlines()
    assert all(row.endswith(r"\\") for row in rows)
    assert len(rows) >= len(sample().arms) - 1
    assert re.search(r"(?<!\\)[%&_#]", text.replace(" & ", "")) is None
    assert "−" not in text
    assert r"\label{tab:bias}" in text


@pytest.mark.parametrize("table", ["metrics", "effects"])
def test_latex_compiles(table: str, tmp_path: Path):
    compiler = shutil.which("pdflatex") or shutil.which("tectonic")
    if compiler is None:
        pytest.skip("neither pdflatex nor tectonic is installed")
    head = "\\documentclass{article}\\usepackage{booktabs}\\begin{document}\n"
    (tmp_path / "t.tex").write_text(f"{head}{sample().to_latex(table)}\\end{{document}}\n", encoding="utf-8")

    done = subprocess.run([compiler, "t.tex"], cwd=tmp_path, capture_output=True, text=True, input="", check=False)

    assert done.returncode == 0, done.stdout
    assert (tmp_path / "t.pdf").exists()


def test_an_undefined_headline_has_no_mark():
    arms = [replace(arm, estimates=[replace(e, value=None, low=None, high=None) for e in arm.estimates]) for arm in
            sample().arms]  # fmt: skip

    found = shown(replace(sample(), arms=[*sample().arms[:1], *arms[1:]]))

    assert found.names.count("circle") == 1
    assert "svg" not in shown(replace(sample(), arms=arms)).names


@pytest.mark.parametrize(
    "result",
    [
        study_of(poisoned(study()), [], ()),
        PaperResult(poisoned(page()), Path(f"p{ATTACK[:9]}"), ()),
        poisoned(replace(GUARDED, action="blocked")),
        Progress(2, 1, stopped=ATTACK),
    ],
    ids=lambda each: type(each).__name__,
)
def test_no_text_breaks_out(result: Any):
    found = shown(result)

    assert not {"script", "img"} & set(found.names)
    assert not any(name.startswith("on") for name in found.attributes)
    assert any(LITERAL in text for text in found.texts)
    assert "\u202e" not in repr(result) and "\x1b" not in repr(result)


def test_a_guarded_answer_says_what_became_of_it():
    assert repr(GUARDED) == "Guarded(revised (toxicity): 'Kind words.')"
    assert GUARDED.verdicts == [
        "The answer was revised: toxicity.",
        "toxicity is 0.1 (limit 0.5), which passes.",
        "bias has no score: no answer.",
    ]
    assert {"Kind words.", "Rude words.", "It insults."} <= set(shown(GUARDED).texts)
    assert list(GUARDED.to_pandas()["stage"]) == ["before", "after", "after"]


def test_progress_is_one_line():
    progress = Progress(4, 3, spent=Usage(calls=3, prompt_tokens=1200), stopped="the budget is used up")
    progress.statuses["graded"] = 3

    said = "3 of 4 samples, 3 graded, 3 calls, 1,200 tokens, $0.00; stopped: the budget is used up"
    assert repr(progress) == f"Progress({said})"
    assert shown(progress).texts[-1].strip() == said


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Study:
    folder = tmp_path_factory.mktemp("runs")
    evenhand.audit(lambda prompt: "A", out=folder / "one", limit=4)
    evenhand.audit("fake/B", out=folder / "two", limit=4)
    return evenhand.compare(folder / "one", folder / "two")


class TestOfRuns:
    @pytest.mark.parametrize("kind", ["pandas", "polars"])
    def test_every_table_is_a_data_frame(self, found: Study, kind: str):
        frames = {table: getattr(found, f"to_{kind}")(table) for table in TABLES}

        assert [len(frames[name]) for name in ("outcomes", "turns", "evidence")] == [8, 8, 0]
        assert {*frames["outcomes"]["run"]} == {"one", "two"}
        assert len(getattr(found, f"to_{kind}")()) == len(frames["metrics"]) > 4
        assert {"metric", "difference", "p_value"} <= {*frames["effects"].columns}

    def test_a_package_that_is_not_there_is_named_with_its_command(self, found: Study, monkeypatch: Any):
        monkeypatch.setitem(sys.modules, "polars", None)

        with pytest.raises(UsageError, match=r"^to_polars needs polars, which is not installed: pip install polars$"):
            found.to_polars()

    def test_a_table_that_is_not_there_is_told(self, found: Study):
        with pytest.raises(UsageError, match="no table 'metric'; it has outcomes, turns, metrics"):
            found.to_pandas("metric")

    def test_the_report_is_written_with_its_samples(self, found: Study, tmp_path: Path):
        text = found.save(tmp_path / "new" / "report.html", samples=3).read_text(encoding="utf-8")

        samples = {row["sample"] for row in found.rows("outcomes")}
        shown = {each["id"] for each in sample_data(text)["samples"]}
        assert (len(samples), len(shown)) == (4, 3)
        assert shown < samples

    @pytest.mark.parametrize("name", ["report", "report.pdf", "."])
    def test_a_report_is_an_html_file(self, found: Study, name: str, tmp_path: Path):
        with pytest.raises(UsageError, match=r"A report is an HTML file"):
            found.save(tmp_path / name)


class TestPaper:
    def test_its_cells_are_rows_and_its_page_can_be_saved_elsewhere(self, tmp_path: Path):
        (tmp_path / "index.html").write_text("<p>page</p>", encoding="utf-8")
        made = PaperResult(page(), tmp_path / "index.html", ())

        assert repr(made).startswith(f"PaperResult({page().title}: {len(page().tables)} table")
        assert made.save(tmp_path / "copy.html").read_text(encoding="utf-8") == "<p>page</p>"
        assert len(made.to_pandas()) == sum(
            len(row.cells) for table in page().tables for grid in table.grids for row in grid.rows
        )
        assert made.verdicts == [sentence for table in page().tables for sentence in table.sentences]
        assert "table" in shown(made).names

    def test_a_table_is_named_by_its_id(self):
        made = PaperResult(page(), Path("index.html"), ())

        assert {row["table"] for row in made.rows(page().tables[0].id)} == {page().tables[0].id}
        with pytest.raises(UnknownNameError, match="no table of this paper named 'table9'"):
            made.to_pandas("table9")
