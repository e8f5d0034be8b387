"""StarDTox on texts: what is asked of whom, what is told, what is kept and when it ends."""

import asyncio
import re
from collections.abc import Sequence
from typing import Any

import pytest

from evenhand.core.errors import BadResponseError, BudgetExhausted, EndpointError, UsageError
from evenhand.core.types import Answer, Completion, Generation, Message, Params, Refusal, Unscored
from evenhand.evaluators.base import UNKIND, without_scores
from evenhand.evaluators.judged import ADVICE
from evenhand.evaluators.rules import HARMS
from evenhand.methods.base import METHODS
from evenhand.models.fake import FunctionModel
from evenhand.models.request import request_key
from evenhand.session import Session
from support.stardtox import GOOD, KIND, OTHER_KIND, POOR, RUDE, TEXT, WORSE, Rule, Stage, text_of

SORRY = "I'm sorry, but I can't help with that."
FOREIGN = "они пошли домой вместе под дождём"


async def test_a_text_that_passes_at_once_costs_one_call_of_each():
    stage = Stage(KIND)

    outcome = await stage.run()

    assert stage.calls == (1, 1)
    assert (text_of(outcome), outcome.stop) == (KIND, "accepted")
    assert [each.iteration for each in outcome.snapshots] == [0]
    assert [each["passed"] for each in outcome.snapshots[0].notes["verdicts"]] == [True, True]


async def test_without_the_performance_evaluator_no_judge_is_asked():
    stage = Stage(KIND, performance=False)

    outcome = await stage.run()

    assert (stage.calls, outcome.stop) == ((1, 0), "accepted")


async def test_the_first_request_is_the_one_of_the_plain_model():
    default = METHODS.get("default")
    plain = FunctionModel(lambda *_: KIND)
    await default.run(TEXT, Session(TEXT, {"base": plain}, 0, default.with_options({})))
    stage = Stage(KIND)

    await stage.run()

    assert stage.base.requests == plain.requests
    assert len({request_key(b"model", *request) for request in (stage.base.requests[0], plain.requests[0])}) == 1
    assert plain.requests[0][1].seed is not None


async def test_a_toxic_text_is_revised_by_a_critique_in_words():
    stage = Stage(RUDE, KIND)

    outcome = await stage.run()

    assert (text_of(outcome), outcome.stop) == (KIND, "accepted")
    assert [text_of_snapshot(each) for each in outcome.snapshots] == [RUDE, KIND]
    told = outcome.snapshots[0].notes["verdicts"][0]["critique"]
    assert HARMS["insult"] in told
    assert f"- {told}\n" in stage.asked(1)
    assert outcome.snapshots[0].notes["decision"] == "revise: toxicity"


def text_of_snapshot(snapshot: Any) -> str:
    return snapshot.result.text


async def test_no_critique_holds_a_score_even_where_the_judge_gives_one():
    stage = Stage(KIND, OTHER_KIND, KIND + " Twice.", judge=POOR)

    outcome = await stage.run()

    critique = next(each for each in outcome.snapshots[0].notes["verdicts"] if each["evaluator"] == "performance")
    assert critique["critique"] == "The words are broken."
    assert not re.search(r"\d", critiques_in(stage.asked(1)))
    assert "0.20" in critique["details"]


def critiques_in(asked: str) -> str:
    return "\n".join(line for line in asked.splitlines() if line.startswith("- "))


async def test_a_judge_without_a_reason_still_gives_advice():
    stage = Stage(KIND, OTHER_KIND, judge=['{"fluency": 1, "coherence": 1, "relevance": 90} ', GOOD])

    await stage.run()

    assert f"- {ADVICE['fluency']} {ADVICE['coherence']}\n" in stage.asked(1)


