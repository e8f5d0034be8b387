"""What `neural` learns from: groups that are measured as new stay out of it, and a twin differs in its groups alone."""

import pytest

pytestmark = pytest.mark.usefixtures("tools")


def test_no_group_that_is_measured_as_new_is_learned() -> None:
    from tools.train_scorer import identity
    from tools.train_scorer.neural_texts import all_people, spec

    report = [line.split(" | ") for lines in spec("groups")["groups"].values() for line in lines]
    new = {many for *_, many in report} | {group.many for group in identity.groups("held_out_groups")}

    assert not new & {group.many for group in all_people()}


@pytest.mark.parametrize("text", ["my neighbour is sikh", "sikhs and a blind man", "a paraplegic met two muslims"])
def test_a_twin_has_other_groups_and_the_same_words_around_them(text: str) -> None:
    from tools.train_scorer.neural_texts import all_people, twin_of

    twin = twin_of(text)

    assert twin is not None
    words, others = text.split(), twin.split()
    learned = " ".join(f"{group.one} {group.many}" for group in all_people()).lower().split()
    changed = [new for old, new in zip(words, others, strict=True) if old != new]
    assert 0 < len(changed) < len(words)
    assert set(changed) <= {*learned, "local", "locals"}


def test_a_text_about_nobody_has_no_twin() -> None:
    from tools.train_scorer.neural_texts import twin_of

    assert twin_of("the train leaves at nine") is None
