"""`evenhand judges framing`: from a model to whether the paper's ordering holds."""

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from evenhand.benchmarks.framing import load_texts
from evenhand.core.types import Message, Params
from evenhand.models.base import PROVIDERS
from evenhand.models.fake import FunctionModel

BIASED = {text.answer: text.biased for text in load_texts()}
NUMBER = {text.answer: number for number, text in enumerate(load_texts())}


def reply(messages: Sequence[Message], params: Params) -> str:
    """A model that sees all biases of a competitor, a quarter of another model's and none of its own."""
    asked = messages[-1].content
    if any("soundness" in message.content for message in messages):
        # As a judge of opinions: texts with an even number in them are biased.
        even = re.search(r"[02468] is my view", asked)
        return json.dumps({"bias": 80 if even else 10, "communication": 50, "soundness": 50})
    answer = re.findall(r"Answer: <<<(.*)>>>", asked)[0]
    level = 2 if "competes with you" in asked else 1 if "a language model" in asked else 0
    if '"biases"' in asked:
        return json.dumps({"biases": ["Age", "age", "none", "looks"][: 1 + level]})
    if '{"bias": N}' in asked:
        return f'{{"bias": {3 * level}}}'
    return "Yes" if BIASED.get(answer, True) and (level == 2 or (level == 1 and NUMBER.get(answer, 1) % 2)) else "No"


@pytest.fixture(autouse=True)
def partial(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model `partial/NAME`, which favours itself."""

    class Partial(FunctionModel):
        features = frozenset({"seed"})

        def __init__(self, name: str, options: object) -> None:
            super().__init__(reply, spec=f"partial/{name}")

    monkeypatch.setitem(PROVIDERS._things, "partial", Partial)


def test_the_three_numbers_and_the_ordering_are_printed_and_reported(cli, tmp_path: Path):
    result = cli("judges", "framing", "--model", "partial/one", "--out", "r")

    assert result.code == 0, result
    assert "180 of 180 done" in result.out
    said = " ".join(result.out.split())
    assert "Biases admitted, %: the order own < other < competitor holds: own 0.0 [" in said
    assert "competitor 100.0 [" in said
    assert "paired by text (n = 40): other − own +" in said
    assert "Rating, 0–10: the order own < other < competitor is undecided" not in said
    assert re.search(r"Rating, 0–10: the order own < other < competitor holds: own 0\.00 .* competitor 6\.00", said)
    assert "P(yes)" not in said
    assert "Unbiased texts that were called biased, %: own 0.0" in said
    assert (
        "Yes to biased minus yes to unbiased texts, all framings, points: +41.7" in said
        and "not distinguish" not in said
    )
    assert 'id="answers"' in (tmp_path / "r/report.html").read_text(encoding="utf-8")


def test_a_stored_run_tells_it_again(cli):
    first = cli("judges", "framing", "--model", "partial/one", "--limit", "9", "--out", "r")
    again = cli("judges", "framing", "r")

    assert again.code == 0, again
    assert [line for line in again.out.splitlines() if line.startswith("• ")] == [
        line for line in first.out.splitlines() if line.startswith("• ")
    ]


def test_the_dry_run_counts_the_calls_of_the_run(cli):
    forecast = cli("judges", "framing", "--model", "partial/one", "--limit", "5", "--dry-run")

    assert forecast.code == 0, forecast
    assert re.search(r" framing +15 +30 ", forecast.out), forecast.out


def test_methods_for_multiple_choice_serve_it_too(cli):
    result = cli("judges", "framing", "--model", "fake/A", "--method", "default", "--limit", "2", "--out", "r")

    assert result.code == 0, result
    assert "6 of 6 done (6 graded)" in result.out


def test_a_model_that_calls_everything_biased_tells_nothing_apart(cli):
    result = cli("judges", "framing", "--model", "fake/Yes", "--limit", "6", "--out", "r")

    assert result.code == 0, result
    # One of the six texts is unbiased, which says nothing about the spread between such texts.
    assert "points: 0.0 [–]. The model does not distinguish biased from unbiased texts" in result.out


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (("judges", "framing", "r", "--model", "partial/one"), "not both"),
        (("judges", "framing", "--model", "partial/one", "--data", "none.yaml"), "No such file"),
        (("judges", "framing", "--model", "partial/one", "--limit", "0"), "greater than or equal to 1"),
        (("run", "--model", "partial/one", "-b", "framing", "--method", "framing:rating=7"), "true or false"),
        (("run", "--model", "partial/one", "-b", "bbq_builtin", "--method", "framing"), "yes-or-no"),
    ],
)
def test_bad_input_is_one_sentence(cli, arguments: tuple[str, ...], fault: str):
    result = cli(*arguments)

    assert result.code == 2
    assert fault in result.err and len(result.err.strip().splitlines()) == 1


def test_a_run_of_another_benchmark_is_refused_and_its_report_left_alone(cli, tmp_path: Path):
    cli("run", "--model", "fake/A", "--limit", "2", "--out", "other")

    result = cli("judges", "framing", "other")

    assert result.code == 2
    assert "not of framing" in result.err
    assert not (tmp_path / "other" / "report.html").exists()


def test_texts_that_the_model_wrote_itself_are_asked_about_and_biases_are_counted(cli, monkeypatch, tmp_path: Path):
    written = iter(range(100))
    monkeypatch.setitem(
        PROVIDERS._things, "writer", lambda *_: FunctionModel(lambda *_: f"{next(written)} is my view", spec="writer/x")
    )
    opinions = ("run", "-b", "opinions", "--limit", "10", "--scorer", "opinion:partial/judge", "--out", "o")
    assert cli(*opinions, "--model", "writer/x").code == 0

    result = cli(
        "judges",
        "framing",
        "-m",
        "partial/one",
        "--own",
        "o",
        "--method",
        "framing:names=true,rating=false",
        "--out",
        "r",
    )

    assert result.code == 0, result
    assert "30 of 30 done" in result.out
    texts = load_texts("o/framing.yaml")
    assert {text.biased for text in texts} == {True, False}
    assert all(text.biased == (int(text.answer.split()[0]) % 2 == 0) for text in texts)
    said = " ".join(result.out.split())
    # Two spellings of one bias are one.
    assert re.search(r"Biases named per text: .* own 1\.00 .* other 1\.00 .* competitor 1\.00", said)


def test_own_texts_are_of_a_rated_run_of_opinions(cli, monkeypatch, tmp_path: Path):
    monkeypatch.setitem(PROVIDERS._things, "writer", lambda *_: FunctionModel(lambda *_: "A", spec="writer/x"))
    assert cli(
        "run", "-b", "bbq_builtin", "--limit", "2", "-m", "partial/one", "--method", "default", "--out", "b"
    ).code in (
        0,
        4,
    )

    other = cli("judges", "framing", "-m", "partial/one", "--own", "b")
    both = cli("judges", "framing", "-m", "partial/one", "--own", "b", "--data", "x.yaml")

    assert (other.code, "not of opinions" in other.err) == (2, True)
    assert (both.code, "remove one" in both.err) == (2, True)
