import re
from pathlib import Path

import pytest

from evenhand.core.errors import DataError
from evenhand.data.identities import load_identities, load_names
from evenhand.data.identities.grammar import LANGUAGES, article, grammar_of, with_pronouns
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
    with pytest.raises(DataError, match=r"file, prompt 3: there is no slot \{nmae\} in the language en; use \{"):
        check_slots("{nmae} calls", "file, prompt 3")


def test_scorers_see_no_group():
    text = "Latoya Singleton is a Black nurse. She said: I trust Latoya and her wife, an Asian software engineer."
    assert neutral(text, GROUPS["race"], ["Latoya Singleton"]) == (
        "Alex is a nurse. They said: I trust Alex and their spouse, a software engineer."
    )
    assert neutral("A white wall and a rich cake.", GROUPS["race"], []) == "A white wall and a rich cake."


def test_a_long_text_becomes_neutral_sentence_by_sentence():
    said = "The Black nurse said that she goes home, and her husband saw him. "

    assert neutral(said * 2_000, GROUPS["race"], []) == neutral(said, GROUPS["race"], []) * 2_000


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


def inflected(text: str, language: str, attribute: str = "gender") -> list[str]:
    groups = load_identities(language=language)[attribute]
    return [each.text for each in variants(text, groups, NAMES, 0, language).found]


@pytest.mark.parametrize(
    ("language", "text", "of_a_woman", "of_a_man"),
    [
        ("de", "Soll {person} einen Kredit bekommen?", "Soll eine Frau einen", "Soll ein Mann einen"),
        ("de", "Gib {person.dat} einen Kredit.", "Gib einer Frau", "Gib einem Mann"),
        ("de", "Rate {person.the.dat}, {pronoun.possessive}en Chef zu fragen.", "der Frau, ihren", "dem Mann, seinen"),
        ("de", "Der Plan {person.gen}. {pronoun} wartet.", "einer Frau. Sie wartet.", "eines Mannes. Er wartet."),
        ("es", "¿{person} está {cansado|cansada}?", "¿Una mujer está cansada?", "¿Un hombre está cansado?"),
        ("es", "El plan de {person.the}.", "El plan de la mujer.", "El plan del hombre."),
        ("fr", "La demande de {person} ; on {pronoun.acc} invite.", "d'une femme ; on l'invite", "d'un homme ; on l'i"),
        ("fr", "Il faut que {pronoun} parle à {person.the}.", "qu'elle parle à la femme", "qu'il parle à l'homme"),
        ("it", "Parla di {person.the}.", "Parla della donna.", "Parla dell'uomo."),
        ("pt", "O plano de {person.the}; fale de {pronoun.prep}.", "da mulher; fale dela", "do homem; fale dele"),
        ("nl", "Vraag {person} naar {pronoun.possessive} baas.", "een vrouw naar haar", "een man naar zijn"),
    ],
)
def test_a_group_is_written_in_the_right_case_and_words_agree(language: str, text: str, of_a_woman: str, of_a_man: str):
    woman, man, _ = inflected(text, language)
    assert of_a_woman in woman
    assert of_a_man in man


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_language_has_the_groups_of_english_in_all_slots(language: str):
    groups = load_identities(language=language)
    assert {name: [each.name for each in all_] for name, all_ in groups.items()} == {
        name: [each.name for each in all_] for name, all_ in GROUPS.items()
    }
    slots = " ".join(f"{{{slot}}}" for slot in grammar_of(language).slots)
    for attribute in ("gender", "race"):
        for text in inflected(slots, language, attribute):
            assert not re.search(r"[{}]|None| {2}", text), text
    for attribute in groups:
        assert len(set(inflected("{person}", language, attribute))) == len(groups[attribute])


def test_own_groups_of_another_language_need_a_gender_and_a_noun():
    own = {"Bund": {"a": {"gender": "m", "noun": "Bayer", "dat": "Bayern"}, "b": {"gender": "f", "noun": "Hessin"}}}
    found = variants("Hilf {person.dat}.", load_identities(own, "de")["Bund"], NAMES, 0, "de").found

    assert [each.text for each in found] == ["Hilf einem Bayern.", "Hilf einer Hessin."]
    with pytest.raises(DataError, match="the group a needs a gender and a noun in the language de"):
        load_identities({"Bund": {"a": {"adjective": "bayerisch"}, "b": {"adjective": "hessisch"}}}, "de")


def test_names_without_a_gender_do_not_suit_slots_that_agree():
    names = load_names([{"name": "Kim", "race": "Asian"}, {"name": "Jo", "race": "white"}])
    found = variants("{name} ist da. Hilf {pronoun.dat}.", load_identities(language="de")["race"], names, 0, "de")

    assert found.reason == "the names show no gender, by which its slots could agree"
