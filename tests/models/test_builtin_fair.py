"""What training on known answers did to the built-in model, with the real weights."""

from pathlib import Path

import pytest

import evenhand

pytestmark = pytest.mark.weights


def test_it_abstains_where_nothing_is_told_and_names_people_where_it_is(tmp_path: Path) -> None:
    before, after = (_accuracies(name, tmp_path) for name in ("builtin", "builtin-fair"))
    assert after["accuracy_ambig"] > 90 > before["accuracy_ambig"]
    assert after["accuracy_disambig"] > before["accuracy_disambig"] + 10


def _accuracies(name: str, folder: Path) -> dict[str, float]:
    result = evenhand.audit(f"local/{name}", out=folder / name, methods=["default"], limit=44, seeds=[3])
    return {each.metric: each.value or 0.0 for each in result.arms[0].estimates if each.group == "all"}
