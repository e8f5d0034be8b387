"""`evenhand run export --format eval`, read back by Inspect."""

from typing import Any

import pytest

pytest.importorskip("inspect_ai", reason="needs pip install 'evenhand[inspect]'")

from inspect_ai.log import EvalLog, read_eval_log

from evenhand import compare
from evenhand.core.errors import BadResponseError
from evenhand.core.types import Completion
from evenhand.models.budget import Limits
from evenhand.models.fake import Reply
from evenhand.studies.study import study
from support.runs import Workshop
from support.shell import Shell
from support.toy import number_of, right_answer

pytestmark = [
    pytest.mark.clients,  # see test_inspect.py
    pytest.mark.filterwarnings("ignore:The 'initial' parameter is deprecated"),
    pytest.mark.filterwarnings("ignore:Unclosed <MemoryObject:ResourceWarning"),
]


def answer(messages: Any, _params: Any) -> Reply:
    """Right, but one refusal, one that names no option, one failure."""
    odd: dict[int, Reply] = {
        3: Completion("No.", refusal="I decline."),
        4: "pass",
        5: BadResponseError("broken JSON"),
    }
    return odd.get(number_of(messages)) or Completion(right_answer(messages), thought="Hm.")


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(monkeypatch, capsys)


@pytest.fixture
async def logs(workshop: Workshop, shell: Shell) -> list[EvalLog]:
    workshop.model(answer)
    await workshop.run(methods=["default", "fair_prompt"])
    assert shell("run", "export", workshop.directory / "run", "--format", "eval") == 0, shell.err
    files = sorted((workshop.directory / "run" / "inspect").iterdir())
    return [read_eval_log(str(file), resolve_attachments=True) for file in files]


def test_samples_and_scores_are_those_of_the_run(logs: list[EvalLog], workshop: Workshop) -> None:
    rows = workshop.rows()
    assert [log.eval.solver for log in logs] == ["evenhand/default", "evenhand/fair_prompt"]
    for log in logs:
        assert (log.status, log.eval.task, log.eval.model) == ("success", "evenhand/toy", "stub/one")
        own = {row["sample"]: row for row in rows if f"evenhand/{row['method']}" == log.eval.solver}
        assert log.samples is not None
        assert [sample.id for sample in log.samples] == list(own)
        for sample in log.samples:
            row = own[str(sample.id)]
            assert sample.scores is not None
            found = sample.scores["grade"]
            value: Any = found.value
            assert found.metadata is not None
            assert found.metadata["status"] == row["status"]
            assert found.answer == row["answer"]
            if row["status"] == "graded":
                assert value["correct"] == row["grade_correct"]
                assert found.metadata["grade"]["kind"] == row["grade_kind"]
            else:
                assert value == {"graded": False}
            assert sample.target == "ABC"[row["target"]]


def test_refusals_and_failures_are_shown_as_such(logs: list[EvalLog]) -> None:
    assert logs[0].samples is not None
    samples = {sample.id: sample for sample in logs[0].samples}
    reasons = {number: (samples[f"toy/{number:04}"].scores or {})["grade"].reason for number in (2, 3, 4, 5)}
    assert reasons == {2: None, 3: "refusal", 4: "invalid_response_format", 5: "failed"}
    error = samples["toy/0005"].error
    assert error is not None
    assert error.message == "broken JSON"


def test_metrics_have_the_intervals_of_the_report(logs: list[EvalLog], workshop: Workshop) -> None:
    arms = compare(workshop.directory / "run").arms
    for log, arm in zip(logs, arms, strict=True):
        assert log.results is not None
        metrics = log.results.scores[0].metrics
        for estimate in arm.estimates:
            if estimate.group == "all" and estimate.value is not None:
                names = (estimate.metric, f"{estimate.metric}_low", f"{estimate.metric}_high")
                assert [metrics[name].value for name in names if name in metrics] == [
                    each for each in (estimate.value, estimate.low, estimate.high) if each is not None
                ]
        assert {status: metrics[f"samples_{status}"].value for status in arm.statuses} == arm.statuses


def test_every_call_is_there_with_its_thoughts(logs: list[EvalLog]) -> None:
    assert logs[0].samples is not None
    (event,) = [event for event in logs[0].samples[0].events if event.event == "model"]
    assert event.role == "base"
    assert event.input[-1].text.startswith("Read the passage")
    content: Any = event.output.choices[0].message.content
    assert [part.type for part in content] == ["reasoning", "text"]


async def test_an_unfinished_run_is_no_success(workshop: Workshop, shell: Shell) -> None:
    workshop.model(answer)
    await workshop.run(settings={"budget": Limits(calls=6), "concurrency": 1})
    assert shell("run", "export", workshop.directory / "run", "--out", workshop.directory / "one.eval") == 0, shell.err
    log = read_eval_log(str(workshop.directory / "one.eval"))
    assert log.status == "cancelled"
    assert log.results is not None
    assert log.results.total_samples == 24
    assert 0 < len(log.samples or ()) < 24


async def test_wrong_options_are_one_sentence(workshop: Workshop, shell: Shell) -> None:
    workshop.model(answer)
    await workshop.run(methods=["default", "fair_prompt"], limit=2)
    run = workshop.directory / "run"
    assert shell("run", "export", run, "--out", workshop.directory / "one.eval") == 2
    assert "has 2 arms" in shell.err
    assert shell("run", "export", run, "--format", "eval", "--table", "turns") == 2
    assert "remove --table" in shell.err


async def test_a_log_that_inspect_wrote_is_imported_again_with_the_same_numbers(
    logs: list[EvalLog], workshop: Workshop, shell: Shell
) -> None:
    files = sorted((workshop.directory / "run" / "inspect").iterdir())

    done = shell("runs", "import", files[0], "--model", "again", "--out", workshop.directory / "again")

    assert done == 0, shell.err
    (arm,) = study([workshop.directory / "again"]).arms
    graded = [row for row in workshop.rows() if row["method"] == "default" and row["status"] == "graded"]
    assert arm.statuses["graded"] == len(graded)
    (accuracy,) = [each.value for each in arm.estimates if (each.metric, each.group) == ("accuracy", "all")]
    assert accuracy == pytest.approx(100 * sum(row["grade_correct"] for row in graded) / len(graded))
