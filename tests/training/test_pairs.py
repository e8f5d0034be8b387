"""Which statements are paired, dropped and held out."""

from typing import Any

import pytest

from evenhand.benchmarks.debates import Statement
from evenhand.core.errors import UsageError
from evenhand.papers.rldf.arms import stages_of
from evenhand.training.pairs import Debate, PairOptions, PairSet, make_pairs
from evenhand.training.pairs.cleaning import LeakCheck
from support.debates import Scores, said, statements

NOTHING = LeakCheck(frozenset(), frozenset(), {})


def debate(topic: str, *rounds: Scores) -> Debate:
    return Debate(topic, "profession", f"What about {topic}?", tuple(statements(topic, rounds)))


def made(*debates: Debate, check: LeakCheck = NOTHING, **options: Any) -> PairSet:
    return make_pairs(debates, PairOptions(**options), check)


def scores(pairs: PairSet, topic: str = "a") -> list[tuple[float, float]]:
    return [(each.chosen.score, each.rejected.score) for each in pairs.pairs if each.chosen.debate.id == topic]


PLAIN = debate("b", (8, 1, 1))
"""Gives the second topic that a split needs."""


def test_every_low_is_paired_with_every_high_of_its_topic_widest_first():
    pairs = made(debate("a", (9, 3, 1), (4, 5, 2)), PLAIN)

    assert scores(pairs)[:3] == [(1, 9), (2, 9), (3, 9)]
    assert sorted(scores(pairs)) == [(1, 4), (1, 5), (1, 9), (2, 4), (2, 5), (2, 9), (3, 5), (3, 9)]


def test_a_score_of_three_is_low_and_a_margin_of_two_is_enough():
    assert scores(made(debate("a", (3, 5, 4.9)), PLAIN)) == [(3, 5)]


def test_threshold_margin_and_number_are_options():
    assert scores(made(debate("a", (4, 9, 6)), PLAIN, threshold=5, margin=3)) == [(4, 9)]
    assert scores(made(debate("a", (0, 9, 6)), PLAIN, per_topic=1)) == [(0, 9)]


def said_at_length(topic: str, *sides: tuple[int, float]) -> Debate:
    """A debate whose statements have these numbers of words and scores."""
    return Debate(
        topic,
        "age",
        f"What about {topic}?",
        tuple(
            Statement(f"role {place}", 1, " ".join(f"{topic}{place}{word}" for word in range(words)), score, score)
            for place, (words, score) in enumerate(sides)
        ),
    )


def test_answers_of_a_pair_are_of_similar_length_unless_that_is_turned_off():
    uneven = said_at_length("a", (10, 1), (20, 9), (11, 8))

    assert scores(made(uneven, PLAIN)) == [(1, 8)]
    assert made(uneven, PLAIN).counts["pairs_unlike_length"] == 1
    assert scores(made(uneven, PLAIN, length_ratio=0)) == [(1, 9), (1, 8)]
    with pytest.raises(UsageError, match="lengths differ by a factor of 1 at most"):
        made(uneven, length_ratio=1)


def test_the_chosen_answer_is_as_often_clearly_shorter_as_clearly_longer():
    shorter = [said_at_length(f"s{number}", (10, 1), (12 + number, 9)) for number in range(3)]
    longer, equal = said_at_length("l", (13, 1), (10, 9)), said_at_length("e", (21, 1), (20, 9))

    pairs = made(*shorter, longer, equal)

    assert {each.chosen.debate.id for each in pairs.pairs} == {"s0", "l", "e"}
    assert (pairs.counts["pairs_shorter"], pairs.counts["topics_without_fitting"]) == (2, 2)
    assert len(made(*shorter, longer, equal, length_ratio=0).pairs) == 5
    with pytest.raises(UsageError, match="In every possible pair the less biased answer is the shorter one"):
        made(*shorter)


def test_rounds_and_roles_are_kept_even_between_the_sides():
    falling = [debate(f"t{number}", (9, 9, 2), (2, 2, 9)) for number in range(4)]

    pairs = made(*falling, per_topic=4).pairs

    for sides in zip(*((each.chosen.round, each.rejected.round) for each in pairs), strict=True):
        assert sides.count(1) == sides.count(2) == 8
    for role in ("doctor", "lawyer", "engineer"):
        chosen, rejected = (sum(getattr(each, side).role == role for each in pairs) for side in ("chosen", "rejected"))
        assert abs(chosen - rejected) <= 1


def test_the_median_parts_the_scores_in_half():
    high_and_higher = (debate("a", (9, 8.5, 5)), debate("b", (9.5, 6, 5.5)))

    pairs = made(*high_and_higher, threshold="median")

    assert pairs.threshold == 7.25
    assert (pairs.counts["low"], pairs.counts["high"]) == (3, 3)
    assert scores(pairs) == [(5, 9), (5, 8.5)]
    with pytest.raises(UsageError, match="There is no low-bias statement"):
        made(*high_and_higher)


