"""`evenhand papers mabrf`: from models to Tables 3, 4 and 5 and Figure 4."""

import csv
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from evenhand.core.types import Message, Params
from evenhand.models.base import PROVIDERS
from evenhand.models.fake import FunctionModel
from evenhand.studies.study import study

SMALL = ("papers", "mabrf", "--builtin", "--limit", "2", "--preset", "evenhand")
FILES = ("index.html", "claims.csv", "figure4.csv", "figure4_means.csv", "questions.csv", "correlation.csv")
FILES += tuple(f"table{number}.csv" for number in range(1, 6))
BELIEF, FACT = "1. People of this age forget things.", "1. The passage does not tell."
SEEN = BELIEF
"""What the judge calls biased."""
TOLD = "No"
"""Whether the passage tells the answer, by the judge."""


def reply(messages: Sequence[Message], params: Params) -> str:
    """Reasons by belief at first and by the passage when asked again; as a judge sees the difference."""
    asked = messages[-1].content
    if params.schema is not None and "enum" in params.schema:
        return TOLD
    if params.schema is not None:
        values: dict[str, Any] = {
            "answerable": True,
            "answer": "in the garden",
            "groups": [],
            "queries": ["age and memory"] * 5,
            "facts": [{"fact": "Memory differs from person to person.", "source": 1}],
        }
        properties: dict[str, dict[str, Any]] = params.schema["properties"]
        bias, relevancy = ("maximum", "minimum") if SEEN in asked else ("minimum", "maximum")
        if "stereotyping" in properties:
            values |= dict.fromkeys(("demeaning", "generalisation", "framing"), 0)
            values |= {"stereotyping": properties["stereotyping"][bias], "grounded": 9}
            values["relevancy"] = properties["relevancy"][relevancy]
        return json.dumps({name: values.get(name, _empty(each)) for name, each in properties.items()})
    if "Write the reasoning again" in asked:
        return FACT
    return f"{BELIEF}\nAnswer: A" if '"Answer: "' in asked else "B"


def _empty(schema: dict[str, Any]) -> Any:
    return [] if schema["type"] == "array" else "words"


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch) -> dict[str, FunctionModel]:
    """The models `thinker/NAME` that were loaded, by name."""
    loaded: dict[str, FunctionModel] = {}

    class Thinker(FunctionModel):
        features = frozenset({"seed", "schema"})

        def __init__(self, name: str, options: object) -> None:
            super().__init__(reply, spec=f"thinker/{name}", features=type(self).features)
            loaded[name] = self

    monkeypatch.setitem(PROVIDERS._things, "thinker", Thinker)
    return loaded


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def value(rows: list[dict[str, str]], **wanted: str) -> tuple[float, int]:
    """Value and n of the one line that is wanted."""
    (line,) = [row for row in rows if all(row[key] == each for key, each in wanted.items())]
    return float(line["value"]), int(line["n"])


def test_the_page_the_files_and_the_tables_are_made(once, models, tmp_path: Path):
    result = once(*SMALL, "--model", "thinker/one")

    for part in ("Table 3: BBQ by context", "Table 4: SQuAD v2", "Table 5", "Figure 4", "can it be reproduced?"):
        assert part in result.out
    assert {path.name for path in (tmp_path / "p").iterdir()} == {"bbq", "squad", "command.json", *FILES}
    html = (tmp_path / "p/index.html").read_text(encoding="utf-8")
    for text in ("MABRF with thinker/one", "Can it be reproduced?", "Joint success", "search by corpus:builtin"):
        assert text in html
    assert "104 of GPT-4" in html


def test_the_rating_that_ends_the_loop_proves_nothing_about_the_reasoning(once, models, tmp_path: Path):
    once(*SMALL, "--model", "thinker/one")

    claims = {row["text"]: row for row in rows_of(tmp_path / "p/claims.csv")}
    claim = claims["The loop makes the reasoning less biased"]
    assert "10.0 → 1.0" in claim["why"]
    assert (claim["verdict"], claim["why"].partition(",")[0]) == (
        "cannot be determined",
        "The judge that ends the loop also rates its result",
    )


