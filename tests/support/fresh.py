"""Fresh Python processes that need not import Evenhand again: one has imported it, and forks for each script."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple, Self

_FORKING = """
import importlib, json, os, runpy, sys

for name in sys.argv[1:]:
    importlib.import_module(name)
for line in sys.stdin:
    job = json.loads(line)
    if not (child := os.fork()):
        break
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
else:
    sys.exit()
for number, name in enumerate(("/dev/null", job["out"], job["err"])):
    os.dup2(os.open(name, os.O_RDWR | os.O_CREAT), number)
os.chdir(job["folder"])
os.environ.update(job["environment"])
sys.argv = [job["script"]]
sys.path[0] = job["folder"]
runpy.run_path(job["script"], run_name="__main__")
"""


class Ended(NamedTuple):
    code: int
    out: str
    err: str


class Fresh:
    """Runs scripts, each in a process where `modules` are imported and nothing else has happened."""

    def __init__(self, *modules: str) -> None:
        call = [sys.executable, "-W", "error", "-c", _FORKING, *modules]
        self._process = subprocess.Popen(call, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __call__(self, script: Path, **environment: str) -> Ended:
        """Run a script in its own folder."""
        assert self._process.stdin and self._process.stdout
        out, err = script.with_suffix(".out"), script.with_suffix(".err")
        job = {"script": str(script), "folder": str(script.parent), "out": str(out), "err": str(err)}
        self._process.stdin.write(json.dumps({**job, "environment": {**os.environ, **environment}}) + "\n")
        self._process.stdin.flush()
        return Ended(int(self._process.stdout.readline()), out.read_text("utf-8"), err.read_text("utf-8"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._process:
            assert self._process.stdin
            self._process.stdin.close()
