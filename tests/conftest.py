"""What all tests share: a clean environment and, for modules that they share, `support` on the path."""

import sys
from pathlib import Path

import pytest

# With --import-mode=importlib nothing is put on the path; shared fakes are plain modules, imported as `support.…`.
sys.path.insert(0, str(Path(__file__).parent))

pytest_plugins = ["support.fixtures", "support.runs"]


@pytest.fixture(autouse=True)
def _nothing_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys, endpoints and proxies of the machine that runs the tests must not change them."""
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
