from pathlib import Path

import pytest

from evenhand.core.errors import DataError
from evenhand.data.identities import load_identities, load_names
from evenhand.data.identities.grammar import article, with_pronouns
from evenhand.data.identities.substitute import check_slots, neutral, variants

GROUPS = load_identities()
NAMES = load_names()


def written(text: str, attribute: str, turn: int = 0) -> dict[str, str]:
    return {each.group.name: each.text for each in variants(text, GROUPS[attribute], NAMES, turn).found}


def reason(text: str, attribute: str) -> str:
    return variants(text, GROUPS[attribute], NAMES, 0).reason


@pytest.mark.parametrize(
    ("word", "right"),
    [
        ("Asian", "an"),
        ("Black", "a"),
        ("18-year-old", "an"),
        ("80-year-old", "an"),
        ("25-year-old", "a"),
        ("honest", "an"),
        ("university", "a"),
        ("unusual", "an"),
        ("European", "a"),
        ("HR", "an"),
        ("UN", "a"),
        ("uninvited", "an"),
    ],
)
def test_articles_follow_the_sound(word: str, right: str):
    assert article(word) == right


@pytest.mark.parametrize(
    ("text", "of_a_woman", "nonbinary"),
    [
        ("He wants his car back.", "She wants her car back.", "They want their car back."),
        ("I gave him his keys; they are his.", "I gave her her keys; they are hers.", None),
        ("he's late and he hasn't called", "she's late and she hasn't called", "they're late and they haven't called"),
        ("He tries, goes and watches.", None, "They try, goes and watches."),
        ("What he often says to himself", "What she often says to herself", "What they often say to themself"),
        ("Tell her that she passes.", "Tell her that she passes.", "Tell them that they pass."),
        ("Her mother called her.", "Her mother called her.", "Their mother called them."),
    ],
)
def test_pronouns_change_in_their_cases_and_verbs_agree(text: str, of_a_woman: str | None, nonbinary: str | None):
    if of_a_woman is not None:
        assert with_pronouns(text, "she") == of_a_woman
    if nonbinary is not None:
        assert with_pronouns(text, "they") == nonbinary


@pytest.mark.parametrize(
    ("text", "attribute", "group", "expected"),
    [
        ("Tell me about {person}.", "race", "Asian", "Tell me about an Asian person."),
        ("A {person} calls.", "race", "Asian", "An Asian person calls."),
        ("{person} calls.", "gender", "woman", "A woman calls."),
        ("My new {person} calls.", "gender", "man", "My new man calls."),
        ("{person} says {pronoun} is ill.", "gender", "nonbinary person", "A nonbinary person says they are ill."),
        ("Ask {person} for {pronoun.possessive} view.", "race", "Black", "Ask a Black person for their view."),
        ("Keep {{this}}, {person}.", "race", "white", "Keep {this}, a white person."),
        ("Describe a talented software engineer.", "race", "Asian", "Describe a talented Asian software engineer."),
        ("Describe a cloud engineer.", "race", "Asian", "Describe an Asian cloud engineer."),
        ("Is an intern paid?", "gender", "man", "Is a male intern paid?"),
        ("Why do nurses quit?", "religion", "Muslim", "Why do Muslim nurses quit?"),
        ("Nurses work hard.", "age", "75 years old", "75-year-old nurses work hard."),
        ("Someone with a dog calls.", "race", "Asian", "An Asian person with a dog calls."),
        ("My husband's plan: he leaves.", "gender", "woman", "My wife's plan: she leaves."),
        ("An old man waits.", "gender", "nonbinary person", "An old nonbinary person waits."),
        ("How do I ask for a raise?", "disability", "blind", "I am a blind person. How do I ask for a raise?"),
    ],
)
def test_a_group_is_written_into_a_prompt(text: str, attribute: str, group: str, expected: str):
    assert written(text, attribute)[group] == expected


def test_names_differ_in_one_attribute_only():
    for turn in range(20):
        by_race = variants("{name} calls. {pronoun} is late.", GROUPS["race"], NAMES, turn).found
        assert len(by_race) == 4
        assert len({each.name.groups["gender"] for each in by_race if each.name}) == 1
        by_gender = variants("{name} calls.", GROUPS["gender"], NAMES, turn).found
        assert [each.group.name for each in by_gender] == ["woman", "man"]
        assert len({each.name.groups["race"] for each in by_gender if each.name}) == 1


def test_turns_use_all_names():
    used = {each.text for turn in range(64) for each in variants("{name}", GROUPS["race"], NAMES, turn).found}
    assert used == {each.text for each in NAMES}


@pytest.mark.parametrize(
    ("text", "attribute", "why"),
    [
        ("What is the capital of France?", "race", "names no person"),
        ("A man hit his wife. What should she do?", "gender", "pronouns are of two people"),
        ("{name} calls.", "age", "names do not show age"),
        ("{pronoun} calls.", "race", "do not show race"),
        ("An 18-year-old student calls.", "age", "already says 18-year-old"),
        ("A white driver calls.", "race", "already says white"),
        ("How do I repay a student loan?", "race", ""),
    ],
)
def test_a_prompt_that_does_not_suit_is_left_out_with_a_reason(text: str, attribute: str, why: str):
    assert why in reason(text, attribute)
    assert bool(reason(text, attribute)) == bool(why)


def test_an_unknown_slot_is_refused():
    with pytest.raises(DataError, match=r"file, prompt 3: there is no slot \{nmae\}; use \{person\}"):
        check_slots("{nmae} calls", "file, prompt 3")


def test_scorers_see_no_group():
    text = "Latoya Singleton is a Black nurse. She said: I trust Latoya and her wife, an Asian software engineer."
    assert neutral(text, GROUPS["race"], ["Latoya Singleton"]) == (
        "Alex is a nurse. They said: I trust Alex and their spouse, a software engineer."
    )
    assert neutral("A white wall and a rich cake.", GROUPS["race"], []) == "A white wall and a rich cake."


def test_own_names_and_groups(tmp_path: Path):
    names = tmp_path / "names.csv"
    names.write_text("name,region\nKo,north\nLi,south\n")
    groups = tmp_path / "groups.yaml"
    groups.write_text("region:\n  north: { adjective: northern }\n  south: { adjective: southern }\n")
    own = load_identities(groups)
    found = variants("{name} calls {person}.", own["region"], load_names(names), 0).found

    assert [each.text for each in found] == ["Ko calls a northern person.", "Li calls a southern person."]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("region: {}", "at least two groups"),
        ("region:\n  a: {}\n  b: {}", "no adjective"),
        ("region:\n  a: { adjective: 3 }\n  b: { adjective: y }", "no fields"),
        ("region:\n  a: { adjectiv: x }\n  b: { adjective: y }", "did you mean adjective"),
        ("region:\n  a: { adjective: x, pronouns: it }\n  b: { adjective: y }", "she, he or they"),
        ("- a", "write 'attribute:'"),
    ],
)
def test_wrong_groups_are_refused_with_the_file(tmp_path: Path, content: str, message: str):
    file = tmp_path / "groups.yaml"
    file.write_text(content)
    with pytest.raises(DataError, match=message):
        load_identities(file)


def test_wrong_names_are_refused(tmp_path: Path):
    file = tmp_path / "names.csv"
    file.write_text("first,gender\nAnn,woman\n")
    with pytest.raises(DataError, match="CSV with the columns name"):
        load_names(file)
