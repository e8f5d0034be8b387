"""`evenhand init`: files that the other commands accept as they are, and a gate that no collapse passes."""

import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from evenhand.reading.text import abstains
from support.server import Body, Reply, chat

WORKFLOW, ACTION = ".github/workflows/evenhand.yml", ".github/actions/evenhand/action.yml"


EVENHAND = Path(sys.executable).with_name("evenhand")


def read(folder: Path, name: str) -> Any:
    # YAML 1.1 reads the key `on` as true.
    return yaml.safe_load((folder / name).read_text())


def steps(folder: Path) -> tuple[dict[str, str], list[dict[str, Any]]]:
    """What the workflow passes to the action, with the action's defaults; and the steps of the action."""
    [_, used] = read(folder, WORKFLOW)["jobs"]["gate"]["steps"]
    action = read(folder, f"{used['uses'].removeprefix('./')}/action.yml")
    assert set(used["with"]) <= set(action["inputs"])
    return {name: each["default"] for name, each in action["inputs"].items()} | used["with"], action["runs"]["steps"]


def environment(step: dict[str, Any], inputs: dict[str, str]) -> dict[str, str]:
    """The variables of a step, filled in as the runner does."""
    return {name: inputs[re.fullmatch(r"\$\{\{ inputs\.([\w-]+) \}\}", text)[1]] for name, text in step["env"].items()}


def abstaining(percent: Callable[[], int]) -> Callable[[Body], Reply]:
    """A model that leaves this share of the questions open, and names somebody in the others."""

    def answer(body: Body) -> Reply:
        asked = body["messages"][-1]["content"]
        options = dict(re.findall(r"^([A-C])[.):] (.+)$", asked, re.MULTILINE))
        is_open = int(hashlib.sha256(asked.encode()).hexdigest(), 16) % 100 < percent()
        return chat(next(letter for letter, text in options.items() if abstains(text) is is_open))

    return answer


