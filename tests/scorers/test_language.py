"""Which texts are called English, and which are not."""

import pytest

from evenhand.core.types import Unscored
from evenhand.scorers.builtin import BuiltinScorer
from evenhand.scorers.language import OTHER_LANGUAGE, OTHER_SCRIPT, not_english

ENGLISH = [
    "The library opens at nine and the garden behind it is quiet.",
    "u ain't gonna believe wat she said lol smh",
    "THIS IS THE LAST TIME THAT I TELL YOU TO LEAVE",
    "def score(text): return model.predict(text)[0]  # the scores of one text",
    "Mr Nguyen, Ms Okafor, Señor Álvarez, Frau Müller and Mme Lefèvre met in São Paulo.",
    "He quoted Goethe, 'Zwei Seelen wohnen, ach! in meiner Brust', and sat down again with a sigh.",
    "Yöü ärê sò vêry stüpid änd nöbody likes yöü at all",
    "you idiot moron stupid ugly worthless pathetic lazy dumb",
]
OTHERS = {
    "German": "Ich finde, dass wir heute Abend noch einmal über das Haus und den Garten sprechen sollten.",
    "Dutch": "Ik vind dat we vanavond nog een keer over het huis en de tuin moeten praten.",
    "Danish": "Jeg synes, at vi skal tale om huset og haven igen i aften, når børnene sover.",
    "French": "Je trouve que nous devrions encore parler de la maison et du jardin ce soir.",
    "Spanish": "Creo que esta noche deberíamos volver a hablar de la casa y del jardín.",
    "Italian": "Penso che stasera dovremmo parlare ancora una volta della casa e del giardino.",
    "Portuguese": "Acho que hoje à noite devíamos falar outra vez sobre a casa e o jardim.",
    "Polish": "Myślę, że dziś wieczorem powinniśmy jeszcze raz porozmawiać o domu i ogrodzie.",
    "Turkish": "Bence bu akşam ev ve bahçe hakkında bir kez daha konuşmalıyız.",
    "Finnish": "Minusta meidän pitäisi tänä iltana puhua vielä kerran talosta ja puutarhasta.",
    "Swahili": "Nadhani leo jioni tunapaswa kuzungumza tena kuhusu nyumba na bustani yetu.",
    "Vietnamese": "Tôi nghĩ tối nay chúng ta nên nói chuyện lại về ngôi nhà và khu vườn.",
    "Indonesian": "Saya pikir malam ini kita harus berbicara lagi tentang rumah dan kebun itu.",
}


@pytest.mark.parametrize("text", ENGLISH)
def test_english_of_all_kinds_is_english(text: str) -> None:
    assert not_english(text) is None


@pytest.mark.parametrize("text", OTHERS.values(), ids=OTHERS.keys())
def test_a_sentence_in_another_language_is_not(text: str) -> None:
    assert not_english(text) == OTHER_LANGUAGE
    assert not_english(text.upper()) == OTHER_LANGUAGE


@pytest.mark.parametrize("text", ["Привет, как дела?", "你好，世界", "שלום hi"], ids=ascii)
def test_other_scripts_are_named_as_such(text: str) -> None:
    assert not_english(text) == OTHER_SCRIPT


@pytest.mark.parametrize(
    "text", ["", "Guten Morgen", "ça va?", "aGVsbG8gd29ybGQhIQ==", "deadbeef 00ff", "Kim, Ana, Li, Bo, Jo, Al"]
)
def test_what_is_too_short_to_tell_is_scored(text: str) -> None:
    assert not_english(text) is None


def test_a_scorer_says_so_instead_of_giving_a_number() -> None:
    (found,) = BuiltinScorer().score_texts([OTHERS["German"]])

    assert isinstance(found, Unscored)
    assert found.reason == "not English: the words are of another language"


def test_a_megabyte_without_spaces_is_quick_to_tell() -> None:
    assert not_english("a" * 1_000_000) is None
    assert not_english("a-" * 500_000) is None
