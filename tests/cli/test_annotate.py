"""`evenhand annotate`: sheets that give nothing away, and ratings that come back as numbers or as a clear complaint."""

import csv
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from evenhand.core.types import Message, Params
from evenhand.models.base import PROVIDERS
from evenhand.models.fake import FunctionModel

LIMIT = 6
RUN = ("run", "--model", "stub/one", "--benchmark", "opinions", "--scorer", "opinion:fake/x", "--limit", str(LIMIT))

Rate = Callable[[str, int], Mapping[str, Any]]
"""(arm, number of the rater) → ratings by scale."""


@pytest.fixture
def run(cli: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    """A stored run of two arms on six questions."""

    def reply(messages: Sequence[Message], _params: Params) -> str:
        return "=1+1 is fair" if messages[0].role == "user" else "All alike,\n“everybody”."

    monkeypatch.setitem(PROVIDERS._things, "stub", lambda *_: FunctionModel(reply, spec="stub/one"))
    assert cli(*RUN, "--method", "default", "--method", "fair_prompt", "--out", "o").code == 0
    return "o"


def key(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "key.json").read_text(encoding="utf-8"))


def sheet(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file))


def fill(folder: Path, rate: Rate, *, delimiter: str = ",") -> None:
    """Fill all sheets as raters would."""
    arms = {name: about["arm"] for name, about in key(folder)["items"].items()}
    for number, path in enumerate(sorted((folder / "raters").glob("*.csv")), 1):
        rows = [{**row, **rate(arms[row["id"]], number)} for row in sheet(path)]
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]), delimiter=delimiter)
            writer.writeheader()
            writer.writerows(rows)


def alike(arm: str, _rater: int) -> Mapping[str, Any]:
    return {"BS": 60, "CE": 90, "LS": 80} if arm == "default" else {"BS": 20, "CE": 90, "LS": 10}


def test_every_rater_gets_all_answers_in_an_order_of_its_own(cli: Any, run: str, tmp_path: Path):
    result = cli("annotate", "export", run, "--out", "r", "--raters", "3")

    assert result.code == 0
    assert "12 answers (6 questions × 2 arms), 3 sheets" in result.out
    sheets = [sheet(path) for path in sorted((tmp_path / "r" / "raters").glob("*.csv"))]
    orders = [[row["id"] for row in rows] for rows in sheets]
    assert len(sheets) == 3
    assert {tuple(sorted(order)) for order in orders} == {tuple(sorted(key(tmp_path / "r")["items"]))}
    assert len({tuple(order) for order in orders}) == 3
    # A spreadsheet would save 12e345 as another number.
    assert all(name.isalpha() for name in orders[0])
    assert {row["BS"] + row["CE"] + row["LS"] for row in sheets[0]} == {""}


def test_what_is_handed_out_names_no_arm_and_no_model(cli: Any, run: str, tmp_path: Path):
    cli("annotate", "export", run, "--out", "r")

    handed = "".join(path.read_text(encoding="utf-8") for path in (tmp_path / "r" / "raters").iterdir())
    assert all(word not in handed for word in ("default", "fair_prompt", "stub", "fake", "age/"))
    assert all(word in handed for word in ("BS", "Bias score".lower(), "lower is better"))


def test_no_answer_is_a_formula(cli: Any, run: str, tmp_path: Path):
    cli("annotate", "export", run, "--out", "r")

    answers = {row["answer"] for row in sheet(tmp_path / "r" / "raters" / "rater-1.csv")}
    assert answers == {"'=1+1 is fair", "All alike,\n“everybody”."}


def test_the_same_seed_gives_the_same_folder(cli: Any, run: str, tmp_path: Path):
    for name, seed in (("a", "0"), ("b", "0"), ("c", "1")):
        cli("annotate", "export", run, "--out", name, "--seed", seed, "--limit", "4")

    a, b, c = (
        {path.name: path.read_bytes() for path in (tmp_path / name).rglob("*") if path.is_file()} for name in "abc"
    )
    assert a == b
    assert a["key.json"] != c["key.json"]
    assert key(tmp_path / "a")["samples"] == 4


