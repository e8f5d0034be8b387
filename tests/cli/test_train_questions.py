"""`evenhand train questions`: a folder of questions, and how bad input is told."""

from pathlib import Path

from evenhand.training.questions import read_rows


def test_a_folder_is_written_once(cli, tmp_path: Path):
    command = ("train", "questions", "--out", "q", "--count", "200", "--forms", "letter,sentence", "--languages", "es")

    first, again = cli(*command), cli(*command)

    assert first.code == 0, first.err
    assert "175 questions" in first.out
    assert {(row.form, row.language) for row in read_rows(tmp_path / "q" / "train.jsonl")} == {
        ("letter", "es"),
        ("sentence", "es"),
    }
    assert again.code == 2
    assert "q holds questions already; name another folder." in again.err


def test_bad_input_is_one_sentence(cli):
    for arguments, message in (
        (("--forms", "leter"), "There is no answer form named 'leter'; did you mean letter"),
        (("--languages", ","), "Name at least one language."),
        (("--count", "3"), "The number of questions must be at least 100, not 3."),
        (("--check", "nowhere"), "There is no .csv, .tsv or .jsonl file here to check against."),
    ):
        result = cli("train", "questions", "--out", "q", *arguments)
        assert result.code == 2
        assert message in result.err
