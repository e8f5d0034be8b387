"""`evenhand data fresh`: private questions with known answers, committed to, and the benchmark that asks them."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from evenhand.benchmarks.base import Selection, load_benchmark
from evenhand.core.types import Answer, Outcome, Sample
from evenhand.studies.study import study
from evenhand.training.questions.folder import fresh_questions
from evenhand.training.questions.generate import QuestionPlan, make
from evenhand.training.questions.language import load

SEED = b"a seed of at least thirty-two characters"


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """One draw for all tests of the benchmark: the leak check reads much."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("EVENHAND_DATA", raising=False)
        content, commitment = fresh_questions(SEED, 120, ("en", "de"))
    file = tmp_path_factory.mktemp("fresh") / "fresh.jsonl"
    file.write_bytes(content)
    return file, commitment


def test_a_draw_is_committed_to_checked_again_and_kept_secret(cli, tmp_path: Path):
    made = cli("data", "fresh", "--seed-file", "seed", "--count", "100", "--languages", "en")

    assert made.code == 0, made.err
    assert "fresh.jsonl: 100 questions in en; keep them secret" in made.out
    for name in ("seed", "fresh.jsonl"):
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o600
    stated = json.loads((tmp_path / "fresh.commitment.json").read_text())
    assert stated["questions_sha256"] == hashlib.sha256((tmp_path / "fresh.jsonl").read_bytes()).hexdigest()
    same = cli("data", "fresh", "--seed-file", "seed", "--check", "fresh.commitment.json")
    assert (same.code, same.out) == (0, "The seed draws the committed questions.\n")
    (tmp_path / "other").write_text("another seed of thirty-two characters")
    other = cli("data", "fresh", "--seed-file", "other", "--check", "fresh.commitment.json")
    assert (other.code, other.out) == (7, "Not as committed to: seed_sha256, questions_sha256.\n")


@pytest.mark.parametrize(
    "leaks", [{"checked": {"bbq": {"Age.jsonl": "0"}, "bbq_builtin": 1}}, {"checked": {}}, None, 3]
)
def test_a_draw_beside_other_public_data_is_not_called_a_false_commitment(
    cli, tmp_path: Path, drawn: tuple[Path, dict[str, Any]], leaks: Any, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("EVENHAND_DATA", raising=False)  # as where it was drawn
    (tmp_path / "seed").write_bytes(SEED)
    stated = {**drawn[1], "leaks": leaks, "questions_sha256": "of other questions"}
    (tmp_path / "stated.json").write_text(json.dumps(stated))
    (tmp_path / "false.json").write_text(json.dumps({**stated, "leaks": drawn[1]["leaks"]}))

    elsewhere = cli("data", "fresh", "--seed-file", "seed", "--check", "stated.json")
    false = cli("data", "fresh", "--seed-file", "seed", "--check", "false.json")

    assert (elsewhere.code, elsewhere.out) == (2, "")
    assert "drawn beside other public data than there is here (bbq" in elsewhere.err
    assert (false.code, false.out) == (7, "Not as committed to: questions_sha256.\n")


def test_no_situation_or_passage_is_one_that_training_generates(drawn: tuple[Path, dict[str, Any]]):
    rows = [json.loads(line) for line in drawn[0].read_text().splitlines()]
    trained = {
        hashlib.sha256(f"{name}/{each.id}".encode()).hexdigest()[:12]
        for name in ("en", "de")
        for each in load(name).situations
        if each.split == "train"
    }
    learned = make(QuestionPlan(), "train")

    assert len(rows) == 120
    assert not {row["situation"] for row in rows} & trained
    assert not {row["context"] for row in rows} & {next(learned).context for _ in range(1000)}
    assert {row["language"] for row in rows} == {"en", "de"}


def answer(sample: Sample, choice: int) -> Any:
    made = load_benchmark("fresh", data="x").grade(sample, Outcome(Answer("", choice)))
    return made.values  # type: ignore[union-attr]


def test_naming_somebody_is_a_guess_only_where_the_passage_does_not_tell(drawn: tuple[Path, dict[str, Any]]):
    samples = list(load_benchmark("fresh", data=str(drawn[0])).samples(Selection(40)))

    assert [each.metadata["told"] for each in samples[:4]] == [False, True, False, True]
    for sample in samples:
        unknown = sample.metadata["unknown"]
        assert (sample.target == unknown) == (not sample.metadata["told"])
        assert answer(sample, unknown)["abstains"]
        assert answer(sample, sample.target)["correct"]  # type: ignore[arg-type]


def test_it_runs_beside_bbq_and_neither_run_nor_pack_holds_the_file(cli, drawn: tuple[Path, dict[str, Any]]):
    done = cli("run", "--model", "fake/A", "--benchmark", "fresh", "--data", str(drawn[0]), "--out", "runs/fresh")
    packed = cli("evidence", "pack", "runs/fresh", "--no-pdf", "--out", "pack")

    assert (done.code, packed.code) == (0, 0), done.err + packed.err
    (arm,) = study([Path("runs/fresh")]).arms
    found = {each.metric: each for each in arm.estimates if each.group == "all"}
    assert found["guesses"].n + found["right_told"].n == 120
    texts = [json.loads(line)["context"] for line in drawn[0].read_text().splitlines()]
    for folder in ("runs/fresh/own", "pack"):
        for path in Path(folder).rglob("*"):
            assert not path.is_file() or not any(text in path.read_text(errors="replace") for text in texts[:5])


@pytest.mark.parametrize(
    ("content", "said"),
    [("", "selected no sample"), ('{"id": 1}', "this is not a question of a draw"), ("[1]", "not a JSON object")],
)
def test_a_file_that_is_no_draw_is_one_sentence(cli, tmp_path: Path, content: str, said: str):
    (tmp_path / "bad.jsonl").write_text(content)

    result = cli("run", "--model", "fake/A", "--benchmark", "fresh", "--data", "bad.jsonl", "--out", "runs/x")

    assert result.code == 2
    assert said in result.err


@pytest.mark.parametrize("content", [None, "", '{"asked_for": "x"}'])
def test_what_is_no_commitment_is_one_sentence(cli, tmp_path: Path, content: str | None):
    (tmp_path / "seed").write_bytes(SEED)
    if content is not None:
        (tmp_path / "c.json").write_text(content)

    result = cli("data", "fresh", "--seed-file", "seed", "--check", "c.json")

    assert result.code == 2
    assert result.err.count("\n") == 1


def test_a_seed_that_could_be_guessed_is_refused(cli, tmp_path: Path):
    (tmp_path / "seed").write_text("42")

    assert "a seed that could be guessed" in cli("data", "fresh", "--seed-file", "seed").err
