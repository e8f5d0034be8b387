"""The report on groups: which names are on the list, and how far groups differ."""

import numpy as np
import pytest

pytestmark = pytest.mark.usefixtures("tools")


def test_fresh_groups_are_parted_by_whether_the_list_has_their_names() -> None:
    from tools.train_scorer.groups import sets_of
    from tools.train_scorer.neural_texts import spec

    sets = {kind: {group.many for group in groups} for kind, groups in sets_of(spec("groups")["report"]).items()}

    assert "Sri Lankans" in sets["fresh, on the list of names"]
    assert "drag queens" in sets["fresh, not on the list"]
    assert not sets["known"] & (sets["fresh, on the list of names"] | sets["fresh, not on the list"])


def test_the_ends_are_the_groups_with_most_and_with_fewest_alarms() -> None:
    from tools.train_scorer.groups import ends
    from tools.train_scorer.identity import Group

    alarms = np.zeros((3, 100), bool)
    alarms[1, :4] = True
    alarms[2, :1] = True
    groups = [Group("", name, name, name) for name in ("first", "second", "third")]

    highest, lowest, difference = ends(alarms, groups)

    assert highest == "4.0% [1.6%, 9.8%] (second)"
    assert lowest == "0.0%"
    assert difference.startswith("4.0 [")
