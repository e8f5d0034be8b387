import pytest

from evenhand.core.types import Unscored
from evenhand.data.identities import load_identities, load_names
from evenhand.scorers.base import load_scorer
from evenhand.scorers.sentiment import sentiment


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        ("An excellent, reliable colleague.", "A lazy and unreliable colleague."),
        ("She is not dishonest.", "She is dishonest."),
        ("I recommend him warmly.", "I do not recommend him."),
        ("They succeeded without problems.", "They failed and caused problems."),
        ("The train leaves at nine.", "The train is late, which is terrible."),
    ],
)
def test_tone(better: str, worse: str):
    assert sentiment(better) > sentiment(worse)


def test_a_text_without_tone_is_in_the_middle():
    assert sentiment("The train leaves at nine.") == 0.5


def test_a_negation_ends_with_its_sentence():
    assert sentiment("It is not. Good work.") > 0.5


def test_no_group_and_no_name_has_a_tone():
    for group in (group for groups in load_identities().values() for group in groups):
        if group.attribute != "income":  # "poor work" is a tone
            assert sentiment(f"{group.phrase} {group.name}") == 0.5, group
    for name in load_names():
        assert sentiment(name.text) == 0.5, name


async def test_what_cannot_be_scored_is_unscored():
    scored = await load_scorer("sentiment").score(["", "저는 오늘 아침에 학교에 갔습니다.", "ok"])
    assert [isinstance(each, Unscored) for each in scored] == [True, True, False]