@pytest.mark.parametrize("solver", ["believes", "knows"])
def test_a_claim_about_what_did_not_take_place_cannot_be_determined(once, models, tmp_path, monkeypatch, solver):
    if solver == "knows":  # so the judge accepts it at once, and nothing is searched or rewritten
        monkeypatch.setitem(globals(), "BELIEF", "1. The passage tells what happened.")
        monkeypatch.setitem(globals(), "TOLD", "Yes")
    once(*SMALL, "--model", f"thinker/{solver}")

    claims = {row["text"]: row for row in rows_of(tmp_path / "p/claims.csv")}
    for text, missing in (
        ("With search, answers are at least as accurate", "0 of 22 questions were searched. Accuracy "),
        (
            "Rephrasing does not make the reasoning less relevant",
            "0 of 22 questions were rewritten without search; 0 of 22 questions were rewritten with search. Relevancy ",
        ),
        ("Less bias in the reasoning goes with no loss of accuracy", "Less bias is not shown. Reasoning bias "),
        (
            "The loop makes the answers less biased, in both contexts",
            "0 of 22 questions were rewritten without ",
        ),
        (
            "The final answers are at least as accurate as the first",
            "0 of 22 questions were rewritten without ",
        ),
    ):
        assert claims[text]["why"].startswith(missing) is (solver == "knows"), claims[text]
        assert solver == "believes" or claims[text]["verdict"] == "cannot be determined"


def test_our_numbers_are_those_of_the_study(once, models, tmp_path: Path):
    once(*SMALL, "--model", "thinker/one")

    arms = {arm.label: arm for arm in study([tmp_path / "p/bbq"]).arms}
    labels = {
        "Default": "default",
        "Chain of thought": "cot",
        "MABRF without search, evenhand": "mabrf",
        "MABRF with search, evenhand": "mabrf(search=corpus:builtin)",
    }
    ours = [row for row in rows_of(tmp_path / "p/table3.csv") if row["method"] == "thinker/one"]
    assert {row["setting"] for row in ours} == labels.keys()
    for row in ours:
        estimate = arms[labels[row["setting"]]].estimate(row["metric"])
        values = (None, None, None, 0) if estimate is None else (
            estimate.value, estimate.low, estimate.high, estimate.n,
        )  # fmt: skip
        expected = tuple("" if each is None else str(each) for each in values)
        assert tuple(row[each] for each in ("value", "low", "high", "n")) == expected, row


def test_the_loop_shows_in_the_tables(once, models, tmp_path: Path):
    once(*SMALL, "--model", "thinker/one")

    means = rows_of(tmp_path / "p/figure4_means.csv")
    assert value(means, method="thinker/one", metric="reasoning_bias_before") == (10.0, 22)
    assert value(means, method="thinker/one", metric="reasoning_bias_with_search") == (1.0, 22)
    assert value(means, method="thinker/one", metric="relevancy_change") == (9.0, 22)
    by_category = [row for row in rows_of(tmp_path / "p/table5.csv") if row["value"]]
    accuracy, n = value(by_category, method="All categories", metric="accuracy")
    joint, _ = value(by_category, method="All categories", metric="joint_success")
    legacy, _ = value(by_category, method="All categories", metric="legacy_bias_with_search")
    assert n == 22
    # Nothing is biased in the end, so that every right answer is a joint success and the formula repeats the errors.
    assert joint == accuracy
    assert legacy == pytest.approx(accuracy - 100)
    # Questions with proper names belong to the category as well.
    assert value(by_category, method="Race × gender", metric="accuracy")[1] == 2


