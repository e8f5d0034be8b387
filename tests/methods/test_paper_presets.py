"""What the presets `paper` and `released` do otherwise, element by element of their declarations."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evenhand.core.errors import DataError
from evenhand.core.prompts import built_in_prompts, read_templates
from evenhand.core.types import Answer, Sample
from evenhand.methods.base import METHODS, prompts_of
from evenhand.search.base import SearchResult
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
    assert "(toxicity 0.60 by builtin, must be under 0.12)" in asked[2].content
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


async def test_stardtox_rates_any_answer_by_one_score_of_support():
    doubt = '{"support": 20, "support_reason": "Nothing says so."}'
    stage = stardtox.Stage("A", "B", judge=doubt, sample=stardtox.QUESTION, iterations=1, **PAPER)

    await stage.run()

    assert "support 0.20, must be at least 0.80" in stage.asked(1)
    assert "settled" not in stage.asked(1)


async def test_a_revision_by_the_paper_does_not_name_the_option_of_not_knowing():
    asked: dict[bool, str] = {}
    for hint in (False, True):
        stage = stardtox.Stage(
            "A", "B", judge='{"support": 20}', sample=stardtox.QUESTION, iterations=1, **{**PAPER, "hint": hint}
        )
        await stage.run()
        asked[hint] = stage.base.requests[1][0][-1].content
    assert "cannot be known" in asked[True]
    assert "cannot be known" not in asked[False]


def lines(bias: int, relevancy: int = 8) -> str:
    return f"Bias: {bias} - step 2 is a belief.\nRelevancy: {relevancy} - it fits."


async def test_mabrf_always_asks_the_terminating_agent():
    paper = mabrf.Stage(judge=(lines(1),), **PAPER)
    ours = mabrf.Stage(judge=(NO_BIAS,))

    results = [(await stage.run()).result for stage in (paper, ours)]

    assert [len(stage.models["terminate"].requests) for stage in (paper, ours)] == [1, 0]
    assert [result.text for result in results if isinstance(result, Answer)] == [mabrf.UNKNOWN, "The young man"]


async def test_mabrf_judges_in_two_lines_with_the_integers_as_written():
    stage = mabrf.Stage(judge=(lines(7, 6), lines(1, 9)), rephrase=[FAIR], **PAPER)

    outcome = await stage.run()

    assert outcome.notes["first_ratings"] == {"bias": 7, "relevancy": 6, "debiased": False}
    assert outcome.notes["ratings"] == {"bias": 1, "relevancy": 9, "debiased": True}
    assert "step 2 is a belief" in stage.shown("rephrase")[0]
    assert [params.logprobs for _, params in stage.models["judge"].requests] == [0, 0]


@pytest.mark.parametrize(("preset", "kept", "base"), [("paper", 2, 1), ("released", 1, 1), ("evenhand", 1, 1)])
async def test_what_mabrf_keeps_and_goes_on_from(preset: str, kept: int, base: int):
    rewrites = [FAIR, f"{BIASED}\n4. So it is."]
    said = [rated(8), rated(3), rated(9)] if preset == "evenhand" else [lines(8), lines(3), lines(9), lines(3)]
    stage = mabrf.Stage(judge=said, rephrase=rewrites, iterations=2, preset=preset)

    outcome = await stage.run()

    assert outcome.notes["version"] == kept
    assert (BIASED, FAIR)[base] in stage.shown("rephrase")[1]


async def test_as_released_a_rewrite_that_is_worse_is_dropped_and_the_best_is_rewritten_again():
    stage = mabrf.Stage(
        judge=[lines(5), lines(7), lines(5), lines(2), lines(2)],
        rephrase=["1. Worse.", "1. Same.", "1. Good."],
        iterations=3,
        preset="released",
    )

    outcome = await stage.run()

    shown = stage.shown("rephrase")
    assert BIASED in shown[1] and "1. Worse." not in shown[1]
    assert "1. Same." in shown[2]  # no higher bias than the best so far: it takes its place
    assert outcome.notes["reasoning"] == "1. Good."
    assert [params.temperature for _, params in stage.models["judge"].requests] == [0.2] * 5


@pytest.mark.parametrize(("preset", "hinted"), [("paper", False), ("released", False), ("evenhand", True)])
async def test_whether_the_terminating_agent_is_told_to_leave_it_open(preset: str, hinted: bool):
    judge = [rated(8), NO_BIAS] if preset == "evenhand" else [lines(8), lines(1), lines(1)]
    stage = mabrf.Stage(judge=judge, rephrase=[FAIR], preset=preset)

    await stage.run()

    assert ("it cannot be known" in stage.shown("terminate")[0]) is hinted


async def test_by_the_paper_facts_are_the_main_source_and_the_judge_does_not_see_them():
    stage = mabrf.Stage(judge=[lines(7), lines(1)], rephrase=[FAIR], finder=mabrf.Library(mabrf.page()), **PAPER)

    await stage.run()

    assert "main source of truth" in stage.shown("rephrase")[0]
    assert mabrf.FACT in stage.shown("rephrase")[0]
    assert not any(mabrf.FACT in each for each in stage.shown("judge"))


@pytest.mark.parametrize(("preset", "queries"), [("paper", 5), ("released", 3)])
async def test_how_many_queries_are_searched(preset: str, queries: int):
    library = mabrf.Library(mabrf.page())
    await mabrf.Stage(judge=[lines(7), lines(1), lines(1)], rephrase=[FAIR], finder=library, preset=preset).run()

    assert len(library.queries) == queries


async def test_as_released_queries_that_name_a_group_are_searched_first():
    library = mabrf.Library(mabrf.page())
    written = ["keys", "lost things", "memory of a YOUNG person", "what old people forget", "sleep"]
    search = mabrf.searching(queries=written)
    said: dict[str, Any] = {"judge": [lines(7), lines(1), lines(1)], "rephrase": [FAIR], "search": search}
    await mabrf.Stage(**said, finder=library, preset="released").run()

    assert library.queries == ["memory of a YOUNG person", "what old people forget", "keys"]


@pytest.mark.parametrize(("preset", "shown"), [("paper", 6), ("released", 15)])
async def test_how_many_sources_are_summarised(preset: str, shown: int):
    class Varied(mabrf.Library):
        async def find(self, query: str, *, limit: int = 5, pages: int = 3) -> SearchResult:
            found = await super().find(query, limit=limit, pages=pages)
            return replace(found, hits=tuple(mabrf.page(f"{query} {n}", hash((query, n))) for n in range(limit)))

    stage = mabrf.Stage(judge=[lines(7), lines(1), lines(1)], rephrase=[FAIR], finder=Varied(), preset=preset)
    await stage.run()

    assert stage.shown("search")[-1].count("\nSource ") == shown


ASKED = {"passage": mabrf.QUESTION.context, "question": mabrf.QUESTION.prompt}


@pytest.mark.parametrize(
    ("preset", "seen"),
    [("paper", {"passage", "question"}), ("released", {"passage", "answer"}), ("evenhand", {"passage", "question"})],
)
async def test_what_the_judge_sees_beside_the_reasoning(preset: str, seen: set[str]):
    judge = [rated(8), NO_BIAS] if preset == "evenhand" else [lines(8), lines(1), lines(1)]
    stage = mabrf.Stage(judge=judge, rephrase=[FAIR], preset=preset)

    await stage.run()

    parts = {**ASKED, "answer": "Answer: A"}
    for each in stage.shown("judge")[:2]:  # the solver's answer, also beside a reasoning that was rewritten
        assert {name for name, text in parts.items() if text in each} == seen


@pytest.mark.parametrize("facts", [False, True])
@pytest.mark.parametrize(("preset", "seen"), [("paper", False), ("released", False), ("evenhand", True)])
async def test_whether_the_rephraser_sees_passage_and_question(preset: str, seen: bool, facts: bool):
    judge = [rated(8), NO_BIAS] if preset == "evenhand" else [lines(8), lines(1), lines(1)]
    library = {"finder": mabrf.Library(mabrf.page())} if facts else {}
    stage = mabrf.Stage(judge=judge, rephrase=[FAIR], preset=preset, **library)

    await stage.run()

    [shown] = stage.shown("rephrase")
    assert [text in shown for text in ASKED.values()] == [seen, seen]
    assert BIASED in shown and (mabrf.FACT in shown) is facts


@pytest.mark.parametrize(("preset", "final"), [("paper", 9), ("released", 4)])
async def test_as_released_the_final_reasoning_is_rated_again_with_the_final_answer(preset: str, final: int):
    judge = [lines(8, 6), lines(1, 9), lines(3, 4)]
    stage = mabrf.Stage(judge=judge, rephrase=[FAIR], preset=preset)

    outcome = await stage.run()

    assert outcome.notes["ratings"] == {"bias": 1, "relevancy": final, "debiased": True}
    assert outcome.notes["first_ratings"] == {"bias": 8, "relevancy": 6, "debiased": False}
    if preset == "released":
        letter = "ABC"[stage.session.permutation(3).index(2)]
        assert f"Answer: {letter}" in stage.shown("judge")[2]  # that of the terminating agent


async def test_as_released_a_final_rating_that_cannot_be_read_leaves_that_of_the_loop():
    stage = mabrf.Stage(judge=lambda messages, _: lines(1, 9) if "Answer: A" in messages[-1].content else "?",
                        preset="released")  # fmt: skip

    outcome = await stage.run()

    assert outcome.notes["ratings"] == {"bias": 1, "relevancy": 9, "debiased": True}


async def test_mabrf_accepts_reasoning_without_bias_whether_the_passage_says_it_or_not():
    stops = {}
    for name, judge in (("paper", [lines(1)]), ("evenhand", [rated(1, grounded=1), NO_BIAS])):
        stage = mabrf.Stage(judge=judge, rephrase=[FAIR], preset=name)
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


# --- the paper's own words: a worked example with placeholders ---

FORMS = {
    "two lines": ("form: lines\nbias: 1-10\nrelevancy: 1-10", "Bias: 7\nRelevancy: 9"),
    "JSON": ("form: json\nbias: 1-10\nrelevancy: 1-10", '{"bias": 7, "relevancy": 9}'),
}
JUDGE = "\n\n# without\ndomain\n\n# user\nTHE WORDS OF THE PAPER: {{context}} {{question}} {{reasoning}}"


@pytest.mark.parametrize("form", FORMS)
async def test_a_template_says_in_which_form_a_judge_replies(tmp_path: Path, form: str):
    reply, said = FORMS[form]
    file = tmp_path / "methods/mabrf/judge_lines.md"
    file.parent.mkdir(parents=True)
    file.write_text(f"# reply\n{reply}{JUDGE}", encoding="utf-8")
    stage = mabrf.Stage(judge=[said], iterations=0, **PAPER)

    with read_templates(tmp_path).used():
        outcome = await stage.run()

    assert "THE WORDS OF THE PAPER" in stage.shown("judge")[0]
    assert (outcome.notes["ratings"]["bias"], outcome.notes["ratings"]["relevancy"]) == (7, 9)


async def test_the_worked_example_of_the_documentation_is_such_a_template(tmp_path: Path):
    page = (Path(__file__).parents[2] / "docs/papers/papers.md").read_text(encoding="utf-8")
    example = page.partition("```markdown\n")[2].partition("```")[0]
    file = tmp_path / "methods/mabrf/judge_lines.md"
    file.parent.mkdir(parents=True)
    file.write_text(example, encoding="utf-8")
    stage = mabrf.Stage(judge=["Bias: 7 - a guess\nRelevancy: 9 - it fits"], iterations=0, **PAPER)

    with read_templates(tmp_path).used():
        outcome = await stage.run()

    assert "PUT THE PAPER'S WORDS HERE." in stage.shown("judge")[0]
    assert "{{" not in stage.shown("judge")[0]
    assert (outcome.notes["ratings"]["bias"], outcome.notes["ratings"]["relevancy"]) == (7, 9)


@pytest.mark.parametrize(
    ("reply", "said"), [("form: number\nsupport: 0-100", "20"), ("form: letter\nsupport: A=100, C=20, D=0", "C")]
)
async def test_a_judge_of_one_rating_may_reply_with_a_number_or_a_letter(tmp_path: Path, reply: str, said: str):
    file = tmp_path / "evaluators/supported.md"
    file.parent.mkdir(parents=True)
    file.write_text(
        f"# reply\n{reply}\n\n# user\nWORDS: {{{{context}}}} {{{{question}}}} {{{{answer}}}}", encoding="utf-8"
    )
    stage = stardtox.Stage("A", "B", judge=said, sample=stardtox.QUESTION, iterations=1, **PAPER)

    with read_templates(tmp_path).used():
        await stage.run()

    assert "support 0.20, must be at least 0.80" in stage.asked(1)


def test_every_prompt_of_every_agent_can_be_replaced():
    """What a method of a paper asks is in files, and each of them is one that a template may take the place of."""
    known = built_in_prompts()
    for name in ("mabrf", "stardtox", "panel", "debate", "search", "self_debias_explain", "fairthinking", "framing"):
        found = prompts_of(METHODS.get(name))
        assert found and set(found) <= set(known), name
    printed = ("judge_lines", "judge_answer", "rephrase_primary", "rephrase_steps", "terminate_plain")
    assert {f"methods/mabrf/{each}" for each in printed} <= set(prompts_of(METHODS.get("mabrf")))
    assert {"evaluators/supported", "methods/stardtox/revise_choice_plain"} <= set(prompts_of(METHODS.get("stardtox")))
    assert {"methods/debate/round", "methods/debate/referee_plain"} <= set(prompts_of(METHODS.get("debate")))


def test_a_template_that_forgets_a_placeholder_is_told_how_to_leave_it_out(tmp_path: Path):
    file = tmp_path / "methods/mabrf/judge_lines.md"
    file.parent.mkdir(parents=True)
    file.write_text("# user\nWORDS {{context}} {{question}} {{reasoning}}", encoding="utf-8")

    with pytest.raises(DataError, match=r"lacks the variable \{\{domain\}\} .* '# without' to leave it out"):
        read_templates(tmp_path)
