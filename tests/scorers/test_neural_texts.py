"""What the scorers learn from: groups and sentences that are measured as new stay out of it."""

import pytest

pytestmark = pytest.mark.usefixtures("tools")


def test_no_group_that_is_measured_as_new_is_learned() -> None:
    from tools.train_scorer import identity
    from tools.train_scorer.neural_texts import learned_groups, spec

    report = [line.split(" | ") for lines in spec("groups")["report"]["groups"].values() for line in lines]
    new = {many for *_, many in report} | {group.many for group in identity.groups("held_out_groups")}

    assert len(report) > 30
    assert not new & {group.many for group in learned_groups()}


def test_no_sentence_of_the_report_on_groups_is_learned_or_chosen_by() -> None:
    from tools.train_scorer import identity
    from tools.train_scorer.neural_texts import spec

    groups, own = spec("groups"), spec()
    report = {each for kind in ("plain", "odd", "attacks") for each in groups["report"][kind]}
    learned = {each for kind in identity.KINDS for each in identity.templates(kind)}
    learned |= {*own["odd"], *own["denied"], *own["more"]["odd"], *own["more"]["denied"]}
    design = {*groups["design"]["odd"], *groups["design"]["attacks"]}

    assert len(groups["report"]["plain"]) + len(groups["report"]["odd"]) == 100
    assert not report & (learned | design)
