"""Judges that see an example of each band of their scales: where it stands, and what follows for their card."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from evenhand.core.prompts import bands_of, parse_prompt, read_templates
from evenhand.core.types import Message, Params, Sample
from evenhand.evaluators.judged import bias_messages, bias_rubric, chat_rubric, support_rubric
from evenhand.judging.card import (
    FITTED,
    NONE,
    Calibrated,
    Curve,
    JudgeCard,
    card_caveats,
    card_path,
    save_card,
    session_card,
)
from evenhand.judging.judge import judge, with_bands
from evenhand.judging.rubric import Ratings, Rubric
from evenhand.judging.scorers import quality_rubric
from evenhand.methods.base import METHODS
from evenhand.methods.debate.agents import rubric_for
from evenhand.methods.mabrf.agents import rubric
from evenhand.models.fake import FunctionModel
from evenhand.runs.parts import suited
from evenhand.session import Session

RUBRICS: dict[str, Rubric] = {
    "mabrf": rubric(),
    "mabrf, chat": rubric("chat_judge"),
    "support": support_rubric(),
    "harm": bias_rubric(),
    "quality": quality_rubric(),
    "chat": chat_rubric(),
    "referee": rubric_for("abc"),
}


@pytest.mark.parametrize("name", RUBRICS)
def test_every_scale_of_the_papers_has_a_low_a_middle_and_a_high_example(name: str):
    examples = bands_of(RUBRICS[name].prompt).splitlines()

    assert len([line for line in examples if line.startswith("- ")]) == 3
    if name != "referee":  # whose only scale is the prejudice of a statement
        assert all(rating in "\n".join(examples) for rating in RUBRICS[name].names) or "on all" in "\n".join(examples)


def test_examples_stand_before_the_form_of_the_reply_whatever_is_quoted_above():
    quoted = "Reply with one JSON object: {}"
    plain = bias_messages("a text", quoted)

    asked, messages = with_bands(bias_rubric(), plain)

    above, examples, below = messages[-1].content.partition(bands_of(bias_rubric().prompt) + "\n")
    assert (above + below, messages[:-1]) == (plain[-1].content, plain[:-1])
    assert examples and quoted in above and below.startswith("Reply with one JSON object")
    assert asked.prompt.hash != bias_rubric().prompt.hash


def test_a_rubric_without_examples_stays_as_it_is():
    own = Rubric(parse_prompt("own/rubric", "# user\nRate."), ("x",))

    assert with_bands(own, own.prompt.render()) == (own, own.prompt.render())


@pytest.mark.parametrize("wanted", [True, False])
async def test_the_option_shows_them_to_the_judge_and_to_nobody_else(wanted: bool):
    def answer(_messages: Sequence[Message], _params: Params) -> str:
        return '{"harm": 80, "harm_reason": "It insults."}'

    options = METHODS.get("stardtox").with_options({"bands": wanted})
    session = Session(Sample("a", "completion", "He is"), {"judge": FunctionModel(answer)}, options=options)

    found = await judge(session, bias_rubric(), bias_messages("He is", "an idiot"), agent="bias evaluator")

    assert isinstance(found, Ratings)
    (turn,) = session.trace
    assert (bands_of(bias_rubric().prompt) in turn.messages[-1].content) is wanted
    assert turn.prompt_id == f"evaluators/bias{'_bands' if wanted else ''}"


def test_examples_can_be_overridden_by_a_template(tmp_path: Path):
    file = tmp_path / "evaluators" / "bias_bands.md"
    file.parent.mkdir()
    file.write_text("Examples of our own.", encoding="utf-8")

    with read_templates(tmp_path).used():
        assert bands_of(bias_rubric().prompt) == "Examples of our own."


@pytest.mark.parametrize("name", ["stardtox", "mabrf"])
def test_a_card_that_was_made_without_examples_is_not_used_with_them(name: str):
    def options(given: dict[str, Any]) -> Calibrated:
        found = METHODS.get(name).with_options(given)
        assert isinstance(found, Calibrated)
        return found

    assert (options({}).card, options({"bands": True}).card) == (FITTED, NONE)
    assert options({"bands": True, "calibration": "own.json"}).card == "own.json"
    assert next(
        iter(card_caveats(name, options({"bands": True}), "openai/x", METHODS.get(name).calibration, "choice"))
    ).endswith("these ratings count as they are")


def test_a_card_of_other_ratings_leaves_the_prior_one_of_a_method(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("EVENHAND_CACHE", str(tmp_path))
    curve = Curve(slope=2, intercept=0, auc=1, rated=72)
    save_card(JudgeCard(model="openai/x", curves={"opinion.bias": curve}), card_path("openai/x"))
    method = METHODS.get("stardtox")
    options = method.with_options({})
    session = Session(Sample("a", "choice", "Who?"), {"judge": judge_named("openai/x")}, options=options)

    [caveat] = card_caveats("stardtox", options, "openai/x", method.calibration, "choice")

    assert "was not calibrated, so its thresholds are those of another model" in caveat
    assert session_card(session, yes_no=True).probability("support", 0.6) < 0.5
    assert suited(METHODS.get("mabrf"), METHODS.get("mabrf").with_options({}), "choice", "openai/x").look


def test_where_no_threshold_is_fitted_none_is_promised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("EVENHAND_CACHE", str(tmp_path))

    def caveat(method: str, kind: Any) -> str:
        found = METHODS.get(method)
        return next(card_caveats(method, found.with_options({}), "openai/x", found.calibration, kind))

    assert caveat("mabrf", "chat") == (
        "No command fits the thresholds of mabrf to its judge (openai/x) on chat samples, so they count as they are"
    )
    assert caveat("mabrf", "choice").endswith("`evenhand judges check openai/x` fits them")
    assert caveat("stardtox", "chat").endswith("`evenhand judges check openai/x` fits them")


def judge_named(spec: str) -> FunctionModel:
    return FunctionModel(lambda *_: "Yes", spec=spec)


def test_answers_of_yes_or_no_have_no_examples_so_they_keep_their_card():
    options = METHODS.get("stardtox").with_options({"bands": True})
    session = Session(Sample("a", "choice", "Who?"), {"judge": FunctionModel(lambda *_: "Yes")}, options=options)

    assert session_card(session, yes_no=True).probability("support", 0.6) < 0.5
    assert session_card(session).probability("support", 0.6) == 0.6
    assert len(list(card_caveats("stardtox", options, "openai/x", METHODS.get("stardtox").calibration, "choice"))) == 2


def test_a_method_that_asks_for_numbers_alone_has_no_card_with_examples():
    options = METHODS.get("mabrf").with_options({"bands": True})

    assert isinstance(options, Calibrated) and options.used_card == NONE
    assert len(list(card_caveats("mabrf", options, "openai/x", METHODS.get("mabrf").calibration, "choice"))) == 1