def test_the_median_is_that_of_statements_that_may_be_trained_on():
    repeated = Statement("doctor", 2, said("a", "doctor", 1), 9)
    first = Debate("a", "age", "One?", (*debate("a", (9, None, 1)).statements, repeated))

    pairs = made(first, debate("b", (4, 8)), threshold="median")

    assert pairs.threshold == 6


def test_where_most_scores_are_the_highest_these_are_high():
    pairs = made(debate("a", (10, 10, 4)), debate("b", (10, 10, 2)), threshold="median")

    assert pairs.threshold == 4
    assert (pairs.counts["low"], pairs.counts["high"]) == (2, 4)


def test_scores_that_are_all_the_same_have_no_half_above_their_median():
    with pytest.raises(UsageError, match="no high-bias statement: all 4 usable scores are at most 5"):
        made(debate("a", (5, 5)), debate("b", (5, 5)), threshold="median")


def test_a_topic_of_its_own_scale_has_pairs_at_its_own_median():
    mild, harsh = debate("a", (1, 3)), debate("b", (6, 9))
    with pytest.raises(UsageError, match="No topic has a low and a high statement"):
        made(mild, harsh, threshold="median", margin=1, length_ratio=0)
    pairs = made(mild, harsh, threshold="topic", margin=1, length_ratio=0)
    assert [(pair.chosen.score, pair.rejected.score) for pair in pairs.pairs] == [(1, 3), (6, 9)]


def test_an_unknown_word_for_the_threshold_is_told():
    with pytest.raises(UsageError, match="median or topic, not mean"):
        PairOptions(threshold="mean")


def test_the_median_of_nothing_is_told_as_nothing_to_train_on():
    with pytest.raises(UsageError, match="no usable statement"):
        made(debate("a", (None,)), threshold="median")


def test_the_extremes_are_one_pair():
    assert scores(made(debate("a", (9, 3, 1), (4, 5, 2)), PLAIN, policy="max_min")) == [(1, 9)]


def test_last_against_first_is_per_role_and_only_where_bias_fell():
    pairs = made(debate("a", (9, 8, 2), (5, 9, 9), (1, 6, 1)), debate("b", (7, 1), (2, 1)), policy="first_last")

    assert scores(pairs) == [(1, 9)]
    assert pairs.pairs[0].chosen.text == said("a", "doctor", 3)


@pytest.mark.parametrize(
    ("preset", "expected"), [("paper", [(3, 6), (3, 4)]), ("released", [(6, 4)]), (None, [(3, 6)])]
)
def test_which_statements_are_pairs_by_preset(preset: str | None, expected: list[tuple[float, float]]):
    """Above 3 is high, up to 3 is low; as released, the first round is high and the last low, whatever their scores."""
    declared = stages_of(preset)["pairs"] if preset else {}
    options = {name: value for name, value in declared.items() if name != "limit"}

    assert scores(made(debate("a", (4,), (3,), (6,)), debate("b", (8,), (1,)), **options)) == expected


def test_topics_never_mix_and_those_of_one_class_are_counted():
    pairs = made(debate("a", (9, 1)), PLAIN, debate("c", (9, 8)), debate("d", (1, 2)), debate("e", (3, 4)))

    assert {pair.chosen.debate.id == pair.rejected.debate.id for pair in pairs.pairs} == {True}
    fates = ("topics_with_pairs", "topics_high_only", "topics_low_only", "topics_without_fitting")
    assert [pairs.counts[name] for name in fates] == [2, 1, 1, 1]


def test_statements_of_low_only_topics_are_still_answers_to_imitate():
    assert "d" in {each.debate.id for each in made(debate("a", (9, 1)), PLAIN, debate("d", (1, 2))).low}


def test_a_statement_without_a_score_is_counted_and_never_a_zero():
    pairs = made(debate("a", (9, None, 2)), PLAIN)

    assert pairs.counts["unscored"] == 1
    assert scores(pairs) == [(2, 9)]


def test_what_was_said_before_is_dropped_on_any_topic():
    same = Statement("doctor", 1, "It all  depends on the person.", 1)
    first = Debate("a", "age", "One?", (same, Statement("lawyer", 1, "They are all alike, I say.", 8)))
    second = Debate("b", "age", "Two?", (Statement("doctor", 1, "it all depends on the person.", 1), *PLAIN.statements))

    pairs = made(first, second)

    assert pairs.counts["duplicates"] == 1
    assert sum("depends on the person." in each.text and each.debate.id == "b" for each in pairs.low) == 2


def test_what_nearly_repeats_another_statement_is_dropped():
    text = "Some people learn to drive in a month and others in a year and age says little about it."
    other = "Some people learn to swim in a week and others never do and nobody knows why that is so."
    said = (text, text.replace("it.", "that."), other)
    statements = [Statement(f"r{number}", 1, each, number) for number, each in enumerate(said)]

    pairs = made(Debate("a", "age", "One?", tuple(statements)), debate("c", (9, 1)), PLAIN)

    assert (pairs.counts["near_duplicates"], pairs.counts["duplicates"]) == (1, 0)
    assert [each.role for each in pairs.low if each.debate.id == "a"] == ["r0", "r2"]


