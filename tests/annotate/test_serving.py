"""`evenhand annotate ui` as a process: links work, a kill loses nothing, and the sheets are filled when it stops."""

from __future__ import annotations

import csv
import json
import re
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evenhand.annotate.pages import Served, read_secret, serve_studies
from evenhand.core.errors import UsageError
from support.rating_study import make_study

START = "import sys; from evenhand.cli.main import entry; sys.argv[0] = 'evenhand'; entry()"


class Process:
    """The command on a free port, with the links that it has printed."""

    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, "-c", START, "annotate", "ui", "--port", "0", "--cover", "none", *arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert self.process.stdout is not None
        self.said = ""
        for line in self.process.stdout:
            self.said += line
            if "Keep the links private" in line:
                break
        self.links = dict(re.findall(r"^(?:  )?(.+?)[:\s]+(http\S+#\S+)$", self.said, re.MULTILINE))

    def ask(self, link: str, path: str, body: Any = None, form_token: str = "") -> Any:
        address, _, token = link.partition("#")
        headers = {"Authorization": f"Bearer {token}", "X-Token": form_token, "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        url = re.sub("(?<=[0-9])/.*", path, address)
        with urllib.request.urlopen(urllib.request.Request(url, data, headers)) as response:
            return json.load(response)

    def end(self, how: signal.Signals) -> tuple[int, str]:
        self.process.send_signal(how)
        rest, _ = self.process.communicate(timeout=60)
        return self.process.returncode, rest


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_study(tmp_path_factory.mktemp("study"))


@pytest.fixture
def start(folder: Path) -> Iterator[Any]:
    started: list[Process] = []

    def begin(*arguments: str) -> Process:
        started.append(Process(str(folder), *arguments))
        return started[-1]

    yield begin
    for each in started:
        if each.process.poll() is None:
            each.end(signal.SIGKILL)


async def test_a_copy_with_the_same_links_is_refused(folder: Path, tmp_path: Path):
    read_secret(folder)
    shutil.copytree(folder, tmp_path / "copy")

    with pytest.raises(UsageError, match=r"copy is a copy of .*ratings and has the same links. Remove its links\.key"):
        await serve_studies([folder, tmp_path / "copy"], Served(port=0, cover="none"), lambda _: None)


@pytest.mark.processes
def test_a_killed_server_has_lost_nothing_and_the_same_links_go_on(start: Any, folder: Path):
    first = start()
    assert {"ratings, for you", "ann", "ben"} == set(first.links)
    token = first.ask(first.links["ann"], "/api/rating")["token"]
    for place in range(10):
        first.ask(first.links["ann"], "/api/rating", {"place": place, "scale": "BS", "value": 10 * place}, token)
    assert first.end(signal.SIGKILL)[0] == -signal.SIGKILL

    second = start()
    ratings = second.ask(second.links["ann"], "/api/rating")["ratings"]
    assert ratings == {str(place): {"BS": 10 * place} for place in range(10)}
    assert first.links["ann"].partition("#")[2] == second.links["ann"].partition("#")[2]
    assert second.ask(second.links["ratings, for you"], "/api/study")["progress"][0]["done"] == 0

    code, rest = second.end(signal.SIGINT)
    assert (code, rest) == (0, "ratings: 10 ratings are in the sheets.\n")
    with (folder / "raters" / "ann.csv").open(encoding="utf-8-sig", newline="") as file:
        assert [row["BS"] for row in csv.DictReader(file)] == [str(10 * place) for place in range(10)]


@pytest.mark.processes
def test_open_to_other_machines_it_says_what_to_mind(start: Any):
    said = start("--host", "0.0.0.0").said

    assert "give its address with --url" in said
    assert "put a TLS proxy in front" in said


@pytest.mark.processes
def test_new_links_replace_the_old_ones_and_may_name_a_proxy(start: Any):
    old = start()
    old.end(signal.SIGTERM)
    new = start("--new-links", "--url", "https://ratings.example.org/")

    assert new.links["ann"].startswith("https://ratings.example.org/#")
    assert new.links["ann"].partition("#")[2] != old.links["ann"].partition("#")[2]
