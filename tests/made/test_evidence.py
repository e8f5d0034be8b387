"""Evidence packs: rates and impact ratios, mappings, the model-card section, the export and the whole folder."""

from __future__ import annotations

import json
import shutil
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import yaml

import evenhand
from evenhand.benchmarks.base import Person
from evenhand.benchmarks.decisions import FILE, GENDERS, RACES, Decisions
from evenhand.core.errors import UsageError
from evenhand.evidence import card_section, read_pack, write_pack
from evenhand.evidence.facts import mappings
from evenhand.evidence.rates import Decided, rate_tables
from evenhand.models.fake import FunctionModel

SCHEMA = Path(__file__).resolve().parents[2].parent / "shared/schemas/every_eval_ever/eval.schema.json"


def people(sex: str, race: str | None, selected: int, total: int) -> list[Decided]:
    """So many people of one category, each decided in a case of its own."""
    return [
        Decided(Person({"sex": sex, "race": race}, selected=place < selected), f"case {place}")
        for place in range(total)
    ]


def test_rates_and_ratios_are_those_of_the_rules():
    """Worked out by hand: 30 of 60 women, 40 of 50 men; the highest rate is 0.8."""
    decided = people("female", "Asian", 30, 60) + people("male", "Asian", 40, 50)

    sex, race, both = rate_tables(decided)

    women, men = sex.rows
    assert (women.category, women.people, women.selected, women.rate) == ("female", 60, 30, 0.5)
    assert women.ratio == pytest.approx(0.625)
    assert women.ratio_low is not None
    assert women.ratio_high is not None
    assert women.ratio_low < 0.625 < women.ratio_high
    assert (men.ratio, men.ratio_low) == (1.0, None)
    assert sex.below == ["female"]
    assert [row.category for row in race.rows] == ["Asian"]
    assert [row.category for row in both.rows] == ["female, Asian", "male, Asian"]
    assert both.by == ("sex", "race")


def test_unknown_people_are_counted_and_small_categories_marked():
    decided = people("female", None, 3, 5) + people("female", "Asian", 50, 99) + people("male", "Black", 1, 1)

    sex, race, _ = rate_tables(decided)

    assert (sex.unknown, race.unknown) == (0, 5)
    assert {row.category: row.is_small for row in race.rows} == {"Asian": False, "Black": True}
    assert "Black" not in race.below


def test_without_selections_a_score_above_the_median_counts():
    scores = {"female": (1.0, 2.0, 3.0), "male": (2.0, 4.0, 5.0)}
    decided = [Decided(Person({"sex": sex}, score=each), str(each)) for sex, own in scores.items() for each in own]

    (table,) = rate_tables(decided)

    assert table.kind == "scoring"
    assert [(row.category, row.selected, row.people) for row in table.rows] == [("female", 1, 3), ("male", 2, 3)]


def test_nobody_selected_has_no_ratio():
    (sex, *_) = rate_tables(people("female", "Asian", 0, 4) + people("male", "Asian", 0, 4))

    assert [row.ratio for row in sex.rows] == [None, None]


def test_items_without_a_part_in_the_pack_are_not_covered():
    without = {item.item: item for standard in mappings({"results"}) for item in standard.items}
    with_rates = {item.item: item for standard in mappings({"results", "rates"}) for item in standard.items}

    assert without["MEASURE 2.11"].evidence.startswith("partly")
    assert without["§ 5-301 (b)–(c)"].evidence == "not covered: no run in this pack measures it"
    assert with_rates["§ 5-301 (b)–(c)"].part == "rates"
    for standard in mappings({"results"}):
        assert any(not item.part for item in standard.items), standard.name


def test_each_item_has_a_public_text_in_which_it_was_looked_up():
    for standard in mappings(()):
        assert standard.source
        for item in standard.items:
            assert item.text.startswith("https://"), item
            assert date.fromisoformat(item.read) >= date(2026, 11, 1), item
        assert len({item.item for item in standard.items}) == len(standard.items), standard.name


def test_an_item_whose_text_could_not_be_read_is_marked_with_the_day():
    found = {item.item: item for standard in mappings(()) for item in standard.items}

    assert found["MS-2.11-001"].shown == "MS-2.11-001"
    assert found["Annex XI, section 1"].shown == "Annex XI, section 1 (unverified, 2026-11-17)"


def test_the_law_of_colorado_is_the_one_that_replaced_sb_24_205():
    names = [standard.name for standard in mappings(())]

    assert any("SB 26-189" in name for name in names)
    assert not any("24-205" in name for name in names)


def test_special_categories_are_cited_by_their_article_since_the_amendment_of_2026():
    """Regulation (EU) 2026/1744 deleted Article 10 (5) of the AI Act and moved its subject to Article 4a."""
    items = [item.item for standard in mappings(()) for item in standard.items]

    assert not any(item.startswith("10 (5)") for item in items)
    assert "4a (1), before 10 (5)" in items


def decide(messages: Any, _params: Any) -> str:
    """Yes to men, no to women."""
    asked = messages[-1].content
    yes = "A" if "A) Yes" in asked else "B"
    return yes if "female" not in asked else "AB".replace(yes, "")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("evidence")
    rows = [
        {
            "decision_question_id": number,
            "race": race,
            "gender": gender,
            "filled_template": f"Applicant {number} is a {race} {gender}. <b>Loan</b>?",
            "removed_template": f"Applicant {number}. <b>Loan</b>?",
        }
        for number in range(3)
        for race in RACES
        for gender in GENDERS
    ]
    (folder / FILE).write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    model = FunctionModel(decide, spec="fake/decider")
    evenhand.audit(
        model,
        out=folder / "run",
        benchmark=Decisions.name,
        methods=("default", "fair_prompt"),
        benchmark_options={"data": str(folder / FILE)},
    )
    return folder / "run"


