"""What all tests share: a clean environment and, for modules that they share, `support` on the path."""

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# With --import-mode=importlib nothing is put on the path; shared fakes are plain modules, imported as `support.…`.
sys.path.insert(0, str(Path(__file__).parent))

LONGEST_TEST = 120

pytest_plugins = ["support.fixtures", "support.runs"]


@pytest.fixture(autouse=True)
def _bounded(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test that hangs fails, with a trace of where; tests that are marked slow look after themselves."""
    if not hasattr(signal, "SIGALRM") or request.node.get_closest_marker("slow"):
        yield
        return

    def give_up(*_: object) -> None:
        raise TimeoutError(f"This test took more than {LONGEST_TEST} s.")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(LONGEST_TEST)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(autouse=True)
def _nothing_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys, endpoints and proxies of the machine that runs the tests must not change them."""
    ours = ("OPENAI_API_KEY", "OPENAI_BASE_URL", "PERSPECTIVE_API_KEY", "PERSPECTIVE_URL", "PERSPECTIVE_RATE")
    for name in (*ours, "http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
