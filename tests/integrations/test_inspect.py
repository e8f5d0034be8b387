"""Inspect AI runs our benchmarks, methods and scorers; its mock provider plays the model."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

pytest.importorskip("inspect_ai", reason="needs pip install 'evenhand[inspect]'")

from inspect_ai import Task, eval, score  # noqa: A004
from inspect_ai._util.error import PrerequisiteError
from inspect_ai.agent import as_solver, react
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.log import EvalLog, list_eval_logs, read_eval_log
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.model._providers.mockllm import MockLLM
from inspect_ai.scorer import choice
from inspect_ai.solver import generate, multiple_choice, use_tools

from evenhand import audit
from evenhand.integrations.inspect import SCORERS_OF_TEXTS, SOLVERS, TASKS, world_tools
from evenhand.integrations.inspect.scorers import grade
from evenhand.models.fake import FunctionModel

# Inspect's own use of tenacity and anyio, not ours to mend. It also replaces asyncio.run for the whole process by one
# that closes no loop, for which later tests would be blamed.
pytestmark = [
    pytest.mark.clients,
    pytest.mark.filterwarnings("ignore:The 'initial' parameter is deprecated"),
    pytest.mark.filterwarnings("ignore:Unclosed <MemoryObject:ResourceWarning"),
]
Answering = Callable[[str], str]


def says_b(_asked: str) -> str:
    return "B"


def mock(answer: Answering, stop_reason: Any = "stop") -> Any:
    def output(messages: list[Any], *_: object) -> ModelOutput:
        made = ModelOutput.from_content("mockllm", answer(messages[-1].text), stop_reason=stop_reason)
        made.usage = ModelUsage(input_tokens=3, output_tokens=1, total_tokens=4)
        return made

    return get_model("mockllm/model", custom_outputs=output, memoize=False)


def run(task: Any, model: Any, folder: Path, **options: Any) -> EvalLog:
    (log,) = eval(task, model=model, log_dir=str(folder), display="none", **options)
    return read_eval_log(log.location)


def metrics(log: EvalLog, scorer: str = "grade") -> dict[str, float]:
    assert log.results is not None
    (score,) = [each for each in log.results.scores if each.scorer == scorer]
    return {name: each.value for name, each in score.metrics.items()}


def test_the_command_runs_a_method_on_a_benchmark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from inspect_ai._cli.main import inspect

    async def counted(*_: object) -> int:
        return 5

    monkeypatch.setattr(MockLLM, "count_tokens", counted)  # it would download a tokenizer
    words = "eval evenhand/bbq_builtin --solver evenhand/stardtox -S iterations=1 --model mockllm/model --limit 3"
    done = CliRunner().invoke(inspect, [*words.split(), "--log-dir", str(tmp_path), "--display", "none"])
    assert done.exit_code == 0, done.output
    (file,) = list_eval_logs(str(tmp_path))
    log = read_eval_log(file)
    assert (log.status, log.eval.task, log.eval.solver) == ("success", "evenhand/bbq_builtin", "evenhand/stardtox")
    found = metrics(log)
    # The mock provider names no option: nothing is graded, and nothing is counted as unbiased.
    assert (found["samples_graded"], found["samples_unscored"]) == (0, 3)
    assert "bias_ambig" not in found


def test_numbers_are_those_of_our_own_run(tmp_path: Path) -> None:
    log = run("evenhand/bbq_builtin", mock(says_b), tmp_path / "logs", limit=44)
    ours = audit(FunctionModel(lambda *_: "B", spec="stub/b"), out=tmp_path / "run", limit=44).arms[0]
    found = metrics(log)
    assert found["samples_graded"] == 44
    for name in ("bias_ambig", "accuracy_ambig", "accuracy_disambig"):
        estimate = ours.estimate(name)
        assert estimate is not None
        assert (found[name], found[f"{name}_low"], found[f"{name}_high"]) == pytest.approx(
            (estimate.value, estimate.low, estimate.high)
        )


def test_every_call_is_in_the_log(tmp_path: Path) -> None:
    log = run("evenhand/bbq_builtin", mock(says_b), tmp_path, limit=1, solver=SOLVERS["cot"]())
    assert log.samples is not None
    (sample,) = log.samples
    calls = [event for event in sample.events if event.event == "model"]
    assert len(calls) == log.stats.model_usage["mockllm/model"].input_tokens / 3
    assert sample.model_usage["mockllm/model"].total_tokens == 4 * len(calls)


def test_a_limit_of_inspect_ends_a_sample(tmp_path: Path) -> None:
    log = run("evenhand/bbq_builtin", mock(says_b), tmp_path, limit=1, solver=SOLVERS["cot"](), token_limit=3)
    assert log.samples is not None
    limit = log.samples[0].limit
    assert limit is not None
    assert limit.type == "token"


def test_a_refusal_is_shown_as_such(tmp_path: Path) -> None:
    refuses = mock(lambda _: "I cannot help with that.", "content_filter")
    log = run("evenhand/bbq_builtin", refuses, tmp_path, limit=2)
    assert log.samples is not None
    for sample in log.samples:
        assert sample.scores is not None
        score = sample.scores["grade"]
        assert (score.reason, score.value) == ("refusal", {"graded": False})
    found = metrics(log)
    assert (found["samples_graded"], found["samples_refused"]) == (0, 2)


def test_a_failed_sample_is_shown_as_such_and_the_others_count(tmp_path: Path) -> None:
    calls = 0

    def fails_once(_asked: str) -> str:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise RuntimeError("the line is down")
        return "B"

    log = run("evenhand/bbq_builtin", mock(fails_once), tmp_path, limit=4, max_samples=1)
    assert log.status == "success"
    assert log.samples is not None
    errors = [sample.error.message for sample in log.samples if sample.error]
    assert len(errors) == 1
    assert "the line is down" in errors[0]
    found = metrics(log)
    assert (found["samples_graded"], found["samples_failed"]) == (3, 1)


def test_a_model_that_never_answers_ends_the_evaluation(tmp_path: Path) -> None:
    def fails(_asked: str) -> str:
        raise RuntimeError("the line is down")

    log = run("evenhand/bbq_builtin", mock(fails), tmp_path, limit=4)
    assert log.status == "error"


def test_scores_of_texts_are_part_of_the_grade(tmp_path: Path) -> None:
    task = TASKS["realtoxicity_builtin"](limit=2, scorers="builtin", completions=1)
    log = run(task, mock(lambda _: "and they walked home in the rain."), tmp_path)
    assert log.samples is not None
    for sample in log.samples:
        assert sample.scores is not None
        value: Any = sample.scores["grade"].value
        assert 0 <= value["toxicity"] <= 1


def test_a_role_of_inspect_is_a_role_of_the_method(tmp_path: Path) -> None:
    judge = mock(lambda _: "no")
    solver = SOLVERS["stardtox"](iterations=1)
    log = run("evenhand/bbq_builtin", mock(says_b), tmp_path, limit=1, solver=solver, model_roles={"judge": judge})
    assert log.samples is not None
    calls = [event for event in log.samples[0].events if event.event == "model"]
    assert {event.role for event in calls} == {None, "judge"}


def test_methods_and_scorers_serve_tasks_of_others(tmp_path: Path) -> None:
    questions = [Sample("Which is a fruit?", choices=["stone", "apple"], target="B")]
    task = Task(MemoryDataset(questions), solver=SOLVERS["default"](), scorer=choice())
    log = run(task, mock(lambda asked: "AB"[asked.index("apple") > asked.index("stone")]), tmp_path / "choice")
    assert metrics(log, "choice")["accuracy"] == 1

    chats = [Sample("Say something kind.", target="")]
    task = Task(MemoryDataset(chats), solver=SOLVERS["fair_prompt"](), scorer=SCORERS_OF_TEXTS["builtin"]())
    log = run(task, mock(lambda _: "You did well."), tmp_path / "chat")
    assert log.samples is not None
    assert log.samples[0].scores is not None
    value: Any = log.samples[0].scores["builtin"].value
    assert 0 <= value["toxicity"] < 0.5


def test_solvers_of_inspect_solve_our_tasks(tmp_path: Path) -> None:
    log = run("evenhand/bbq_builtin", mock(lambda _: "ANSWER: B"), tmp_path, limit=3, solver=multiple_choice())
    assert metrics(log)["samples_graded"] == 3


def test_a_wrong_option_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(PrerequisiteError, match="iteration"):
        SOLVERS["stardtox"](iteration=1)
    with pytest.raises(PrerequisiteError, match="limit must be at least 1"):
        TASKS["bbq_builtin"](limit=0)


@pytest.mark.parametrize(
    "name", ["bbq_builtin", "squad_builtin", "realtoxicity_builtin", "malibu", "debates", "hiring_builtin"]
)
def test_samples_survive_the_way_through_inspect(name: str) -> None:
    from evenhand.benchmarks.base import Selection, load_benchmark
    from evenhand.integrations.inspect.samples import inspect_sample, own_sample, plain_values
    from evenhand.runs.store import sample_from

    for sample in load_benchmark(name).samples(Selection(3)):
        made = inspect_sample(sample, name, {})
        assert made.metadata is not None
        assert own_sample(str(made.id), made.metadata) == sample_from(plain_values(sample))


def unfair_agent() -> Any:
    """A model that reads the ticket and gives nothing to those who say that they are Black."""

    def reply(messages: list[Any]) -> ModelOutput:
        heard = " ".join(each.text for each in messages)
        if messages[-1].role != "tool":
            return ModelOutput.for_tool_call("mockllm", "read_ticket", {})
        if "closed" in messages[-1].text:
            return ModelOutput.from_content("mockllm", "All done.")
        decision = "deny" if "Black" in heard else "refund"
        return ModelOutput.for_tool_call("mockllm", "decide", {"decision": decision, "message": "So it is."})

    def output(messages: list[Any], *_: object) -> ModelOutput:
        made = reply(messages)
        made.usage = ModelUsage(input_tokens=3, output_tokens=1, total_tokens=4)
        return made

    return get_model("mockllm/model", custom_outputs=output, memoize=False)


@pytest.mark.parametrize("kind", ["agent", "solver"])
def test_an_agent_of_inspect_plays_our_simulated_tools(kind: str, tmp_path: Path) -> None:
    solver = (
        as_solver(react(tools=[world_tools()], submit=False))
        if kind == "agent"
        else [use_tools(world_tools()), generate(tool_calls="loop")]
    )
    options: dict[str, Any] = {"worlds": ["refunds"], "attributes": ["race"], "signals": ["statement"]}

    log = run(TASKS["agents"](limit=4, **options), unfair_agent(), tmp_path, solver=solver)

    assert log.status == "success", log.error
    found = metrics(log)
    assert found["samples_graded"] == 16
    assert found["flip_rate"] == 50
    assert found["favourable"] == 75
    assert found["looked_up"] == 1


def test_an_agent_that_only_talks_leaves_the_case_open(tmp_path: Path) -> None:
    options: dict[str, Any] = {"worlds": ["refunds"], "attributes": ["race"], "signals": ["statement"]}
    solver = [use_tools(world_tools()), generate(tool_calls="loop")]

    found = metrics(run(TASKS["agents"](limit=1, **options), mock(says_b), tmp_path, solver=solver))

    assert (found["samples_graded"], found["undecided"]) == (4, 100)


def test_a_strangers_log_executes_no_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = run("evenhand/bbq_builtin", mock(says_b), tmp_path / "logs", limit=2)
    monkeypatch.chdir(tmp_path)
    Path("bench.py").write_text("open('was-run', 'w').close()\n")
    for sample in log.samples or ():
        sample.metadata["evenhand"]["benchmark"] = "./bench.py"

    with pytest.raises(Exception, match="names the Python code"):
        score(log, grade())

    assert not Path("was-run").exists()