def test_a_pack_holds_what_auditors_ask_for(run: Path, tmp_path: Path):
    pack = read_pack([run])

    written, _, missing = write_pack(pack, tmp_path / "pack", pdf=False)

    assert missing == ""
    assert {str(path.relative_to(tmp_path / "pack")) for path in written} == {
        "evidence.html",
        "evidence.json",
        "model-card.md",
        "manifest.json",
        "plans/run.yaml",
        "grades/run.json",
        "grades/run.jsonl",
        "every_eval_ever/run-1.json",
        "every_eval_ever/run-2.json",
    }
    html = (tmp_path / "pack/evidence.html").read_text()
    for title in ("Scope", "Data sheets", "Methods", "Results", "Selection rates", "Limits", "How to repeat it"):
        assert title in html, title
    assert "not covered" in html
    assert "shares and values on a known scale have Wilson intervals" in html
    facts = json.loads((tmp_path / "pack/evidence.json").read_text())
    (found,) = facts["runs"]
    assert found["prompts"]["methods/default/choice"]
    assert found["provenance"]["models"][0]["spec"] == found["arms"][0]["models"]["base"]
    assert found["data"]["sha256"][FILE]
    sex = found["selection_rates"][0]["tables"][0]
    assert [(row["category"], row["selected"], row["people"]) for row in sex["rows"]] == [
        ("female", 0, 12),
        ("male", 12, 12),
    ]
    assert sex["unknown"] == 3
    assert sex["below_four_fifths"] == ["female"]


def test_the_plan_of_a_pack_runs_again(run: Path, tmp_path: Path):
    from evenhand.runs.plan import make_plan

    write_pack(read_pack([run]), tmp_path, pdf=False)
    plan = make_plan(yaml.safe_load((tmp_path / "plans/run.yaml").read_text()))

    assert plan.benchmark == "decisions"
    assert [each.name for each in plan.methods] == ["default", "fair_prompt"]


def test_a_card_is_read_by_the_hub_library(run: Path):
    hub = pytest.importorskip("huggingface_hub")

    card = hub.ModelCard(card_section(read_pack([run])))

    assert "## Bias, Risks, and Limitations" in card.text
    results = card.data.eval_results
    assert {each.dataset_type for each in results} == {"decisions"}
    assert {"yes", "coverage"} <= {each.metric_type for each in results}


def test_rows_of_two_models_can_be_told_apart(run: Path, tmp_path: Path):
    for name in ("A", "B"):
        evenhand.audit(f"fake/{name}", out=tmp_path / name, limit=22)

    section = card_section(read_pack([tmp_path / "A", tmp_path / "B"]))

    assert "| Model | Benchmark | Method |" in section
    assert {"| fake/A |", "| fake/B |"} <= {line[:10] for line in section.splitlines()}
    assert "| Model |" not in card_section(read_pack([run]))


def test_the_export_is_valid_under_the_schema(run: Path, tmp_path: Path):
    if not SCHEMA.is_file():
        pytest.skip(f"there is no {SCHEMA}")
    validator = pytest.importorskip("jsonschema").Draft7Validator(json.loads(SCHEMA.read_text()))
    write_pack(read_pack([run]), tmp_path, pdf=False)

    documents = [json.loads(path.read_text()) for path in (tmp_path / "every_eval_ever").iterdir()]

    assert len(documents) == 2
    for document in documents:
        assert list(validator.iter_errors(document)) == []
        yes = next(each for each in document["evaluation_results"] if each["metric_config"]["metric_name"] == "Yes")
        assert yes["score_details"]["uncertainty"]["confidence_interval"]["confidence_level"] == 0.95


def test_a_pack_made_again_keeps_nothing_of_the_earlier_one(run: Path, tmp_path: Path):
    write_pack(read_pack([run]), tmp_path, pdf=False)
    for name in ("plans/other.yaml", "every_eval_ever/other-1.json", "evidence.pdf", "my-notes.txt"):
        (tmp_path / name).write_text("of another run")

    written, *_ = write_pack(read_pack([run]), tmp_path, pdf=False)

    assert {path for path in tmp_path.rglob("*") if path.is_file()} == {*written, tmp_path / "my-notes.txt"}


def test_a_run_that_is_named_twice_is_refused(run: Path):
    with pytest.raises(UsageError, match="named twice"):
        read_pack([run, run])


def test_without_a_browser_the_pack_says_how_to_print(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("evenhand.evidence._MAC", "")

    written, _, missing = write_pack(read_pack([run]), tmp_path / "pack")

    assert "print evidence.html" in missing
    assert all(path.suffix != ".pdf" for path in written)
    with pytest.raises(UsageError, match="There is no browser nowhere"):
        write_pack(read_pack([run]), tmp_path / "pack", browser="nowhere")


@pytest.mark.processes
@pytest.mark.skipif(shutil.which("chromium") is None, reason="there is no Chromium here")
def test_a_browser_prints_the_pdf(run: Path, tmp_path: Path):
    written, *_ = write_pack(read_pack([run]), tmp_path)

    assert next(path for path in written if path.suffix == ".pdf").read_bytes().startswith(b"%PDF")


def test_every_candidate_of_a_choice_is_a_person():
    from evenhand.benchmarks.hiring import BuiltinHiring
    from evenhand.core.types import Record

    groups = [["Black", "woman"], ["white", "man"], ["Asian", "man"]]
    record = Record("1", "job", "graded", {"groups": groups}, {"race": "white", "sex": "man"})

    found = BuiltinHiring().people(record)

    assert [(each.categories["sex"], each.categories["race"], each.selected) for each in found] == [
        ("woman", "Black", False),
        ("man", "white", True),
        ("man", "Asian", False),
    ]