def test_a_model_that_collapsed_behind_the_same_name_fails_the_gate(
    cli, endpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """It left 77 % of the questions open where the text does not say; restarted with another model, 9 %."""
    share = [77]
    server = endpoint(answer=abstaining(lambda: share[0]))
    made = cli("init", "p", "--model", "openai/prod", "--base-url", server.url)
    monkeypatch.chdir(tmp_path / "p")
    baseline, gate = (line.split("&& evenhand ")[1].split(" --json")[0].split() for line in made.out.splitlines()[-2:])
    Path("baseline.json").write_text(cli(*baseline, "--json").out)

    same = cli(*gate[:-3], "runs/same", *gate[-2:], "--no-cache")
    share[0] = 9
    worse = cli(*gate, "--no-cache")

    assert same.code == 0, same.out + same.err
    assert same.out.splitlines()[-1] == "Gate: passed."
    assert worse.code == 5
    assert "failed: default: fails if accuracy_ambig is worse than the baseline" in worse.out


@pytest.mark.parametrize("benchmark", ["bbq_builtin", "overrefusal", "stances"])
def test_the_gate_of_the_workflow_is_one_that_the_command_accepts(cli, tmp_path: Path, monkeypatch, benchmark: str):
    made = cli("init", "p", "--model", "fake/A", "--benchmark", benchmark, "--limit", "22")
    assert made.code == 0, made.err
    monkeypatch.chdir(tmp_path / "p")
    inputs, _ = steps(tmp_path / "p")
    Path("baseline.json").write_text(cli("audit", "--config", inputs["config"], "--out", "b", "--json").out)

    detect = [part for each in inputs["detect"].splitlines() for part in ("--detect", each)]
    words = ("gate", "--config", inputs["config"], "--against", inputs["against"], *detect)
    priced, result = cli(*words, "--dry-run"), cli(*words, "--out", inputs["out"])

    assert priced.code == 0, priced.err
    assert result.code in (0, 6), result.err
    assert "too few samples" in result.out
    assert (tmp_path / "p/runs/gate/report.html").is_file()


def test_the_number_of_samples_is_what_the_gate_needs_to_see_the_worsening(cli, tmp_path: Path):
    for name, percent in (("a", "20"), ("b", "10")):
        cli("init", name, "--model", "fake/A", "--detect", percent)

    assert [read(tmp_path / name, "plan.yaml")["limit"] for name in "ab"] == [786, 3140]


@pytest.mark.parametrize("given", ["flag", "variable", "spec"])
def test_the_endpoint_that_is_used_here_is_kept(cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str):
    url = "http://models.example.org/v1"
    if given == "variable":
        monkeypatch.setenv("OPENAI_BASE_URL", url)
    spec = f"openai/prod?base_url={url}" if given == "spec" else "openai/prod"

    cli("init", "p", "--model", spec, *(("--base-url", url) if given == "flag" else ()))

    assert read(tmp_path / "p", "plan.yaml")["models"] == [f"openai/prod?base_url={url}"]


def test_the_action_installs_a_version_or_the_checkout_and_never_the_newest(cli, tmp_path: Path):
    (tmp_path / "ours").mkdir()
    (tmp_path / "ours" / "pyproject.toml").write_text('[project]\nname = "evenhand"\n')
    made = cli("init", "p")
    cli("init", "ours")
    inputs, found = steps(tmp_path / "p")
    [install] = [step for step in found if "pip install" in step.get("run", "")]
    (tmp_path / "pip").write_text('#!/bin/sh\necho "$@"\n')
    (tmp_path / "pip").chmod(0o755)

    def run(**given: str) -> subprocess.CompletedProcess[str]:
        env = {
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            **environment(install, inputs | {"builtin": "false"} | given),
        }
        script = ["bash", "-eo", "pipefail", "-c", install["run"]]
        return subprocess.run(script, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)

    assert re.fullmatch(r"install evenhand\[local\]==\d+\.\d+\.\d+\S*\n", run().stdout)
    assert run(version="", source="ours", extras="").stdout == f"install {tmp_path / 'ours'}\n"
    assert run(version="").returncode == 2
    assert "check that it is published" in made.err
    assert steps(tmp_path / "ours")[0]["source"] == "."


def test_the_script_of_the_action_runs_the_gate(cli, tmp_path: Path):
    cli("init", "p", "--model", "fake/A", "--limit", "22")
    inputs, found = steps(tmp_path / "p")
    inputs |= {"fail-if": "|bias_ambig| > 100\ncoverage < $(touch hacked)0\n", "against": "", "detect": ""}
    [gate] = [step for step in found if step.get("id") == "gate"]
    path = {"PATH": f"{EVENHAND.parent}:{os.environ['PATH']}", "GITHUB_OUTPUT": str(tmp_path / "output")}
    script = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", gate["run"]]

    def run(**changed: str) -> subprocess.CompletedProcess[str]:
        given = {**path, **environment(gate, {**inputs, **changed})}
        return subprocess.run(script, cwd=tmp_path / "p", env=given, capture_output=True, text=True, check=False)

    refused, passed = run(), run(**{"fail-if": "|bias_ambig| > 100\n"})

    assert refused.returncode == 2
    assert "$(touch hacked)0" in refused.stderr
    assert not (tmp_path / "p/hacked").exists()
    assert passed.returncode == 0, passed.stderr
    assert (tmp_path / "output").read_text() == "code=2\ncode=0\n"


def test_action_and_workflow_have_the_form_that_github_wants(cli, tmp_path: Path):
    pytest.importorskip("check_jsonschema")
    cli("init", "p", "--model", "openai/x")
    for schema, name in (("vendor.github-actions", ACTION), ("vendor.github-workflows", WORKFLOW)):
        command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, str(tmp_path / "p" / name)]

        checked = subprocess.run(command, capture_output=True, text=True, check=False)

        assert checked.returncode == 0, checked.stdout


def test_every_input_of_the_action_is_used_and_none_is_pasted_into_a_script(cli, tmp_path: Path):
    cli("init", "p")
    inputs, found = steps(tmp_path / "p")

    whole = (tmp_path / "p" / ACTION).read_text()
    assert set(re.findall(r"inputs\.([\w-]+)", whole)) == set(inputs)
    assert all("${{" not in step.get("run", "") for step in found)
    assert all(step["shell"] == "bash" for step in found if "run" in step)
    assert all("@v" in step["uses"] for step in found if "uses" in step)


def test_nothing_is_overwritten(cli, tmp_path: Path):
    (tmp_path / "plan.yaml").write_text("mine")

    result = cli("init")

    assert result.code == 2
    assert "plan.yaml exists already" in result.err
    assert [path.name for path in tmp_path.iterdir()] == ["plan.yaml"]
    assert (tmp_path / "plan.yaml").read_text() == "mine"


def test_a_remote_model_gets_its_key_from_the_secrets(cli, tmp_path: Path):
    cli("init", "a", "--model", "openai/x")
    cli("init", "b")

    remote, local = ((tmp_path / name / WORKFLOW).read_text() for name in "ab")
    assert "OPENAI_API_KEY: ${{ secrets.OPENAI_API_KEY }}" in remote
    assert "secrets" not in local
    assert (steps(tmp_path / "b")[0]["extras"], steps(tmp_path / "b")[0]["builtin"]) == ("local", "true")
    assert (steps(tmp_path / "a")[0]["extras"], steps(tmp_path / "a")[0]["builtin"]) == ("", "false")


def test_a_wrong_name_is_refused_before_anything_is_written(cli, tmp_path: Path):
    assert "bbq_builtin" in cli("init", "p", "--benchmark", "bbq_buildin").err
    assert not (tmp_path / "p").exists()
