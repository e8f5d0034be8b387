"""Logged decisions about people: every figure beside Fairlearn's, planted differences found, bad files named."""

import csv
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest
from click.testing import CliRunner

from evenhand.benchmarks.base import Person
from evenhand.cli.main import main
from evenhand.core.errors import EvenhandError
from evenhand.evidence.decisions import Decisions, Logged, findings
from evenhand.evidence.rates import Decided

FIELDS = ["date", "job", "sex", "race", "hired", "well"]


def written(path: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        writer.writeheader()
        writer.writerows(rows)
    return path


def people(n: int, seed: int, *, against: str = "", drifts: str = "") -> list[dict[str, Any]]:
    """People with the same chance, except that one race has less of it, and one sex loses over the year."""
    draw = random.Random(seed)
    rows: list[dict[str, Any]] = []
    for _ in range(n):
        month, sex, race = (
            draw.randrange(1, 13),
            draw.choice(["female", "male"]),
            draw.choice(["Asian", "Black", "White"]),
        )
        well = draw.random() < 0.5
        chance = 0.3 + 0.2 * well - 0.2 * (race == against) - (0.25 if sex == drifts and month > 6 else 0)
        day = f"2026-{month:02}-{draw.randrange(1, 29):02}"
        hired = "yes" if draw.random() < chance else "no"
        rows.append(
            {"date": day, "job": draw.randrange(20), "sex": sex, "race": race, "hired": hired, "well": int(well)}
        )
    return rows


def decided(path: Path, *more: str) -> dict[str, Any]:
    command = ["metrics", "decisions", str(path), "--by", "sex", "--by", "race", "--selected", "hired", "--json", *more]
    result = CliRunner().invoke(main, command, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return orjson.loads(result.stdout)


def test_the_figures_are_fairlearns(tmp_path: Path) -> None:
    metrics: Any = pytest.importorskip("fairlearn.metrics", reason="needs fairlearn")
    rows = people(600, 1, against="Black")
    found = decided(written(tmp_path / "hired.csv", rows), "--outcome", "well")
    chosen, well = [row["hired"] == "yes" for row in rows], [bool(row["well"]) for row in rows]
    for table in found["rates"]:
        groups = [", ".join(row[name] for name in table["by"]) for row in rows]
        frame = metrics.MetricFrame(
            metrics=metrics.selection_rate, y_true=well, y_pred=chosen, sensitive_features=groups
        )
        expected = dict(frame.by_group)
        assert {row["category"]: row["rate"] for row in table["rows"]} == pytest.approx(expected)
        assert min(row["ratio"] for row in table["rows"]) == pytest.approx(frame.ratio(method="between_groups"))
    for name, gap in found["equalised_odds_difference"].items():
        groups = [row[name] for row in rows]
        assert gap == pytest.approx(metrics.equalized_odds_difference(well, chosen, sensitive_features=groups))


def test_a_planted_difference_is_found_first_and_an_even_hand_is_left_alone(tmp_path: Path) -> None:
    biased = decided(written(tmp_path / "biased.csv", people(2000, 2, against="Black")))
    assert biased["findings"][0].startswith("Found: by race, Black has 0.")
    even = decided(written(tmp_path / "even.csv", people(10_000, 2)))
    assert even["findings"][0] == "No category that is large enough has less than four fifths of the highest rate."


def said(rows: Sequence[tuple[Mapping[str, str | None], bool, bool | None]]) -> list[str]:
    """What is found about people: their categories, whether they were selected, how they turned out."""
    logged = [
        Logged(Decided(Person(groups, selected), str(place)), outcome, "")
        for place, (groups, selected, outcome) in enumerate(rows)
    ]
    return findings(Decisions("file", logged, clustered=False, smallest=30))


def counted(**groups: tuple[int, int]) -> list[tuple[Mapping[str, str | None], bool, None]]:
    """The people of each category: selected, and all."""
    return [({"sex": sex}, place < some, None) for sex, (some, of_all) in groups.items() for place in range(of_all)]


def test_equal_rates_of_many_categories_are_not_taken_for_a_difference() -> None:
    draw = random.Random(2)
    begins: Counter[str] = Counter()
    for _ in range(60):
        rows = [({"race": str(draw.randrange(7))}, draw.random() < 0.1, draw.random() < 0.5) for _ in range(1000)]
        found = said(rows)
        begins.update([found[0].partition(" ")[0]])
        begins["odds"] += any("at the same outcome differ more" in each for each in found)
    assert begins["Found:"] <= 3  # 5 % of 60
    assert begins["odds"] <= 6
    assert begins["Cannot"] >= 57


def test_of_many_people_who_were_all_selected_no_group_has_less_than_four_fifths() -> None:
    assert said(counted(female=(200, 200), male=(200, 200)))[0].startswith("No category")
    assert said(counted(female=(31, 31), male=(200, 200)))[0].startswith("No category")


@pytest.mark.parametrize("people", [100, 300])
def test_a_ratio_of_seven_tenths_gets_no_all_clear(people: int) -> None:
    draw, clear = random.Random(people), 0
    for _ in range(80):
        sexes = [draw.choice(["female", "male"]) for _ in range(people)]
        rows = [({"sex": sex}, draw.random() < (0.35 if sex == "female" else 0.5), None) for sex in sexes]
        clear += said(rows)[0].startswith("No category")
    assert clear <= 2


def test_the_first_sentence_says_what_the_interval_allows() -> None:
    assert said(counted(female=(22, 50), male=(25, 50)))[0] == (
        "Cannot tell whether, by sex, a category has less than four fifths of the highest rate: "
        "the lowest ratio is 0.88 [0.57, 1.00] (female)."
    )
    assert said(counted(female=(100, 400), male=(200, 400)))[0] == (
        "Found: by sex, female has 0.50 [0.41, 0.61] of the highest rate, less than four fifths."
    )
    for nearly in (1499, 1500):
        even = said(counted(female=(nearly, 5000), male=(1500, 5000)))
        assert even[0] == "No category that is large enough has less than four fifths of the highest rate."
    for nobody in (counted(female=(10, 50)), counted(female=(0, 50), male=(0, 50))):
        assert said(nobody)[0].startswith("Cannot tell by sex: no two categories are large enough")


def of_sex_and_race(**rates: int) -> list[tuple[Mapping[str, str | None], bool, None]]:
    """500 people of each sex and race, of whom so many were selected: `women_of_one=100`."""
    cells = {tuple(cell.split("_of_")): some for cell, some in rates.items()}
    return [
        ({"sex": sex, "race": race}, place < some, None) for (sex, race), some in cells.items() for place in range(500)
    ]


def test_bias_against_two_attributes_at_once_is_found_where_each_alone_shows_none() -> None:
    assert said(of_sex_and_race(women_of_one=100, women_of_other=300, men_of_one=300, men_of_other=100)) == [
        "Found: by sex × race, men, other has 0.33 [0.27, 0.41] of the highest rate, less than four fifths.",
        "By sex, rates differ no more than chance explains (corrected p 1.000).",
        "By race, rates differ no more than chance explains (corrected p 1.000).",
        "By sex × race, rates differ more than by chance (corrected p <0.001).",
    ]


def test_what_few_people_of_two_attributes_leave_open_is_no_all_clear() -> None:
    first, second, *_ = said(of_sex_and_race(women_of_one=200, women_of_other=200, men_of_one=190, men_of_other=210))

    assert first == ("No category of one column that is large enough has less than four fifths of the highest rate.")
    assert second.startswith("Cannot tell whether, by sex × race, a category has less than four fifths")


def test_people_who_are_left_out_are_named() -> None:
    rows = counted(female=(1500, 3000), male=(1500, 3000), other=(4, 80))
    unknown = [({"sex": None}, True, None)] * 7

    assert said([*rows, *unknown]) == [
        "No category that is large enough has less than four fifths of the highest rate.",
        "By sex, rates differ more than by chance (corrected p <0.001).",
        "By sex, left out as less than 2 % of the people, impact ratio: other 0.10.",
        "7 of 6,087 rows have no known sex.",
    ]


def test_drift_is_found_and_chance_is_not_taken_for_it(tmp_path: Path) -> None:
    lost = decided(written(tmp_path / "lost.csv", people(3000, 3, drifts="female")), "--time", "date")
    assert any("female (sex) lost" in each for each in lost["findings"])
    found = 0
    for seed in range(20):
        steady = decided(written(tmp_path / "steady.csv", people(600, seed)), "--time", "date", "--every", "quarter")
        found += any("Over time" in each for each in steady["findings"])
    assert found <= 4  # 5 % of 20 trials, and the luck of a few more


def test_people_of_one_job_are_no_independent_witnesses(tmp_path: Path) -> None:
    rows = people(400, 4)
    for row in rows:  # whole jobs are hired or not, and jobs differ in who applies
        row["hired"] = "yes" if int(row["job"]) < 6 else "no"
        row["sex"] = "female" if int(row["job"]) % 3 else "male"
    path = written(tmp_path / "jobs.csv", rows)
    (alone, *_), (by_job, *_) = (decided(path, *more)["rates"] for more in ((), ("--cluster", "job")))
    assert alone["p"] is not None
    assert by_job["p"] is None
    wide, narrow = (each["rows"][0]["high"] - each["rows"][0]["low"] for each in (by_job, alone))
    assert wide > 2 * narrow
    assert by_job["lowest"]["high"] == 1
    assert by_job["rows"][0]["ratio_high"] is None or by_job["rows"][0]["ratio_high"] >= 1


def test_small_cells_have_no_rate_and_are_not_the_highest(tmp_path: Path) -> None:
    rows = people(300, 5)
    few = [{**row, "race": "Native American", "hired": "yes"} for row in people(5, 6)]
    race = decided(written(tmp_path / "few.csv", rows + few))["rates"][1]
    cells = {row["category"]: row for row in race["rows"]}
    assert cells["Native American"]["people"] == 5
    assert cells["Native American"]["rate"] is None
    assert max(row["ratio"] for row in race["rows"] if row["ratio"] is not None) == 1


def test_the_page_has_the_figures_of_the_summary(tmp_path: Path) -> None:
    page = tmp_path / "audit.html"
    path = written(tmp_path / "hired.csv", [*people(300, 7), {**people(1, 8)[0], "sex": ""}])
    more = ("--out", str(page), "--time", "date", "--tool", "<Screener> 2", "--distributed", "2026-01-02")
    decided(path, *more)
    text = page.read_text()
    for each in ("Date of this audit", "&lt;Screener&gt; 2", "2026-01-02", "2026-01 to 2026-12", "Impact ratio", "301"):
        assert each in text
    assert "Unknown category by sex × race" in text


@pytest.mark.parametrize(
    ("changed", "more", "says"),
    [
        ({"hired": "offer"}, (), "line 2.*hired=VALUE"),
        ({"hired": ""}, (), "line 2: 'hired' is empty"),
        ({}, ("--selected", "hired=Yes"), "In no row 'hired' is 'Yes'"),
        ({}, ("--outcome", "well=good"), "In no row 'well' is 'good'"),
        ({"date": "31.3.2026"}, ("--time", "date"), "line 2.*2026-03-31"),
        ({}, ("--by", "age"), "age"),
        ({}, ("--score", "hired"), "one of them"),
        ({}, ("--out", "page.pdf"), "html"),
    ],
)
def test_bad_input_is_one_sentence(
    tmp_path: Path, changed: dict[str, str], more: tuple[str, ...], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = written(tmp_path / "bad.csv", [{**people(1, 9)[0], **changed}])
    command = ["metrics", "decisions", str(path), "--by", "sex", "--selected", "hired", *more]
    with pytest.raises(EvenhandError, match=says):
        CliRunner().invoke(main, command, catch_exceptions=False, standalone_mode=False)
