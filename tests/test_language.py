"""Which language a text is in, and what a rule says of a text that it cannot read."""

import subprocess
import sys
import threading

import pytest

from evenhand.core import language
from evenhand.core.language import language_of, unsupported
from evenhand.core.types import Unscored
from evenhand.scorers.builtin import BuiltinScorer
from evenhand.scorers.sentiment import SentimentScorer

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
    "de": "Ich finde, dass wir heute Abend noch einmal über das Haus und den Garten sprechen sollten.",
    "nl": "Ik vind dat we vanavond nog een keer over het huis en de tuin moeten praten.",
    "da": "Jeg synes, at vi skal tale om huset og haven igen i aften, når børnene sover.",
    "fr": "Je trouve que nous devrions encore parler de la maison et du jardin ce soir.",
    "es": "Creo que esta noche deberíamos volver a hablar de la casa y del jardín.",
    "it": "Penso che stasera dovremmo parlare ancora una volta della casa e del giardino.",
    "pt": "Acho que hoje à noite devíamos falar outra vez sobre a casa e o jardim.",
    "pl": "Myślę, że dziś wieczorem powinniśmy jeszcze raz porozmawiać o domu i ogrodzie.",
    "tr": "Bence bu akşam ev ve bahçe hakkında bir kez daha konuşmalıyız.",
    "fi": "Minusta meidän pitäisi tänä iltana puhua vielä kerran talosta ja puutarhasta.",
    "sw": "Nadhani leo jioni tunapaswa kuzungumza tena kuhusu nyumba na bustani yetu.",
    "vi": "Tôi nghĩ tối nay chúng ta nên nói chuyện lại về ngôi nhà và khu vườn.",
    "id": "Saya pikir malam ini kita harus berbicara lagi tentang rumah dan kebun itu.",
}


@pytest.mark.parametrize("text", ENGLISH)
def test_english_of_all_kinds_is_english(text: str) -> None:
    assert language_of(text) == "en"
    assert unsupported(text, ("en",)) is None


@pytest.mark.parametrize(("code", "text"), OTHERS.items(), ids=OTHERS.keys())
def test_a_sentence_in_another_language_is_not(code: str, text: str) -> None:
    assert language_of(text) == language_of(text.upper()) == code
    assert unsupported(text, ("en",)) == f"language {code} is not supported"
    assert unsupported(text, ("en", code)) is None


@pytest.mark.parametrize(
    "text",
    [
        "individueel en in assosiasie met",
        "nationer, rasgrupper och socialt skydd",
        "exercendae operae vel faciendi facinoris",
        "de counget regulié e paga.",
    ],
)
def test_five_words_near_to_english_are_enough(text: str) -> None:
    assert (unsupported(text, ("en",)) or "").startswith("language ")


def test_letters_with_their_accents_apart_are_words() -> None:
    assert language_of("va\u0300 mo\u0323i tô\u0309 chư\u0301c trong") == "vi"


@pytest.mark.parametrize(
    ("text", "code"),
    [("Привет, как дела?", "ru"), ("你好，世界", "zh"), ("שלום hi", "he"), ("아니요", "ko")],
    ids=ascii,
)
def test_another_script_is_told_from_a_few_letters(text: str, code: str) -> None:
    assert language_of(text) == code


@pytest.mark.parametrize(
    "text", ["", "42", "Guten Morgen", "ça va?", "aGVsbG8gd29ybGQhIQ==", "deadbeef 00ff", "Kim, Ana, Li, Bo, Jo, Al"]
)
def test_what_is_too_short_to_tell_counts_as_the_declared_language(text: str) -> None:
    assert language_of(text) == "en"
    assert language_of(text, "de") == "de"
    assert unsupported(text, ("en",)) is None


@pytest.mark.parametrize("code", ["de", "fr", "zh"])
async def test_scorers_for_english_give_the_reason_and_no_number(code: str) -> None:
    text = {**OTHERS, "zh": "我觉得今天晚上我们应该再谈谈房子和花园。"}[code]
    for scorer in (BuiltinScorer(), SentimentScorer()):
        assert await scorer.score([text]) == [Unscored(f"language {code} is not supported", text)]


def test_a_megabyte_without_spaces_is_quick_to_tell() -> None:
    assert language_of("a" * 1_000_000) == "en"
    assert language_of("a-" * 500_000) == "en"


def test_the_library_is_loaded_on_first_use_and_not_at_the_start() -> None:
    code = "import sys, evenhand.cli.main, evenhand.core.language; sys.exit('py3langid' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("de", "Du bist ein Idiot."),
        ("de", "Die Frauen können nicht fahren."),
        ("fr", "Les femmes ne savent pas conduire."),
        ("fr", "Tu n'es pas très intelligent."),
        ("es", "Las mujeres no saben conducir."),
        ("es", "Eres un idiota y lo sabes."),
        ("it", "Le donne non sanno guidare."),
        ("pt", "As mulheres não sabem dirigir."),
        ("nl", "Vrouwen kunnen niet rijden, zegt hij."),
        ("tr", "Kadınlar araba kullanamaz, bu çok açık."),
    ],
)
def test_a_short_sentence_of_another_language_is_not_read_as_english(language: str, text: str):
    assert unsupported(text, ("en",)) == f"language {language} is not supported"


@pytest.mark.parametrize(
    "text",
    [
        "Die in a fire, man.",
        "No me gusta, said the man.",
        "lol u mad bro",
        "Que sera, sera.",
        "Le Monde is a paper.",
        "idk tbh",
    ],
)
def test_english_with_words_of_other_languages_is_read(text: str):
    assert unsupported(text, ("en",)) is None


@pytest.mark.parametrize(
    "text",
    [
        "It’s not clear who came first — the text doesn’t say, and we should not guess.",
        "“This is the one that we know,” she said → and it was true.",
    ],
)
def test_plain_english_with_typographic_signs_needs_no_classifier(monkeypatch: pytest.MonkeyPatch, text: str):
    monkeypatch.setattr(language, "_identifier", lambda: pytest.fail("the text was classified"))

    assert unsupported(text, ("en",)) is None


def test_letters_of_other_languages_are_classified_whatever_small_words_stand_beside_them(
    monkeypatch: pytest.MonkeyPatch,
):
    asked: list[str] = []

    class Identifier:
        def classify(self, text: str) -> tuple[str, float]:
            asked.append(text)
            return "en", 1.0

    monkeypatch.setattr(language, "_identifier", Identifier)
    text = "The word für is the one that is not of the same language as all of the others here."

    assert unsupported(text, ("en",)) is None
    assert asked == [text]


def test_a_text_waits_for_the_classifier_that_a_server_loads(monkeypatch: pytest.MonkeyPatch):
    both = threading.Barrier(2)
    met: list[str] = []

    def load() -> None:
        try:
            both.wait(0.2)
            met.append("two loads at once")
        except threading.BrokenBarrierError:
            pass

    monkeypatch.setattr(language, "_loaded_identifier", load)
    others = [threading.Thread(target=language.preload) for _ in range(2)]
    for each in others:
        each.start()
    for each in others:
        each.join()

    assert not met