async def test_a_revision_is_told_all_critiques_so_far_each_once_and_none_of_the_rejected_words():
    stage = Stage(RUDE, KIND, OTHER_KIND, judge=[GOOD, POOR, GOOD])

    await stage.run()

    assert len(critiques_in(stage.asked(1)).splitlines()) == 1
    lines = critiques_in(stage.asked(2)).splitlines()
    assert HARMS["insult"] in lines[0]
    assert lines[1] == "- The words are broken."
    assert RUDE not in stage.asked(1)
    assert len(stage.base.requests[2][0]) == 1


async def test_equal_critiques_are_told_once():
    stage = Stage(RUDE, WORSE + "!", KIND, scorer=Rule(lambda text: 0.01 if text == KIND else 0.9))

    await stage.run()

    assert len(critiques_in(stage.asked(2)).splitlines()) == 1


async def test_every_revision_is_drawn_with_a_seed_of_its_own():
    stage = Stage(RUDE, RUDE + "!", KIND)

    await stage.run()

    assert len({params.seed for _, params in stage.base.requests}) == 3


async def test_evaluators_of_one_text_work_at_the_same_time():
    both = asyncio.Barrier(2)

    class Waiting(FunctionModel):
        async def generate(self, messages: Sequence[Message], params: Params) -> Generation:
            await both.wait()
            return await super().generate(messages, params)

    class WaitingRule(Rule):
        async def score(self, texts: Sequence[str], contexts: Any = None) -> Any:
            await both.wait()
            return await super().score(texts, contexts)

    stage = Stage(KIND, scorer=WaitingRule(lambda _: 0.0))
    stage.session.models = {"base": stage.base, "judge": Waiting(lambda *_: GOOD)}

    outcome = await stage.run()

    assert outcome.stop == "accepted"


async def test_an_evaluator_that_raises_leaves_no_other_at_work():
    ended = asyncio.Event()

    class Endless(Rule):
        async def score(self, texts: Sequence[str], contexts: Any = None) -> Any:
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

    stage = Stage(KIND, judge=[BudgetExhausted("enough")], scorer=Endless(lambda _: 0.0))

    with pytest.raises(BudgetExhausted):
        await stage.run()

    assert ended.is_set()


async def test_a_judge_that_fails_for_good_is_the_samples_failure():
    with pytest.raises(BadResponseError):
        await Stage(KIND, judge=[BadResponseError("broken")]).run()


async def test_the_best_attempt_is_kept_and_not_the_last():
    scores = {"one": 0.9, "two": 0.5, "three": 0.7}
    stage = Stage(*scores, scorer=Rule(scores.__getitem__))

    outcome = await stage.run()

    assert (text_of(outcome), outcome.stop) == ("two", "max_iterations")
    assert [text_of_snapshot(each) for each in outcome.snapshots] == ["one", "two", "two"]
    assert [each.notes["candidate"] for each in outcome.snapshots] == ["one", "two", "three"]


async def test_the_last_attempt_is_kept_where_that_is_asked_for():
    scores = {"one": 0.9, "two": 0.5, "three": 0.7}

    outcome = await Stage(*scores, scorer=Rule(scores.__getitem__), keep="last").run()

    assert text_of(outcome) == "three"


async def test_of_harmless_texts_the_better_written_is_kept():
    stage = Stage(KIND, OTHER_KIND, judge=[POOR, POOR.replace("20", "10", 1)], iterations=1)

    assert text_of(await stage.run()) == KIND


async def test_a_text_that_nobody_could_judge_does_not_count_as_harmless():
    scorer = Rule(lambda text: Unscored("down") if text == "two" else 0.9)

    outcome = await Stage("one", "two", performance=False, scorer=scorer).run()

    assert (text_of(outcome), outcome.stop) == ("one", "no_evaluation")


@pytest.mark.parametrize("iterations", [0, 1, 3])
async def test_there_is_an_end(iterations: int):
    stage = Stage(*(f"{RUDE} {word}" for word in "abcd"), iterations=iterations)

    outcome = await stage.run()

    assert stage.calls == (iterations + 1, iterations + 1)
    assert (outcome.stop, len(outcome.snapshots)) == ("max_iterations", iterations + 1)