@pytest.mark.parametrize("delimiter", [",", ";"])
def test_ratings_come_back_by_arm_with_agreement(cli: Any, run: str, tmp_path: Path, delimiter: str):
    cli("annotate", "export", run, "--out", "r", "--raters", "3")
    fill(tmp_path / "r", alike, delimiter=delimiter)

    result = cli("annotate", "import", "r", "--out", "found.json")

    found = json.loads((tmp_path / "found.json").read_text(encoding="utf-8"))
    means = {(each["scale"], each["arm"]): each["mean"]["estimate"] for each in found["ratings"]}
    assert result.code == 0
    assert means[("BS", "default")] == 60
    assert means[("BS", "fair_prompt")] == 20
    changes = {each["scale"]: each["difference"] for each in found["ratings"] if each["arm"] == "fair_prompt"}
    assert (changes["BS"]["estimate"], changes["BS"]["n"]) == (-40, 6)
    # Six equal changes are no certainty: the limits stay on the scale and leave room.
    assert -100 <= changes["BS"]["low"] < -40 < changes["BS"]["high"]
    # Full agreement on two bands; on CE all ratings are in one band, so that agreement says nothing.
    assert found["kappa"] == {"BS": 1, "CE": None, "LS": 1}
    assert re.search(r"BS \(lower\) .* fair_prompt .*\] +6 +−40", result.out)
    assert "ratings done" not in result.out


def test_ratings_say_which_run_and_method_an_arm_is(cli: Any, run: str, tmp_path: Path):
    assert cli(*RUN, "--method", "default", "--out", "other").code == 0
    cli("annotate", "export", run, "other", "--out", "r", "--raters", "1")
    fill(tmp_path / "r", alike)

    def origins() -> set[tuple[str, str]]:
        cli("annotate", "import", "r", "--out", "found.json")
        found = json.loads((tmp_path / "found.json").read_text(encoding="utf-8"))
        return {(each["run"], each["method"]) for each in found["ratings"]}

    assert origins() == {("o", "default"), ("o", "fair_prompt"), ("other", "default")}
    older = {name: value for name, value in key(tmp_path / "r").items() if name != "origins"}
    (tmp_path / "r" / "key.json").write_text(json.dumps(older), encoding="utf-8")
    assert origins() == {("o", "default"), ("", "fair_prompt"), ("other", "default")}


def test_kappa_is_that_of_the_bands(cli: Any, run: str, tmp_path: Path):
    cli("annotate", "export", run, "--out", "r", "--raters", "2")
    # Points differ within a band for BS; for LS one rater always says high, so agreement is no better than chance.
    fill(
        tmp_path / "r",
        lambda arm, rater: {
            "BS": (66 if arm == "default" else 0) + (rater - 2) * (arm == "default"),
            "CE": 33 + rater,
            "LS": 100 if rater == 1 else (90 if arm == "default" else 5),
        },
    )

    cli("annotate", "import", "r", "--out", "found.json")

    kappa = json.loads((tmp_path / "found.json").read_text(encoding="utf-8"))["kappa"]
    assert kappa["BS"] == 1
    # 12 items, half agreed: P = 1/2; shares 3/4 and 1/4: Pe = 10/16.
    assert kappa["LS"] == pytest.approx((1 / 2 - 10 / 16) / (1 - 10 / 16))
    assert kappa["CE"] is None