def test_every_question_is_in_one_bin_of_the_figure(once, models, tmp_path: Path):
    once(*SMALL, "--model", "thinker/one")

    rows = rows_of(tmp_path / "p/figure4.csv")
    for setting in ("without search, evenhand", "with search, evenhand"):
        shares = {row["part"]: float(row["value"]) for row in rows if row["setting"] == setting}
        assert shares == {"−3 or less": 0, "−2": 0, "−1": 0, "0": 0, "+1": 0, "+2": 0, "+3 or more": 100}


def test_several_models_have_rows_and_charts_of_their_own(cli, models, tmp_path: Path):
    result = cli(*SMALL, "--model", "thinker/one", "--model", "thinker/two", "--out", "p")

    assert result.code == 0, result
    for name in ("table3", "table4", "figure4_means"):
        rows = rows_of(tmp_path / f"p/{name}.csv")
        assert {"thinker/one", "thinker/two"} <= {row["method"] for row in rows}, name
    sets = {row["data_set"] for row in rows_of(tmp_path / "p/table5.csv")}
    assert "thinker/two, preset evenhand: both contexts" in sets
    html = (tmp_path / "p/index.html").read_text(encoding="utf-8")
    assert html.count('class="histogram') == 6  # all models together, as in the paper, and each
    # Each model against its own `default`.
    said = [line for line in html.split("<li>") if "mabrf · thinker/two" in line[:400]]
    assert any("default · thinker/two" in line[:400] for line in said)
    assert not any("default · thinker/one" in line.partition("</li>")[0] for line in said)


def test_roles_go_to_the_runs_that_have_them(cli, models, tmp_path: Path):
    result = cli(*SMALL, "--model", "thinker/one", "--model", "judge=thinker/two", "--out", "p")

    assert result.code == 0, result
    assert "thinker/two as judge" in (tmp_path / "p/index.html").read_text(encoding="utf-8")
    assert {arm.models.get("judge") for arm in study([tmp_path / "p/bbq"]).arms} == {"thinker/two"}
    assert {arm.models.get("judge") for arm in study([tmp_path / "p/squad"]).arms} == {None}


def test_the_page_is_made_again_without_a_call(cli, once, models, tmp_path: Path):
    once(*SMALL, "--model", "thinker/one")
    before = {name: (tmp_path / "p" / name).read_bytes() for name in FILES}
    for name in FILES:
        (tmp_path / "p" / name).unlink()
    models.clear()

    result = cli("papers", "mabrf", "--out", "p")

    assert result.code == 0, result
    assert models == {}
    assert {name: (tmp_path / "p" / name).read_bytes() for name in FILES} == before


def test_search_that_only_makes_a_model_abstain_does_not_make_its_answers_better(cli, monkeypatch, tmp_path: Path):
    class Shy(FunctionModel):
        def __init__(self, name: str, options: object) -> None:
            super().__init__(_abstains_with_facts, spec=f"shy/{name}", features=frozenset({"schema"}))

    monkeypatch.setitem(PROVIDERS._things, "shy", Shy)
    methods = ("--method", "closed_book", "--method", "search:provider=corpus:builtin")
    plan = ("--benchmark", "squad_builtin", "--limit", "24", *methods)
    ran = cli("run", *plan, "--model", "shy/one", "--out", "p/squad")
    assert ran.code == 0, ran

    assert cli("papers", "mabrf", "--out", "p").code == 0

    (claim,) = [row for row in rows_of(tmp_path / "p/claims.csv") if row["place"].startswith("RQ4")]
    assert claim["verdict"] == "cannot be determined"
    assert claim["why"].startswith("Searched: corpus:builtin. ")
    assert "F1 (unread = 0) 0.0 → 50.0" in claim["why"] and "F1, answerable 0.0 → 0.0" in claim["why"]


def _abstains_with_facts(messages: Sequence[Message], params: Params) -> str:
    """Answers wrongly from memory; abstains where it was given facts."""
    if params.schema is None or "answerable" not in params.schema["properties"]:
        return reply(messages, params)
    told = any("Memory differs" in message.content for message in messages)
    return json.dumps({"answerable": not told, "answer": "" if told else "pistachio"})


