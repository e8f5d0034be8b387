"""Guard servers and the command line for tests."""

from support.guard_server import guarding
from tests.cli.conftest import cli

__all__ = ["cli", "guarding"]
