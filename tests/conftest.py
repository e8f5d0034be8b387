"""What all tests share: a clean environment, one thread per process, limits, and `support` on the path."""

import atexit
import gc
import os
import signal
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Test processes run side by side. Numerical libraries read these when they are imported, here and in subprocesses.
for _pool in ("OMP", "OPENBLAS", "MKL", "RAYON"):
    os.environ[f"{_pool}_NUM_THREADS"] = "1"

# Runs are marked with a key of their machine; that of the machine that runs the tests is left alone.
_state = tempfile.TemporaryDirectory(prefix="evenhand-state-")
atexit.register(_state.cleanup)
os.environ["XDG_STATE_HOME"] = _state.name

# With --import-mode=importlib nothing is put on the path; shared fakes are plain modules, imported as `support.…`.
sys.path.insert(0, str(Path(__file__).parent))

CPU_SECONDS, WALL_SECONDS = 120, 1800
"""CPU time bounds a test on a busy machine as well; the clock is for tests that wait for ever."""
WEIGHTS_CPU_SECONDS = 600
"""Real weights are read from memory for every token, which takes several times as long where others read as well."""

# No example is too slow on a busy machine; the same ones are tried each time.
settings.register_profile(
    "tests", max_examples=50, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
settings.load_profile("tests")

pytest_plugins = ["support.browser", "support.fixtures", "support.runs"]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that read public sets as a whole, where this machine has them, are slow."""
    for item in items:
        if {"official", "public"} & {*getattr(item, "fixturenames", ())}:
            item.add_marker(pytest.mark.slow)


def pytest_collection_finish() -> None:
    """What was imported stays, so garbage collections need not look through it again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _uncontrolled(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs check no judge by controls, which fake judges know nothing of, unless a test has the mark `controls`."""
    if request.node.get_closest_marker("controls") is None:
        monkeypatch.setattr("evenhand.runs.controls.ON", "when a test wants it")


@pytest.fixture(autouse=True)
def _swept(request: pytest.FixtureRequest) -> Iterator[None]:
    """Collect what packages of other projects leave open with the test that ran them, not with a later one."""
    yield
    if any(request.node.get_closest_marker(name) for name in ("clients", "network", "processes")):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            gc.collect()


@pytest.fixture(autouse=True)
def _bounded(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test that hangs fails, with a trace of where."""
    if not hasattr(signal, "setitimer"):
        yield
        return

    cpu = WEIGHTS_CPU_SECONDS if request.node.get_closest_marker("weights") else CPU_SECONDS

    def give_up(*_: object) -> None:
        raise TimeoutError(f"This test took more than {cpu} s of CPU time or {WALL_SECONDS} s in all.")

    limits = ((signal.SIGPROF, signal.ITIMER_PROF, cpu), (signal.SIGALRM, signal.ITIMER_REAL, WALL_SECONDS))
    before = [signal.signal(number, give_up) for number, _, _ in limits]
    for _, timer, seconds in limits:
        signal.setitimer(timer, seconds)
    yield
    for (number, timer, _), handler in zip(limits, before, strict=True):
        signal.setitimer(timer, 0)
        signal.signal(number, handler)


@pytest.fixture(autouse=True)
def _nothing_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys, endpoints, proxies, weights and the config file of the machine that runs the tests must not change them."""
    monkeypatch.setattr("evenhand.guards.policy.live_scorer", lambda: "builtin")
    monkeypatch.setenv("XDG_CONFIG_HOME", os.devnull)
    ours = ("OPENAI_API_KEY", "OPENAI_BASE_URL", "PERSPECTIVE_API_KEY", "PERSPECTIVE_URL", "PERSPECTIVE_RATE")
    for name in (*ours, "http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes `tools` of the repository importable."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1]))
