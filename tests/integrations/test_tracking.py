"""Results in a real MLflow store and in offline runs of Weights & Biases."""

import struct
import sys
from pathlib import Path
from typing import Any

import pytest

from evenhand import compare
from evenhand.integrations import tracking
from evenhand.integrations.tracking import failure, log_results
from support.runs import Workshop
from support.shell import Shell
from support.toy import right_answer

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
# of MLflow's and W&B's own packages, not ours to mend
BROKEN = "mlflow:http://127.0.0.1:9"


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Shell:
    monkeypatch.chdir(tmp_path)
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME", "WANDB_MODE", "WANDB_PROJECT", "WANDB_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    return Shell(monkeypatch, capsys)


@pytest.fixture
async def run(workshop: Workshop) -> Path:
    workshop.model(lambda messages, _params: right_answer(messages))
    await workshop.run(methods=["default", "fair_prompt"])
    return workshop.directory / "run"


@pytest.mark.clients
def test_mlflow_gets_metrics_with_intervals_the_config_and_the_report(run: Path, shell: Shell, tmp_path: Path) -> None:
    pytest.importorskip("mlflow", reason="needs pip install 'evenhand[mlflow]'")
    from mlflow.tracking import MlflowClient

    uri = f"sqlite:///{tmp_path / 'store.db'}"
    assert shell("report", run, "--log-to", f"mlflow:{uri}") == 0, shell.err
    assert "Logged to mlflow" in shell.out
    client: Any = MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name("evenhand")
    logged = {each.data.params["method"]: each for each in client.search_runs([experiment.experiment_id])}
    arms = compare(run).arms
    assert set(logged) == {"default", "fair_prompt"}
    for arm in arms:
        found = logged[arm.method]
        estimate = arm.estimate("accuracy_ambig")
        assert estimate is not None
        metrics = found.data.metrics
        assert metrics["accuracy_ambig"] == estimate.value
        assert (metrics["accuracy_ambig_low"], metrics["accuracy_ambig_high"]) == (estimate.low, estimate.high)
        assert (metrics["accuracy_ambig_n"], metrics["samples_graded"]) == (12, 24)
        assert found.data.params["model_base"] == "stub/one"
        assert found.info.status == "FINISHED"
        files = {each.path for each in client.list_artifacts(found.info.run_id)}
        assert files == {"plans.json", "metrics.csv", "effects.csv", "report.html"}

    # The same from Python; no run is left active in this process.
    assert len(log_results(f"mlflow:{uri}", compare(run), [run])) == 2
    assert len(client.search_runs([experiment.experiment_id])) == 4
    assert sys.modules["mlflow"].active_run() is None


@pytest.mark.clients
def test_a_store_that_cannot_be_reached_loses_nothing(run: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mlflow", reason="needs pip install 'evenhand[mlflow]'")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    assert shell("report", run, "--log-to", BROKEN) == 0
    assert (run / "report.html").is_file()
    assert "did not take the results" in shell.err
    assert f"evenhand report {run} --log-to {BROKEN}" in shell.err
    assert "Traceback" not in shell.err


@pytest.mark.clients
def test_wandb_gets_the_same_offline(run: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("wandb", reason="needs pip install 'evenhand[wandb]'")
    monkeypatch.setenv("WANDB_MODE", "offline")
    assert shell("report", run, "--log-to", "wandb:fairness") == 0, shell.err
    assert shell.out.count("wandb sync") == 2
    histories = [_records(file) for file in sorted(tmp_path.glob("wandb/offline-run-*/*.wandb"))]
    assert len(histories) == 2
    estimate = compare(run).arms[0].estimate("accuracy_ambig")
    assert estimate is not None
    for records in histories:
        (begun,) = [record.run for record in records if record.HasField("run")]
        assert (begun.project, begun.run_group) == ("fairness", "run")
        summary = {
            item.key or item.nested_key[0]: item.value_json
            for record in records
            if record.HasField("summary")
            for item in record.summary.update
        }
        assert float(summary["accuracy_ambig"]) == estimate.value
        assert float(summary["accuracy_ambig_low"]) == estimate.low
        (artifact,) = [
            record.request.log_artifact.artifact if record.HasField("request") else record.artifact
            for record in records
            if record.HasField("artifact") or (record.HasField("request") and record.request.HasField("log_artifact"))
        ]
        assert {entry.path for entry in artifact.manifest.contents} >= {"report.html", "metrics.csv"}


def _records(file: Path) -> list[Any]:
    """What W&B wrote for its sync: a log in blocks, as LevelDB has them, after a header of 7 bytes."""
    from wandb.proto import wandb_internal_pb2

    data, at, parts, found = file.read_bytes(), 7, b"", []
    while at < len(data):
        if (left := 32768 - at % 32768) < 7:
            at += left
            continue
        _, size, kind = struct.unpack("<IHB", data[at : at + 7])
        parts += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # whole, or the last part
            found.append(wandb_internal_pb2.Record.FromString(parts))
            parts = b""
    return found


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ("mflow", "did you mean mlflow?"),
        ("mlflow:https://me:secret@host", "set it in the environment"),
        ("wandb", "wandb login"),
    ],
)
def test_mistakes_are_reported_before_the_first_call(spec: str, sentence: str, shell: Shell, tmp_path: Path) -> None:
    pytest.importorskip("wandb", reason="needs pip install 'evenhand[wandb]'")
    code = shell("audit", "fake/echo", "--limit", "2", "--out", tmp_path / "new", "--log-to", spec)
    assert code == 2
    assert sentence in shell.err
    assert "secret" not in shell.err
    assert not (tmp_path / "new").exists()


def test_the_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch, shell: Shell, tmp_path: Path) -> None:
    monkeypatch.setattr(tracking.importlib.util, "find_spec", lambda _name: None)
    assert shell("audit", "fake/echo", "--limit", "2", "--log-to", "mlflow") == 2
    assert "[mlflow]" in shell.err


def test_an_audit_logs_by_itself_and_keeps_what_it_was_told(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    logged: list[tuple[str, list[Path], Path | None]] = []

    def log(spec: str, _result: object, runs: list[Path], report: Path | None) -> list[str]:
        logged.append((spec, runs, report))
        raise RuntimeError("the store at http://me:secret@host is full\nand more")

    monkeypatch.setattr(tracking, "load_tracker", lambda _spec: None)
    monkeypatch.setattr(tracking, "log_results", log)
    out = tmp_path / "new"
    words = ["audit", "fake/first", "--limit", "4", "--out", str(out), "--log-to", "mlflow", "--max-failed", "100%"]
    code = shell(*words)
    assert code in (0, 4)
    assert [(spec, runs) for spec, runs, _ in logged] == [("mlflow", [out])]
    assert "the store at http://…@host is full. They are stored" in shell.err
    assert shell("resume", out) == code
    assert len(logged) == 2


def test_errors_are_one_line() -> None:
    assert failure(ValueError("")) == "ValueError"
    assert failure(ValueError("a.\nb")) == "a"