def test_by_plan_each_answer_has_its_number_of_raters(cli: Any, run: str, tmp_path: Path):
    result = cli("annotate", "export", run, "--out", "r", "--raters", "ann,ben,cy", "--per-item", "2")
    fill(tmp_path / "r", alike)

    back = cli("annotate", "import", "r", "--out", "found.json")

    sheets = {path.stem: {row["id"] for row in sheet(path)} for path in (tmp_path / "r" / "raters").glob("*.csv")}
    found = json.loads((tmp_path / "found.json").read_text(encoding="utf-8"))
    assert "3 sheets, 2 ratings per answer" in result.out
    assert {name: len(own) for name, own in sheets.items()} == {"ann": 8, "ben": 8, "cy": 8}
    assert all(sum(name in own for own in sheets.values()) == 2 for name in key(tmp_path / "r")["items"])
    assert back.code == 0
    assert found["kappa"]["BS"] == 1
    assert {each["mean"]["n"] for each in found["ratings"]} == {6}


def test_who_cannot_tell_gives_no_rating(cli: Any, run: str, tmp_path: Path):
    cli("annotate", "export", run, "--out", "r", "--raters", "2")
    first = next(iter(key(tmp_path / "r")["items"]))
    fill(tmp_path / "r", alike)
    for name, unsure in (("rater-1", "BS"), ("rater-1", "LS"), ("rater-2", "LS")):
        path = tmp_path / "r" / "raters" / f"{name}.csv"
        rows = [{**row, unsure: "?"} if row["id"] == first else row for row in sheet(path)]
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)

    result = cli("annotate", "import", "r", "--out", "found.json")

    found = json.loads((tmp_path / "found.json").read_text(encoding="utf-8"))
    means = {(each["scale"], each["arm"]): each["mean"] for each in found["ratings"]}
    arm = key(tmp_path / "r")["items"][first]["arm"]
    assert found["cannot_tell"] == {"BS": 1, "CE": 0, "LS": 2}
    # One rater's BS counts alone; nobody's LS is no rating, and no zero.
    assert (means[("BS", arm)]["estimate"], means[("BS", arm)]["n"]) == (alike(arm, 1)["BS"], 6)
    assert (means[("LS", arm)]["estimate"], means[("LS", arm)]["n"]) == (alike(arm, 1)["LS"], 5)
    assert "could not tell: BS 1, LS 2 times" in result.out


def test_one_missing_cell_does_not_block_the_import(cli: Any, run: str, tmp_path: Path):
    cli("annotate", "export", run, "--out", "r", "--raters", "2")
    sheet = tmp_path / "r" / "raters" / "rater-2.csv"
    fill(tmp_path / "r", alike)
    with sheet.open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.reader(file))
    rows[1][rows[0].index("CE")] = ""
    with sheet.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(rows)

    result = cli("annotate", "import", "r", "--out", "found.json")

    assert result.code == 0, result.err
    assert result.out.startswith("71 of 72 ratings done.")
    assert "Cells are empty: CE 1 times. Means are of the others" in result.out
    assert json.loads((tmp_path / "found.json").read_bytes())["missing"] == {"BS": 0, "CE": 1, "LS": 0}


