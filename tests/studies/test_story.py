"""A sample's trace as a story, read from what methods leave in their snapshots."""

from typing import Any

from evenhand.studies.results import ShownOutcome, ShownSnapshot
from evenhand.studies.samples import first_answer, story

CROSS = {"evaluator": "toxicity", "passed": False, "critique": "It insults somebody.", "details": "toxicity 0.91"}
CONTENT = {"evaluator": "toxicity", "passed": True, "critique": "", "details": "toxicity 0.02"}


def outcome(answer: str, *snapshots: ShownSnapshot) -> ShownOutcome:
    return ShownOutcome("1.1", "graded", answer, None, "done", {}, [], snapshots)


def noted(iteration: int, text: str, verdicts: Any, decision: str, kept: str | None = None) -> ShownSnapshot:
    notes = {"candidate": text, "verdicts": verdicts, "decision": decision}
    return ShownSnapshot(iteration, kept or text, notes)


def told(shown: ShownOutcome) -> list[str]:
    return [f"{step.label} {step.text}" if step.kind != "end" else step.text for step in story(shown)]


def test_answers_critics_and_decisions_are_told_in_order():
    shown = outcome(
        "Hello.", noted(0, "Idiot.", [CROSS], "revise: toxicity"), noted(1, "Hello.", [CONTENT], "accepted")
    )

    assert told(shown) == [
        "the first answer: Idiot.",
        "toxicity evaluator: It insults somebody.",
        "coordinator asks for a revision (toxicity).",
        "revision 1: Hello.",
        "toxicity evaluator is satisfied.",
        "coordinator accepts the answer.",
        "Revision 1 is kept.",
    ]
    assert [step.passed for step in story(shown) if step.kind == "critic"] == [False, True]
    assert story(shown)[1].details == "toxicity 0.91"
    assert first_answer(shown) == "Idiot."


def test_an_answer_that_is_kept_over_a_later_one_is_told():
    snapshots = (noted(0, "Mild.", [CROSS], "revise: toxicity"), noted(1, "Bad.", [CROSS], "max_iterations", "Mild."))
    shown = outcome("Mild.", *snapshots)

    assert told(shown)[-2:] == [
        "coordinator stops: the revision limit is reached.",
        "The first answer is kept: it was better than revision 1.",
    ]
    assert first_answer(shown) is None


def test_a_critic_that_could_not_judge_says_why():
    shown = outcome("Hm.", noted(0, "Hm.", [{"evaluator": "bias", "unscored": "no number"}], "no_evaluation"))

    critic = story(shown)[1]
    assert (critic.who, critic.text, critic.passed) == ("bias evaluator", "could not judge: no number", None)


def test_a_method_without_notes_shows_its_answers():
    shown = outcome("B", ShownSnapshot(0, "A"), ShownSnapshot(1, "B"))

    assert told(shown) == ["the first answer: A", "revision 1: B", "Revision 1 is kept."]


def test_a_method_that_does_not_iterate_has_no_story():
    assert story(outcome("A")) == []
    assert first_answer(outcome("A")) is None


def test_notes_of_another_form_are_told_as_they_are():
    odd = {"temperature": 0.5, "verdicts": "none", "decision": "flipped a coin", "weights": [1, 2]}
    shown = outcome("A", ShownSnapshot(0, "A", odd), ShownSnapshot(1, "A", {"verdicts": [3, {}]}))

    assert told(shown) == [
        "the first answer: A",
        "temperature: 0.5",
        "coordinator decides: flipped a coin",
        "revision 1: A",
        "an evaluator is not satisfied.",
        "The answer did not change.",
    ]