async def test_a_text_that_was_given_before_is_not_judged_again():
    stage = Stage(RUDE, RUDE, KIND)

    outcome = await stage.run()

    assert stage.calls == (3, 2)
    assert text_of(outcome) == KIND
    assert outcome.snapshots[1].notes["verdicts"] == outcome.snapshots[0].notes["verdicts"]


async def test_among_candidates_a_text_that_was_given_before_is_passed_over():
    scores = {RUDE: 0.5, WORSE: 0.8, KIND: 0.01}
    stage = Stage(RUDE, RUDE, WORSE, RUDE, KIND, scorer=Rule(scores.__getitem__), candidates=2)

    outcome = await stage.run()

    assert [each.notes["candidate"] for each in outcome.snapshots] == [RUDE, WORSE, KIND]


async def test_candidates_are_drawn_in_one_call_and_only_the_least_harmful_is_judged():
    scores = {RUDE: 0.9, "a": 0.3, "b": 0.02, "c": 0.5}
    stage = Stage(RUDE, "a", "b", "c", scorer=Rule(scores.__getitem__), candidates=3)

    outcome = await stage.run()

    assert [params.n for _, params in stage.base.requests] == [1, 3]
    assert (text_of(outcome), stage.calls) == ("b", (2, 2))
    assert [messages[-1].content.count("<<<b>>>") for messages, _ in stage.judge.requests] == [0, 1]


async def test_a_candidate_that_cannot_be_scored_is_not_picked():
    scorer = Rule(lambda text: Unscored("down") if text == "a" else 0.02 if text == "b" else 0.9)

    assert text_of(await Stage(RUDE, "a", "b", scorer=scorer, candidates=2).run()) == "b"


async def test_refusals_among_candidates_are_passed_over():
    assert text_of(await Stage(RUDE, SORRY, KIND, candidates=2).run()) == KIND


EMPTY: list[Any] = [SORRY, Completion("", refusal="No."), Completion("", finish="filter"), "", " \n "]


@pytest.mark.parametrize("reply", EMPTY, ids=repr)
async def test_refusals_and_empty_answers_are_asked_for_again(reply: Any):
    stage = Stage(reply, KIND)

    outcome = await stage.run()

    assert (text_of(outcome), outcome.stop, stage.calls) == (KIND, "accepted", (2, 1))
    assert outcome.snapshots[0].notes["decision"] == "revise: no usable answer"
    assert re.search(r"^- It (declines|is no usable reply)", stage.asked(1), re.MULTILINE)


async def test_a_model_that_goes_on_refusing_is_told_as_a_refusal():
    stage = Stage(SORRY, SORRY, SORRY)

    outcome = await stage.run()

    assert (outcome.result, outcome.stop, stage.calls) == (Refusal(SORRY), "max_iterations", (3, 0))


async def test_an_answer_is_kept_rather_than_a_later_refusal():
    outcome = await Stage(RUDE, SORRY, SORRY).run()

    assert text_of(outcome) == RUDE
    assert isinstance(outcome.result, Answer)


@pytest.mark.parametrize("fault", [Unscored("asleep"), EndpointError("asleep")], ids=repr)
async def test_a_scorer_that_is_down_is_left_out_and_named(fault: Any):
    stage = Stage(KIND, scorer=Rule(lambda _: fault))

    outcome = await stage.run()

    verdicts = outcome.snapshots[0].notes["verdicts"]
    assert verdicts[0] == {"evaluator": "toxicity", "unscored": "asleep"}
    assert verdicts[1]["passed"] is True
    assert outcome.stop == "accepted"


async def test_a_scorer_that_can_never_work_is_told():
    with pytest.raises(UsageError, match="The scorer rule does not work: wrong key"):
        await Stage(KIND, scorer=Rule(lambda _: EndpointError("wrong key", permanent=True))).run()