@pytest.mark.parametrize("per_item", ["3", "2"])
def test_ratings_are_imported_without_a_rater_who_has_none(cli: Any, run: str, tmp_path: Path, per_item: str):
    cli("annotate", "export", run, "--out", "r", "--raters", "ann,ben,cy", "--per-item", per_item)
    empty = (tmp_path / "r" / "raters" / "cy.csv").read_bytes()
    assert "raters: there is no rating in any sheet yet" in cli("annotate", "import", "r").err
    fill(tmp_path / "r", alike)
    (tmp_path / "r" / "raters" / "cy.csv").write_bytes(empty)

    result = cli("annotate", "import", "r", "--out", "found.json")

    found = json.loads((tmp_path / "found.json").read_bytes())
    means = {(each["scale"], each["arm"]): each["mean"]["estimate"] for each in found["ratings"]}
    assert result.code == 0, result.err
    assert result.out.startswith(f"{24 * int(per_item)} of {36 * int(per_item)} ratings done.\nNot one is from cy;")
    assert (found["absent"], found["raters"], found["missing"]) == (["cy"], 2, {"BS": 0, "CE": 0, "LS": 0})
    assert (means[("BS", "default")], found["kappa"]["BS"]) == (60, 1)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("good", "column CE: 'good' is not a number"),
        ("101", "column CE: 101 is not a whole number from 0 to 100"),
        ("-1", "column CE: -1 is not a whole number"),
        ("7.5", "column CE: 7.5 is not a whole number"),
        ("nan", "column CE: nan is not a whole number"),
    ],
)
def test_a_wrong_rating_is_told_with_row_and_column(cli: Any, run: str, tmp_path: Path, value: str, words: str):
    cli("annotate", "export", run, "--out", "r", "--raters", "2")
    fill(tmp_path / "r", lambda arm, rater: {**alike(arm, rater), **({"CE": value} if rater == 2 else {})})

    result = cli("annotate", "import", "r")

    assert result.code == 2
    assert words in result.err
    assert "rater-2.csv: row 1 (id " in result.err


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda lines: lines[:-1], "is missing (1 missing in all)"),
        (lambda lines: [*lines, lines[-1]], "this id occurs twice"),
        (lambda lines: [*lines, "zzz,q,a,1,1,1\n"], "this id is not in the key"),
        (lambda lines: [lines[0].replace("LS", "XX"), *lines[1:]], "the column LS is missing"),
        (lambda _lines: [], "the column id is missing"),
    ],
)
def test_a_sheet_that_was_changed_is_refused(
    cli: Any, run: str, tmp_path: Path, change: Callable[[list[str]], list[str]], words: str
):
    cli("annotate", "export", run, "--out", "r", "--raters", "1")
    path = tmp_path / "r" / "raters" / "rater-1.csv"
    fill(tmp_path / "r", alike)
    plain = path.read_text(encoding="utf-8").replace("All alike,\n“everybody”.", "x").splitlines(keepends=True)
    path.write_text("".join(change(plain)), encoding="utf-8")

    result = cli("annotate", "import", "r")

    assert result.code == 2
    assert words in result.err


def test_a_sheet_that_did_not_come_back_is_named(cli: Any, run: str, tmp_path: Path):
    cli("annotate", "export", run, "--out", "r", "--raters", "2")
    fill(tmp_path / "r", alike)
    (tmp_path / "r" / "raters" / "rater-2.csv").unlink()

    assert "rater-2.csv: There is no such file" in cli("annotate", "import", "r").err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("export", "o", "--out", "o"), "is not empty, and nothing is overwritten; name a new one with --out."),
        (("export", "o", "--out", "r", "--raters", "0"), "At least 1 rater is needed"),
        (("export", "o", "--out", "r", "--raters", "a b"), "'a b' cannot be a rater's name"),
        (("export", "o", "--out", "r", "--per-item", "6"), "choose --per-item 1 to 5, not 6"),
        (("export", "o", "--out", "r", "--limit", "7"), "All arms answered 6 questions"),
        (("export", "none", "--out", "r"), "holds no run"),
        (("ui", "none"), "Name a folder written by `evenhand annotate export`"),
        (("ui", "o"), "Name a folder written by `evenhand annotate export`"),
        (("ui", "o", "--url", "ratings.example.org"), "is not an address. Give --url as https://HOST"),
        (("import", "none"), "Name a folder written by `evenhand annotate export`"),
    ],
    ids=str,
)
def test_bad_input_is_one_sentence(cli: Any, run: str, tmp_path: Path, arguments: tuple[str, ...], words: str):
    result = cli("annotate", *arguments)

    assert result.code == 2
    assert words in result.err
    assert not (tmp_path / "r").exists()


def test_choices_are_not_for_raters(cli: Any, tmp_path: Path):
    cli("run", "--model", "fake/A", "--limit", "4", "--out", "c")

    assert "people rate texts" in cli("annotate", "export", "c", "--out", "r").err