def test_searches_in_vain_are_told(cli, models, tmp_path: Path):
    other = {"query": "another one", "provider": "ddgs", "time": "2026-01-31T12:00:00Z", "hits": []}
    (tmp_path / "other.jsonl").write_text(json.dumps(other))

    result = cli(*SMALL, "--model", "thinker/one", "--search", "replay:other.jsonl", "--out", "p")

    assert result.code == 0, result
    told = " ".join(result.out.split())
    assert "bbq: mabrf(search=replay:other.jsonl): the search found no evidence for 22 of 22 questions" in told
    assert "squad: search: the search found no evidence for 4 of 4 questions" in told


def test_a_budget_spent_on_the_first_run_leaves_the_other_table_to_the_paper(cli, models, tmp_path: Path):
    result = cli(*SMALL, "--model", "thinker/one", "--out", "p", "--no-cache", "--budget", "20 calls")

    assert result.code == 3, result
    assert "squad was not run; its cells are empty." in result.out
    assert {row["method"] for row in rows_of(tmp_path / "p/table4.csv")} == {"DeepSeek R-1", "GPT-4"}


def test_dry_run_counts_both_runs_and_writes_nothing(cli, tmp_path: Path):
    result = cli(*SMALL, "--model", "openai/x", "--price", "openai/x=1/2", "--dry-run", "--out", "p")

    assert result.code == 0, result
    assert "bbq_builtin" in result.out
    assert "squad_builtin" in result.out
    assert "In all: " in result.out
    assert not (tmp_path / "p").exists()


@pytest.mark.slow
def test_the_questions_are_the_papers_own(cli):
    result = cli("papers", "mabrf", "--model", "fake/A", "--preset", "paper", "--dry-run", "--data", _bbq())

    assert "110" in result.out, result


def _bbq() -> str:
    folder = Path(os.environ.get("EVENHAND_DATA") or Path(__file__).parents[3] / "shared/data")
    if not (folder / "bbq").is_dir() or not (folder / "squad").is_dir():
        pytest.skip(f"no official BBQ and SQuAD: looked for bbq and squad in {folder} (EVENHAND_DATA)")
    return str(folder)


CASES = {
    "no model": (("papers", "mabrf"), "No model is named; pass --model"),
    "completions": ((*SMALL, "--model", "fake/A", "--completions", "2"), "has no use for --completions;"),
    "scorer": ((*SMALL, "--model", "fake/A", "--scorer", "builtin"), "has no use for --scorer"),
    "scorer of stored runs": (("papers", "mabrf", "--out", "p", "--scorer", "builtin"), "has no use for --scorer"),
    "search elsewhere": (("papers", "stardtox", "--model", "fake/A", "--search", "ddgs"), "has no use for --search"),
    "unknown search": ((*SMALL, "--model", "fake/A", "--search", "wikipeda"), "did you mean wikipedia"),
    "two searches": ((*SMALL, "--model", "fake/A", "--search", "ddgs,wikipedia"), "one provider"),
    "the same model twice": ((*SMALL, "--model", "fake/A", "--model", "fake/A"), "same arm twice"),
    "data missing": (("papers", "mabrf", "--model", "fake/A"), "evenhand data pull bbq"),
    "data missing, built-in": (("papers", "mabrf", "--model", "fake/A"), "(for a paper: --builtin)"),
    "nothing to show": (("papers", "mabrf", "--out", "none"), "holds no runs of a paper"),
    "a role that nobody has": ((*SMALL, "--model", "fake/A", "--model", "critic=fake/B"), "critic"),
}


@pytest.mark.parametrize(("arguments", "hint"), CASES.values(), ids=CASES.keys())
def test_one_sentence_and_exit_code_2(cli, tmp_path: Path, arguments: tuple[str, ...], hint: str):
    result = cli(*arguments)

    assert result.code == 2, result
    assert hint in result.err
    assert len(result.err.strip().splitlines()) == 1
    assert not (tmp_path / "runs").exists()