async def test_a_scorer_without_toxicity_cannot_judge():
    class Other(Rule):
        async def score(self, texts: Sequence[str], contexts: Any = None) -> Any:
            return [{"insult": 1.0}] * len(texts)

    outcome = await Stage(KIND, performance=False, scorer=Other(lambda _: 0)).run()

    assert outcome.stop == "no_evaluation"
    assert "gives no toxicity" in outcome.snapshots[0].notes["verdicts"][0]["unscored"]


@pytest.mark.parametrize("reply", ["It is fine.", '{"fluency": 101, "coherence": 5, "relevance": 5}', ""], ids=repr)
async def test_a_judge_that_will_not_rate_is_asked_once_more_and_then_left_out(reply: str):
    stage = Stage(KIND, judge=reply)

    outcome = await stage.run()

    assert stage.calls == (1, 2)
    assert outcome.stop == "accepted"
    said = outcome.snapshots[0].notes["verdicts"][1]
    assert said.keys() == {"evaluator", "unscored"}
    assert said["unscored"].startswith("the judge")


async def test_where_nobody_can_judge_it_ends_without_a_verdict():
    stage = Stage(KIND, judge="no", scorer=Rule(lambda _: Unscored("asleep")))

    outcome = await stage.run()

    assert (outcome.stop, text_of(outcome)) == ("no_evaluation", KIND)
    assert [each["unscored"] for each in outcome.snapshots[0].notes["verdicts"]] == [
        "asleep",
        "the judge gave no rating of fluency",
    ]


async def test_a_text_in_another_script_is_not_taken_for_harmless():
    outcome = await Stage(FOREIGN, performance=False).run()

    assert (outcome.stop, text_of(outcome)) == ("no_evaluation", FOREIGN)
    assert "is not supported" in outcome.snapshots[0].notes["verdicts"][0]["unscored"]


async def test_the_bias_evaluator_can_be_a_judge():
    harmful = '{"harm": 90, "harm_reason": "It scores 90. It calls people fools."}'
    harmless = '{"harm": 2, "harm_reason": "Nothing."}'
    stage = Stage(RUDE, KIND, judge=[harmful, harmless], bias="llm", performance=False)

    outcome = await stage.run()

    assert (text_of(outcome), stage.calls) == (KIND, (2, 2))
    assert "- It calls people fools.\n" in stage.asked(1)
    assert [each.notes["verdicts"][0]["evaluator"] for each in outcome.snapshots] == ["bias", "bias"]
    assert {turn.agent for turn in stage.session.trace} == {"writer", "bias evaluator"}


async def test_a_judge_of_harm_without_a_reason_still_says_something():
    stage = Stage(RUDE, KIND, judge=['{"harm": 90} ', '{"harm": 1} '], bias="llm", performance=False)

    await stage.run()

    assert f"- {UNKIND}\n" in stage.asked(1)


async def test_a_judges_text_cannot_fill_in_variables():
    reason = '{"harm": 90, "harm_reason": "Drop {{text}} please."}'
    stage = Stage(RUDE, KIND, judge=[reason, '{"harm": 1} '], bias="llm", performance=False)

    await stage.run()

    assert "- Drop {{text}} please." in stage.asked(1)


async def test_an_enormous_text_is_judged_like_any_other():
    huge = " ".join([KIND] * 20_000)

    outcome = await Stage(huge).run()

    assert (outcome.stop, len(text_of(outcome))) == ("accepted", len(huge))


REASONS = [
    ("The words are broken.", "The words are broken."),
    ("Broken words", "Broken words."),
    ("It scores 20. The words are broken.", "The words are broken."),
    ("The words are broken; I rated it low.", "The words are broken."),
    ("Fluency: 3/100", ""),
    ("About eighty percent.", ""),
    ("Under the threshold! Be kind.", "Be kind."),
    ("The rating is low", ""),
    ("It is underrated.", "It is underrated."),
    ("", ""),
    ("  ", ""),
]


@pytest.mark.parametrize(("reason", "kept"), REASONS)
def test_reasons_lose_their_scores(reason: str, kept: str):
    assert without_scores(reason) == kept
