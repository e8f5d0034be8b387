"""What the preset `paper` does otherwise: StarDTox's memory, scores and last answer; MABRF's judge and terminator."""

from typing import Any

from evenhand.core.types import Answer, Sample
from support import mabrf, stardtox
from support.mabrf import BIASED, FAIR, NO_BIAS, rated
from support.stardtox import KIND, RUDE, WORSE, Rule, text_of

PAPER: dict[str, Any] = {"preset": "paper"}


def toxicity(text: str) -> float:
    return {RUDE: 0.6, WORSE: 0.9, KIND: 0.0}[text]


async def test_stardtox_shows_its_own_texts_and_scores_to_the_generator():
    stage = stardtox.Stage(RUDE, WORSE, KIND, scorer=Rule(toxicity), **PAPER)

    outcome = await stage.run()

    assert text_of(outcome) == KIND
    asked = stage.base.requests[2][0]
    assert [message.content for message in asked if message.role == "assistant"] == [RUDE, WORSE]
    assert "(toxicity 0.60 by builtin, must be under 0.10)" in asked[2].content
    assert "(toxicity 0.90" in asked[-1].content


async def test_stardtox_returns_the_last_text_even_if_an_earlier_one_was_better():
    said = (WORSE, RUDE, WORSE)

    last = await stardtox.Stage(*said, scorer=Rule(toxicity), **PAPER).run()
    best = await stardtox.Stage(*said, scorer=Rule(toxicity)).run()

    assert (text_of(last), text_of(best)) == (WORSE, RUDE)


async def test_our_stardtox_shows_neither_texts_nor_scores():
    stage = stardtox.Stage(RUDE, KIND, scorer=Rule(toxicity))

    await stage.run()

    shown = "\n".join(message.content for message in stage.base.requests[1][0])
    assert RUDE not in shown
    assert "0.6" not in shown


async def test_stardtox_shows_the_scores_of_answers_to_questions():
    doubt = '{"settled": 10, "support": 20, "evidence": ""}'
    stage = stardtox.Stage("A", "B", judge=doubt, sample=stardtox.QUESTION, iterations=1, **PAPER)

    await stage.run()

    assert "support 0.20, must be at least 0.80" in stage.asked(1)


async def test_mabrf_always_asks_the_terminating_agent():
    paper = mabrf.Stage(judge=(NO_BIAS,), **PAPER)
    ours = mabrf.Stage(judge=(NO_BIAS,))

    results = [(await stage.run()).result for stage in (paper, ours)]

    assert [len(stage.models["terminate"].requests) for stage in (paper, ours)] == [1, 0]
    assert [result.text for result in results if isinstance(result, Answer)] == [mabrf.UNKNOWN, "The young man"]


async def test_mabrf_keeps_the_last_reasoning():
    rewrites = [FAIR, BIASED + "\n4. So it is."]
    ratings = (rated(8), rated(3), rated(9), rated(9))

    kept = {}
    for name, options in (("paper", PAPER), ("evenhand", {})):
        stage = mabrf.Stage(judge=ratings, rephrase=rewrites, iterations=2, **options)
        kept[name] = (await stage.run()).notes["version"]

    assert kept == {"paper": 2, "evenhand": 1}


async def test_mabrf_accepts_reasoning_without_bias_whether_the_passage_says_it_or_not():
    unfounded = rated(1, grounded=1)

    stops = {}
    for name, options in (("paper", PAPER), ("evenhand", {})):
        stage = mabrf.Stage(judge=(unfounded, NO_BIAS), rephrase=[FAIR], **options)
        await stage.run()
        stops[name] = len(stage.models["rephrase"].requests)

    assert stops == {"paper": 0, "evenhand": 1}


async def test_a_base_model_gets_the_bare_prompt():
    stage = stardtox.Stage(KIND, scorer=Rule(toxicity), sample=Sample("a", "completion", "The man said"))
    stage.base.continues_text = True

    await stage.run()

    [(messages, params)] = stage.base.requests
    assert [message.content for message in messages] == ["The man said"]
    assert (params.max_tokens, params.temperature, params.top_p) == (20, 1.0, 0.9)
