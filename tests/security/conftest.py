"""Guard servers for tests, stopped after each."""

from support.guard_server import guarding

__all__ = ["guarding"]
