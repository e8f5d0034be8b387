"""GitHub Actions: the composite action that runs the gate, which `evenhand init` copies into a project."""

from pathlib import Path

ACTION = Path(__file__).with_name("action.yml")
