"""Rescoring stored runs: what is scored, what is left alone, and what a scorer that fails leaves behind."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from evenhand.core.errors import BudgetExhausted, EndpointError, PlanError, UnknownNameError
from evenhand.core.types import Unscored
from evenhand.models.budget import Limits
from evenhand.models.fake import FunctionModel
from evenhand.runs.file import locked
from evenhand.runs.parts import Settings
from evenhand.runs.scores import BATCH, rescore
from evenhand.runs.store import FINAL, Store
from evenhand.scorers.base import SCORERS, Scorer, Scores
from evenhand.studies.conclusions import warnings_about
from evenhand.studies.study import study
from support.runs import Workshop
from support.stardtox import KIND, RUDE, plain


class Letters(Scorer):
    """Toxicity is the number of letters, in hundreds."""

    name: ClassVar[str] = "letters"
    version = "1"
    attributes = ("toxicity", "letters")
    seen: ClassVar[list[list[str]]] = []
    before: ClassVar[set[str]] = set()
    """The contexts of the texts."""
    fails: ClassVar[list[Any]] = []
    """What the next calls give instead of scores: an error, or a reason for no score."""

    async def score(self, texts: Sequence[str], contexts: Sequence[str] | None = None) -> list[Scores | Unscored]:
        self.seen.append(list(texts))
        self.before.update(contexts or ())
        fault = self.fails.pop(0) if self.fails else None
        if isinstance(fault, Exception):
            raise fault
        if fault:
            return [Unscored(fault)] * len(texts)
        return [{"toxicity": len(text) / 100, "letters": 0.5} for text in texts]


@pytest.fixture
def letters(monkeypatch: pytest.MonkeyPatch) -> type[Letters]:
    monkeypatch.setitem(SCORERS._things, "letters", Letters)
    monkeypatch.setattr(Letters, "seen", [])
    monkeypatch.setattr(Letters, "before", set())
    monkeypatch.setattr(Letters, "fails", [])
    return Letters


@pytest.fixture
def model(workshop: Workshop) -> FunctionModel:
    return workshop.model(plain)


async def a_run(workshop: Workshop, **plan: Any) -> Path:
    """`default` and StarDTox on two prompts, three completions each, scored by builtin_b."""
    fields: dict[str, Any] = {
        "benchmark": "realtoxicity_builtin",
        "benchmark_options": {"completions": 3},
        "limit": 2,
        "scorers": ["builtin_b"],
        "methods": ["default", {"name": "stardtox", "options": {"performance": False}}],
    }
    await workshop.run(**{**fields, **plan})
    return workshop.directory / "run"


def rows(run: Path, scorer: str = "letters@1") -> list[tuple[int, int, str]]:
    with closing(Store(run)) as store:
        query = "SELECT arm, iteration, status FROM scores WHERE scorer = ? ORDER BY arm, iteration"
        return [(arm, iteration, status) for arm, iteration, status in store.select(query, scorer)]


def fact(run: Path, name: str) -> Any:
    with closing(Store(run)) as store:
        return store.get(name)


async def test_all_answers_of_all_arms_are_scored_after_each_iteration_too(workshop: Workshop, letters: Any, model):
    run = await a_run(workshop)
    asked = len(model.requests)

    [result] = await rescore(run, ["letters"])

    assert rows(run) == [
        *[(1, FINAL, "graded")] * 6,
        *[(2, FINAL, "graded")] * 6,
        *[(2, 0, "graded")] * 6,
        *[(2, 1, "graded")] * 6,
    ]
    assert (result.scorer, result.scored) == ("letters@1", 24)
    assert len(model.requests) == asked


@pytest.mark.parametrize("when", ["in the run", "later"])
@pytest.mark.parametrize("reads", [True, False])
async def test_a_text_that_is_continued_is_no_context_for_a_scorer_that_would_count_its_words(
    workshop: Workshop, letters: Any, model, monkeypatch: pytest.MonkeyPatch, when: str, reads: bool
):
    monkeypatch.setattr(Letters, "reads_beginnings", reads)
    run = await a_run(workshop, methods=["default"], scorers=["letters"] if when == "in the run" else ["builtin_b"])
    if when == "later":
        await rescore(run, ["letters"])

    with closing(Store(run)) as store:
        stored = store.select("SELECT number, body FROM samples")
        samples = [store.decoded_sample(body, number) for number, body in stored]
    prompts = {each.prompt for each in samples if each is not None}
    assert prompts
    assert (prompts & letters.before) == (prompts if reads else set())


async def test_the_study_can_use_the_scores(workshop: Workshop, letters: Any, model):
    run = await a_run(workshop)
    await rescore(run, ["letters"])

    result = study([run], scorers=["letters"], iterations=True)

    values = [arm.estimate("toxicity") for arm in result.arms]
    assert [each and each.value for each in values] == [pytest.approx(len(text)) for text in (RUDE, KIND, KIND)]
    assert result.scorers == ("letters@1",)
    assert study([run]).scorers == ("builtin_b@2.4",)


async def test_the_run_remembers_that_the_scorer_was_not_planned(workshop: Workshop, letters: Any, model):
    run = await a_run(workshop)

    await rescore(run, ["letters", "builtin_b"])

    known = fact(run, "scorers")
    assert {scorer: about["planned"] for scorer, about in known.items()} == {"builtin_b@2.4": True, "letters@1": False}
    assert known["letters@1"]["attributes"] == ["toxicity", "letters"]


async def test_what_has_a_score_is_left_alone(workshop: Workshop, letters: Any, model):
    run = await a_run(workshop)
    await rescore(run, ["letters"])
    seen = len(letters.seen)

    [again] = await rescore(run, ["letters"])

    assert (again.scored, len(letters.seen)) == (0, seen)


async def test_what_could_not_be_scored_is_tried_again(workshop: Workshop, letters: Any, model):
    letters.fails += ["asleep"] * 12
    run = await a_run(workshop, scorers=["letters"], limit=1)
    assert ("asleep" in str(study([run]).warnings), rows(run)[0][2]) == (True, "unscored")
    letters.fails.clear()

    await rescore(run, ["letters"])

    assert {status for _, _, status in rows(run)} == {"graded"}
    assert fact(run, "scorers")["letters@1"]["planned"] is True


async def test_texts_go_out_by_the_hundred(workshop: Workshop, letters: Any):
    numbers = iter(range(10_000))
    workshop.model(lambda _messages, _params: f"text number {next(numbers)}")
    run = await a_run(workshop, methods=["default"], limit=12, benchmark_options={"completions": 50})

    told: list[tuple[int, int]] = []
    await rescore(run, ["letters"], count=lambda done, total: told.append((done, total)))

    assert [len(texts) for texts in letters.seen] == [BATCH, BATCH, 600 - 2 * BATCH]
    assert told[-1] == (600, 600)


@pytest.mark.parametrize("fault", [EndpointError("no route", permanent=True), EndpointError("no route"), "no route"])
async def test_a_scorer_that_never_worked_leaves_no_trace(workshop: Workshop, letters: Any, model, fault: Any):
    run = await a_run(workshop)
    letters.fails += [fault]

    with pytest.raises(EndpointError, match=r"^letters does not work: no route\. 0 new scores are stored; the same"):
        await rescore(run, ["letters"])

    assert (rows(run), list(fact(run, "scorers"))) == ([], ["builtin_b@2.4"])


async def test_a_scorer_that_breaks_down_loses_nothing(workshop: Workshop, letters: Any, model):
    run = await a_run(workshop)
    letters.fails += [None, EndpointError("gone")]

    with pytest.raises(EndpointError, match="gone"):
        await rescore(run, ["letters"])
    kept = len(rows(run))
    [rest] = await rescore(run, ["letters"])

    assert (kept, rest.scored, len(rows(run))) == (6, 18, 24)


async def test_a_study_tells_what_is_not_scored_yet(workshop: Workshop, letters: Any, model):
    run = await a_run(workshop)
    letters.fails += [None, EndpointError("gone")]
    with pytest.raises(EndpointError, match="gone"):
        await rescore(run, ["letters"])

    warnings = study([run], scorers=["letters"]).warnings

    assert (
        "Answers without a score by letters@1: stardtox 6 (not scored yet). Try again with `evenhand run rescore`."
        in "\n".join(warnings)
    )


async def test_an_arm_is_named_once_for_all_reasons_without_a_score(workshop: Workshop, model):
    run = await a_run(workshop)
    found = study([run])
    reasons = [("letters@1", "no words", 1_200), ("letters@1", "language ko is not supported", 1)]

    warnings = warnings_about(replace(found, arms=[replace(found.arms[0], unscored=reasons)]))

    expected = f"{found.arms[0].label} 1,201 (1,200 no words, 1 language ko is not supported)"
    assert f"Answers without a score by letters@1: {expected}." in "\n".join(warnings)


async def test_a_model_based_scorer_uses_the_runs_model_and_its_calls_are_counted(workshop: Workshop, model):
    run = await a_run(workshop)
    with closing(Store(run)) as store:
        before = store.scoring()

    [result] = await rescore(run, ["quality"])

    assert result.scorer.startswith("quality:stub/one@")
    with closing(Store(run)) as store:
        # Equal texts after equal prompts are asked about once.
        assert (before.calls, store.scoring().calls) == (0, 4)
    quality = study([run], scorers=["quality"]).arms[0].estimate("quality")
    assert quality is not None
    assert quality.value == pytest.approx(95)


async def test_a_budget_stops_it(workshop: Workshop, model):
    run = await a_run(workshop)

    with pytest.raises(BudgetExhausted):
        await rescore(run, ["quality"], Settings(budget=Limits(calls=1)))


async def test_choices_cannot_be_rescored(workshop: Workshop):
    workshop.model(lambda _messages, _params: "A")
    await workshop.run()

    with pytest.raises(PlanError, match="the answers of toy are choices; there is nothing to rescore"):
        await rescore(workshop.directory / "run", ["builtin"])


async def test_a_scorer_that_does_not_exist_is_told_before_anything_is_scored(workshop: Workshop, letters: Any, model):
    run = await a_run(workshop)

    with pytest.raises(UnknownNameError, match="letter"):
        await rescore(run, ["letters", "letter"])

    assert letters.seen == []


async def test_only_one_process_at_a_time(workshop: Workshop, letters: Any, model):
    run = await a_run(workshop)

    with locked(run), pytest.raises(PlanError, match="Another process"):
        await rescore(run, ["letters"])


async def test_a_directory_without_a_run_is_told_and_not_made(tmp_path: Path):
    with pytest.raises(PlanError, match="holds no run"):
        await rescore(tmp_path / "nothing", ["builtin"])

    assert not (tmp_path / "nothing").exists()
