"""The files in deploy/shards: linters and shells accept them, and what they run makes the whole run."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from evenhand.runs.store import Store

SHARDS = Path(__file__).parents[2] / "deploy" / "shards"
JOB = yaml.safe_load((SHARDS / "kubernetes-job.yaml").read_text())
TASK = yaml.safe_load((SHARDS / "skypilot.yaml").read_text())
CONTAINER = JOB["spec"]["template"]["spec"]["containers"][0]
PLAN = {"models": ["fake/B"], "limit": 32, "methods": ["default"]}


def check(*command: str, env: dict[str, str] | None = None) -> None:
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def bash(script: str, *arguments: str, **variables: str) -> None:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, **variables}
    check("bash", "-c", script, "bash", *arguments, env=environment)


@pytest.mark.parametrize(
    "script", [(SHARDS / "slurm.sh").read_text(), CONTAINER["args"][0], TASK["setup"], TASK["run"]]
)
def test_shells_accept_the_scripts(script: str):
    subprocess.run(["bash", "-n", "-c", script], check=True, capture_output=True)


def test_the_job_is_valid_for_kubernetes():
    tool = Path(sys.executable).with_name("kubernetes-validate")
    if not tool.exists():
        pytest.skip("kubernetes-validate is not installed")
    check(str(tool), "--strict", str(SHARDS / "kubernetes-job.yaml"))


def test_all_files_name_as_many_shards_as_they_start():
    script = (SHARDS / "slurm.sh").read_text()
    assert "#SBATCH --array=1-8\n" in script
    assert "\ncount=8\n" in script
    values = {each["name"]: each.get("value") for each in CONTAINER["env"]}
    assert JOB["spec"]["completions"] == int(values["SHARDS"]) == int(TASK["envs"]["SHARDS"]) == 8


def test_the_task_has_the_fields_of_skypilot():
    fields: dict[str, type[Any]] = {
        **{"name": str, "resources": dict, "envs": dict, "file_mounts": dict, "setup": str, "run": str},
        **{"workdir": str, "num_nodes": int, "secrets": dict, "service": dict, "volumes": dict},
    }
    assert all(isinstance(value, fields[name]) for name, value in TASK.items())
    assert all(isinstance(value, str) for value in TASK["envs"].values())


@pytest.mark.processes
def test_a_slurm_array_makes_the_whole_run(tmp_path: Path):
    (tmp_path / "plan.yaml").write_text(yaml.safe_dump(PLAN))
    script = (SHARDS / "slurm.sh").read_text()
    for shard in range(1, 9):
        bash(script, str(tmp_path / "plan.yaml"), str(tmp_path / "whole"), SLURM_ARRAY_TASK_ID=str(shard))
    assert Store(tmp_path / "whole").get("samples") == 32


@pytest.mark.processes
def test_a_kubernetes_job_keeps_its_shards_in_storage_and_goes_on_with_them(tmp_path: Path):
    (tmp_path / "plan.yaml").write_text(yaml.safe_dump(PLAN))
    script = CONTAINER["args"][0].replace("/plan/plan.yaml", str(tmp_path / "plan.yaml"))
    storage = (tmp_path / "bucket").as_uri()
    for index, pod in [(0, "one"), (1, "two"), (1, "two again")]:
        place = script.replace("/work/shard", str(tmp_path / pod.replace(" ", "-")))
        bash(f"set -euo pipefail\n{place}", STORAGE=storage, SHARDS="2", JOB_COMPLETION_INDEX=str(index))
    bash('evenhand run merge "$1/1" "$1/2" --out "$2"', str(tmp_path / "bucket"), str(tmp_path / "whole"))
    assert Store(tmp_path / "whole").get("samples") == 32
