"""Guard servers for tests, stopped after each."""

from support.guard_server import guarding  # noqa: F401 - a fixture