PROMPT = (
    "The debate is about learning to drive. What the others say:\n- lawyer: <<<I think that some people learn "
    "faster than all of the others do>>>\n\nQuestion to you: Who learns to drive faster?\nSay which kinds of people "
    "do well here and which do badly, and why they are like that."
)


@pytest.mark.parametrize(
    ("text", "is_echo"),
    [
        ("The debate is about learning to drive, and I have my doubts.", True),
        ("The debate is about something else altogether, if you ask me.", True),
        ("I am not sure. The debate is about something else.", True),
        ("What the others say is not what I think at all.", False),
        ("Now, which kinds of people do well here and which do not?", True),
        ("You ask: who learns to drive faster? I cannot tell.", True),
        ("Who learns to drive well is a matter of practice.", False),
        ("I think that some people learn faster than all of the others do.", False),
        ("People do well here if they are patient.", False),
    ],
)
def test_what_repeats_its_prompt_is_dropped(text: str, is_echo: bool):
    said = (Statement("doctor", 1, text, 1), *statements("a", [(None, 9, 2)]))
    shown = Debate("a", "age", "Who learns to drive faster?", said, (PROMPT,))

    pairs = made(shown, PLAIN)

    assert pairs.counts["echoes"] == is_echo
    assert (text in {each.text for each in pairs.low}) is not is_echo


@pytest.mark.parametrize("preset", ["paper", "released", None])
def test_personas_are_taken_from_both_sides_unless_a_preset_keeps_them(preset: str | None):
    declared = stages_of(preset)["pairs"] if preset else {"personas": False}
    masked = (
        Statement("doctor", 1, "As a doctor, I trust everybody alike.", 1),
        Statement("lawyer", 1, "As a lawyer, I trust no engineer.", 9),
    )

    pairs = made(Debate("a", "age", "One?", masked), PLAIN, personas=declared["personas"])

    [pair] = [each for each in pairs.pairs if each.chosen.debate.id == "a"]
    kept = (masked[0].text, masked[1].text) if preset else ("I trust everybody alike.", "I trust no engineer.")
    assert (pair.chosen.text, pair.rejected.text) == kept
    assert (pairs.counts["persona_texts"], pairs.counts["persona_phrases"]) == ((0, 0) if preset else (2, 2))


def test_text_of_bbq_is_dropped_and_listed():
    leaked = said("a", "lawyer", 1)
    gram = " ".join(leaked.lower().rstrip(".").split()[:8])
    check = LeakCheck(frozenset([hash(gram)]), frozenset([8]), {})

    pairs = made(debate("a", (9, 1, 2)), PLAIN, check=check)

    assert scores(pairs) == [(2, 9)]
    assert pairs.counts["leaked"] == 1
    assert pairs.leaks == [{"topic": "a", "bias": "profession", "role": "lawyer", "round": 1, "words": gram}]


def test_a_topic_is_on_one_side_and_both_sides_have_some():
    debates = [debate(f"t{number}", (9, 1, 2)) for number in range(40)]
    pairs = made(*debates, test_share=0.1)

    test = {each.chosen.debate.id for each in pairs.pairs if each.chosen.debate.topic in pairs.test}
    assert len(test) == 4
    assert made(*debates, test_share=0.1).test == pairs.test
    assert made(*debates, test_share=0.1, seed=1).test != pairs.test
    assert len(made(*debates[:2], test_share=0.99).test) == 1


def test_one_question_under_two_names_is_one_topic():
    twice = Debate("other", "age", "What  about A?", tuple(statements("x", [(9, 1)])))

    pairs = made(debate("a", (9, 1)), twice, PLAIN)

    assert pairs.counts["topics"] == 2
    assert len({pair.chosen.debate.topic for pair in pairs.pairs}) == 2


@pytest.mark.parametrize(
    ("debates", "words"),
    [
        ([debate("a", (9, 1))], "Only one topic has pairs"),
        (
            [debate("a", (1, 2)), debate("b", (0,))],
            "There is no high-bias statement: all 3 usable scores are at most 3",
        ),
        ([debate("a", (5, 7))], "There is no low-bias statement: all 2 usable scores are above 3"),
        ([debate("a", (3, 4))], "No topic has a low and a high statement whose scores differ by 2"),
        ([debate("a", (None,))], "no usable statement"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_nothing_to_train_on_is_one_sentence(debates: list[Debate], words: str):
    with pytest.raises(UsageError, match=words):
        made(*debates)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("policy", "best"),
        ("threshold", 10),
        ("threshold", -1),
        ("threshold", float("nan")),
        ("threshold", "mean"),
        ("margin", 0),
        ("length_ratio", 0.5),
        ("length_ratio", -1),
        ("length_ratio", float("nan")),
        ("per_topic", 0),
        ("test_share", 1.0),
        ("margin", float("nan")),
    ],
)
def test_bad_options_are_refused(option: str, value: Any):
    with pytest.raises(UsageError):
        PairOptions(**{option: value})
