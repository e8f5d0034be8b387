"""`evenhand models calibrate`: weights that are fitted to a model, stored for it, and used by name."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from evenhand.data.bbq.generate import builtin_rows
from evenhand.methods.weigh.fit import data_hash
from evenhand.methods.weigh.signals import card_path
from evenhand.models.base import PROVIDERS
from evenhand.models.fake import FunctionModel
from evenhand.reading.text import abstains
from evenhand.training.questions.generate import contrast_passages
from support.evidence import seeing_model

SPEC = "seeing/all"
CALIBRATE = ("models", "calibrate", SPEC, "--passages", "60")
COMPARE = ("compare", "--model", SPEC, "--method", "default", "--method", "weigh", "--limit", "44", "--out", "r")


@pytest.fixture(autouse=True)
def _seeing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model `seeing/all` knows which passages answer their question, though its letters never abstain."""
    known = {(row["context"], row["question"]): row[f"ans{row['label']}"] for row in builtin_rows()}
    known |= {(s.context, s.prompt): s.choices[s.target] for s in (each.sample for each in contrast_passages(60))}

    def proven(passage: str, question: str) -> str | None:
        person = known.get((passage, question))
        return None if person is None or abstains(person) else person

    class Seeing(FunctionModel):
        takes = frozenset[str]()

        def __init__(self, _name: str, _options: object) -> None:
            model = seeing_model(proven, SPEC)
            super().__init__(model._function, spec=SPEC, features=model.features)

    monkeypatch.setitem(PROVIDERS._things, "seeing", Seeing)


def test_the_weights_are_stored_with_their_card(cli: Any):
    result = cli(*CALIBRATE)

    card = json.loads(card_path(SPEC).read_bytes())
    assert result.code == 0
    assert re.search(r"^12 +1\.00 +100\.0% +100\.0%$", result.out, re.MULTILINE)
    assert f"stored    {card_path(SPEC)}\nuse       --method weigh:calls=" in result.out
    assert (card["model"], card["passages"], set(card["levels"])) == (SPEC, 60, {"3", "6", "12"})
    assert card["data_sha256"] == data_hash(contrast_passages(60))
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", card["date"])


def test_a_run_uses_the_fitted_weights_and_is_better_for_it(cli: Any):
    cli(*CALIBRATE)

    result = cli(*COMPARE)

    assert result.code == 0
    told = " ".join(result.out.split())
    assert "Better: weigh guesses in 0 % of the cases where the text does not say; default 100 %." in told
    assert "not fitted" not in result.out


def test_a_run_with_prior_weights_says_so(cli: Any):
    result = cli(*COMPARE)

    assert f"The weights of weigh were not fitted to {SPEC}; `evenhand models calibrate {SPEC}` fits them" in result.out


def test_a_run_is_not_resumed_with_other_weights(cli: Any):
    cli(*COMPARE)
    cli(*CALIBRATE)

    result = cli("resume", "r")

    assert result.code == 2
    assert f"weights of weigh for {SPEC} (fitted) is not the file that the run in r was made with" in result.err


def test_fewer_calls_fit_fewer_levels(cli: Any):
    cli(*CALIBRATE, "--calls", "6")

    result = cli("run", "--model", SPEC, "--method", "weigh:calls=12", "--limit", "4", "--out", "r")

    assert set(json.loads(card_path(SPEC).read_bytes())["levels"]) == {"3", "6"}
    assert result.code == 2
    assert "were fitted for calls=3 or 6, not 12; fit them again" in result.err


def test_weights_in_a_file_are_used_by_its_name(cli: Any):
    told = cli(*CALIBRATE, "--out", "mine.json")

    result = cli("run", "--model", "fake/A", "--method", "weigh:weights=mine.json", "--limit", "4", "--out", "r")

    assert Path("mine.json").is_file()
    assert not card_path(SPEC).exists()
    assert ",weights=mine.json" in told.out
    assert result.code == 0, result


def test_a_model_at_chance_is_unfit_and_nothing_is_stored(cli: Any):
    result = cli("models", "calibrate", "fake/A", "--passages", "60")

    assert result.code == 1
    assert "unfit     fake/A cannot tell whether a passage answers a question; use another model." in result.out
    assert not card_path("fake/A").exists()


BAD = {
    "too few passages": ((SPEC, "--passages", "5"), "at least 60, not 5"),
    "calls that there are not": ((SPEC, "--calls", "5"), "'5' is not one of '3', '6', '12'"),
    "no model": ((), "Missing argument 'SPEC'"),
    "not a spec": (("gpt",), "provider/name"),
    "a folder": ((SPEC, "--out", "."), "--out names the file of weights, a file, not the folder"),
    "a model that cannot be read": (("fake/Hm", "--passages", "60"), "only 0 of 60 questions"),
    "a model that declines": (("fake/I'm sorry, I cannot help.", "--passages", "60"), "only 0 of 60 questions"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_sentence(cli: Any, name: str):
    arguments, told = BAD[name]

    result = cli("models", "calibrate", *arguments)

    assert result.code == 2
    assert told in result.err
    assert "Traceback" not in result.err
