"""Reads the texts of one language: situations, people and wording."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib import resources
from typing import Any, Literal, TypeVar

from evenhand.core.errors import DataError
from evenhand.core.files import read_yaml

T = TypeVar("T")
Split = Literal["train", "dev"]
LANGUAGES = ("en", "es", "de", "ca", "ko", "fr", "pt")
KIND_WORDS = ("who", "which", "one", "other")
"""Words that differ between people and things; a language may lack them for things."""
CONTROL = "control"
"""Category of the questions about things."""
FACTS = "facts"
"""Category of the questions about when, where and how many; in English only."""
KNOWLEDGE = "knowledge"
"""Category of the questions without a passage; in English only."""

_HEAD = re.compile(r"(?P<id>\w+)(?P<lasting>\*?)(?: \[(?P<things>[^\]]+)\])?: (?P<setting>.+)")
_START = re.compile(r"(^|[.!?][\"”“»]? |[\"“„«])([a-zà-ÿ])")
_WOMEN = re.compile(
    r"(?i)\b(her|lady|\w*woman|\w*mother|\w*girl|sister|aunt|wife's|latina|waitress|stewardess|widow|heiress|lesbian)\b"
)
_MEN = re.compile(
    r"(?i)\b(his|\w*man|\w*father|\w*boy|brother|uncle|latino|waiter|steward|priest|vicar|imam|monk|son)\b"
)
_NEGATIVE = re.compile(r"\b(?:not|no|never|cannot|nothing|nobody|hardly|only|little|still|often|always|now|did|must)\b")
"""English words of a verb phrase to which "not" cannot simply be added."""
_CONTRACTED = re.compile(r"\b(did|does|is|was|has|had|could|would|should) not\b")
_NOT = {
    "es": ("no", ("no ", "nunca ", "nadie ", "ya ", "solo ", "apenas ")),
    "ca": ("no", ("no ", "mai ", "només ")),
    "pt": ("não", ("não ", "nunca ", "só ")),
}
"""Language → "not" before a verb phrase, and how a phrase begins to which it cannot be added."""
_FRENCH_AFFIRMED = re.compile(r"(a|avait) (?!.*\b(?:une?|du|des|de la)\b)(.+)")
"""A French verb phrase with an auxiliary, and no article that "pas" would change."""
_ARTICLE = re.compile(r"(?:(?:the|an?|el|la|le|los|las|els|les|un|una|une|o|um|uma|der|die|das|eine?) (?=\w)|l')")
_VOWEL = "[aeiouàáâèéêëíîïòóôúûœAEIOUÀÁÂÈÉÊÍÒÓÔÚ]"
_KOREAN_WOMEN = re.compile(r"(?:여성|할머니|어머니|언니|노부인|소녀|여중생|여학생|아가씨)$|^(?:여성|레즈비언) ")
_KOREAN_MEN = re.compile(r"(?:남성|할아버지|아버지|오빠|소년|남학생|청년|신부님)$|^(?:남성|게이) ")
_PARTICLE = re.compile(r"(\w)((?:\([^()]*\))?\"?) ?(은|이|을|과|이었다|이라고)\((는|가|를|와|였다|라고)\)")
"""A Korean particle in both its forms, and the letter by whose sound one of them is chosen; brackets are not spoken."""
_HELD_OUT = 4
"""One of this many people of a list, and one of this many situations, is kept for the dev split."""


@dataclass(frozen=True, slots=True)
class Situation:
    """What several people did together, a matter asked about in two polarities, and what would tell the answer.

    Pairs are (negative, positive). All are verb phrases but `signs`: sentences about {x}, to whom the negative question
    applies, and {y}, to whom the positive one does.
    """

    id: str
    setting: str
    asked: tuple[tuple[str, str], ...]
    """Wordings of the same two questions."""
    shown: tuple[tuple[str, ...], tuple[str, ...]]
    signs: tuple[str, ...]
    lasting: bool
    """In the present tense, so that a fact of another time would count as evidence."""
    things: tuple[tuple[str, str], ...]
    """Pairs of things, in place of people."""
    split: Split

    @property
    def kind(self) -> Literal["people", "things"]:
        return "things" if self.things else "people"


@dataclass(frozen=True, slots=True)
class Character:
    """One of those whom a question is about."""

    intro: str
    """At the first mention: "a retired teacher"."""
    mention: str
    """Afterwards: "the retired teacher"."""
    label: str
    """In the options: the mention, or the group of a person with a name."""
    aliases: tuple[str, ...]
    group: int
    """Which of the two lists the person is from."""

    @property
    def names_itself(self) -> bool:
        """Whether the introduction holds the mention, as "Ana, a nurse," does; "uma viúva" does not hold "a viúva"."""
        return re.search(rf"\b{re.escape(self.mention)}\b", self.intro) is not None


@dataclass(frozen=True, slots=True)
class Language:
    """Everything that is written in one language."""

    code: str
    situations: tuple[Situation, ...]
    traits: Mapping[str, Sequence[Sequence[Sequence[str]]]]
    """Category → pairs of lists of people."""
    literal: Mapping[str, Sequence[Sequence[Sequence[str]]]]
    names: Mapping[str, Sequence[str]]
    wording: Mapping[str, Any]
    indefinite: Callable[[str], str]
    definite: Callable[[str], str]
    gender: Callable[[str], str | None]
    tidy: Callable[[str], str]

    def of_split(self, pair: Sequence[Sequence[str]], split: Split) -> list[list[str]]:
        """The people of a pair of lists that belong to a split; who is held out in any list is in no training list."""
        held = _held_out(self.code) if split == "train" else frozenset[str]()
        both = [each for each in of_split(list(zip(*pair, strict=True)), split) if held.isdisjoint(each)]
        return [list(side) for side in zip(*both, strict=True)]

    def templates(self, name: str, kind: Literal["people", "things"]) -> Sequence[str]:
        """The templates of a name, without those with a word that the language lacks for this kind."""
        return _templates(self.code, name, kind)

    def negated(self, phrase: str) -> str | None:
        """The verb phrase with "not", or None if it holds a negation already or the language has no simple rule."""
        return _negated(self.code, phrase)

    def contracted(self, phrase: str) -> str:
        """The verb phrase as it is spoken: "didn't" in English, the phrase itself elsewhere."""
        return _CONTRACTED.sub(r"\1n't", phrase.replace("cannot", "can't")) if self.code == "en" else phrase

    @property
    def categories(self) -> tuple[str, ...]:
        return (*self.traits, "names", *self.literal, CONTROL, *([FACTS, KNOWLEDGE] if self.code == "en" else []))


@cache
def load(code: str) -> Language:
    """Return the texts of a language."""
    folder = resources.files("evenhand.training.questions") / "texts"
    people: Any = read_yaml(folder / f"{code}.people.yaml")
    files = [f"{code}.situations.txt", *(["en.traits.txt"] if code == "en" else [])]
    situations = [each for file in files for each in parse_situations(file, (folder / file).read_text("utf-8"))]
    return Language(
        code=code,
        situations=tuple(situations),
        traits=people["traits"],
        literal=people["literal"],
        names=people["names"],
        wording=read_yaml(folder / f"{code}.wording.yaml"),
        indefinite=_INDEFINITE[code],
        definite=_DEFINITE.get(code, str),
        gender=_GENDER.get(code, _article_gender),
        tidy=_TIDY.get(code, str),
    )


@cache
def _templates(code: str, name: str, kind: str) -> Sequence[str]:
    wording = load(code).wording
    missing = [f"{{{word}}}" for word in KIND_WORDS if kind not in wording[word]]
    return [each for each in wording[name] if not any(word in each for word in missing)]


@cache
def _held_out(code: str) -> frozenset[str]:
    language = load(code)
    pairs = [pair for kind in (language.traits, language.literal) for each in kind.values() for pair in each]
    return frozenset(noun for pair in pairs for side in language.of_split(pair, "dev") for noun in side)


def _negated(code: str, phrase: str) -> str | None:
    if code in _NOT:
        word, negative = _NOT[code]
        return None if phrase.startswith(negative) else f"{word} {phrase}"
    if code == "fr":
        affirmed = _FRENCH_AFFIRMED.fullmatch(phrase)
        return affirmed and f"n'{affirmed[1]} pas {affirmed[2]}"
    if code != "en" or _NEGATIVE.search(phrase):
        return None
    first, _, rest = phrase.partition(" ")
    start = _negated_verb(first, rest.partition(" ")[0])
    return None if start is None else f"{start} {rest}".strip()


def _negated_verb(verb: str, following: str) -> str | None:
    if verb in ("is", "was", "could", "would", "should"):
        return f"{verb} not"
    if verb in ("has", "had"):
        if following.endswith("ed") or following in ("been", "done", "made", "eaten", "read", "lost"):
            return f"{verb} not"  # a participle follows
        return "did not have" if verb == "had" else "does not have"
    if verb == "can":
        return "cannot"
    if base := load("en").wording["past"].get(verb):
        return f"did not {base}"
    return f"does not {verb[:-1]}" if verb.endswith("s") and verb != "does" else None


def parse_situations(file: str, text: str) -> tuple[Situation, ...]:
    """Parse a file of situations: a head, then lines that begin with ? - + and, for signs, !."""
    found: list[Situation] = []
    line = 1
    for block in re.split(r"\n\n+", text.strip()):
        head, *rest = block.split("\n")
        fields: dict[str, list[str]] = {mark: [] for mark in "?-+!"}
        for each in rest:
            if each[:2] not in ("? ", "- ", "+ ", "! "):
                raise DataError(f"a line of a situation begins with ?, -, + or !, not with {each[:2]!r}.", file=file)
            fields[each[0]] += [each[2:]] if each[0] == "!" else each[2:].split(" | ")
        match = _HEAD.fullmatch(head)
        asked = tuple(zip(fields["?"][::2], fields["?"][1::2], strict=False))
        if match is None or not asked or len(fields["?"]) % 2 or not fields["-"] or not fields["+"]:
            raise DataError("a situation needs a head, pairs of questions, and - and + lines.", file=file, line=line)
        alike = sum(bool(each.things) == bool(match["things"]) for each in found)
        things = tuple(tuple(pair.split("/")) for pair in (match["things"] or "").split(" | ") if pair)
        found.append(
            Situation(
                id=match["id"],
                setting=match["setting"],
                asked=asked,
                shown=(tuple(fields["-"]), tuple(fields["+"])),
                signs=tuple(fields["!"]),
                lasting=bool(match["lasting"]),
                things=things,  # pyright: ignore[reportArgumentType] - pairs
                split="dev" if alike % _HELD_OUT == 0 else "train",
            )
        )
        line += block.count("\n") + 2
    return tuple(found)


def of_split(values: Sequence[T], split: Split) -> list[T]:
    """The entries of a list that belong to a split; a short list belongs to both."""
    if len(values) < _HELD_OUT:
        return list(values)
    return [value for place, value in enumerate(values) if (place % _HELD_OUT == _HELD_OUT - 1) == (split == "dev")]


def capitalized(text: str) -> str:
    """With a capital at the start of every sentence."""
    return _START.sub(lambda match: match[1] + match[2].upper(), text)


def joined(parts: Iterable[str], word: str) -> str:
    """ "a, b and c"."""
    *most, last = parts
    return f"{', '.join(most)} {word} {last}" if most else last


def _english_indefinite(noun: str) -> str:
    # "an heiress" is spoken with a vowel, "a European" and "a uniformed guard" are not.
    vowel = noun[0].lower() in "aeiou" and not re.match(r"(?i)eu|uni|ukr|one\b|use", noun)
    return f"an {noun}" if vowel or noun.startswith(("heir", "hour", "honest")) else f"a {noun}"


def _indefinite(man: str, woman: str, noun: str) -> str:
    article, _, rest = noun.partition(" ")
    return f"{man if _article_gender(article) == 'm' else woman} {rest}"


def _german_indefinite(noun: str) -> str:
    article, *words = noun.split(" ")
    ending = {"der": "r", "das": "s"}.get(article, "")
    for place, word in enumerate(words):
        if not word[0].islower():
            break
        if word.endswith("e"):  # der ältere Mann → ein älterer Mann
            words[place] = word + ending
    return " ".join(["eine" if article == "die" else "ein", *words])


def _english_gender(noun: str) -> str | None:
    return "f" if _WOMEN.search(noun) else "m" if _MEN.search(noun) else None


def _article_gender(noun: str) -> str | None:
    article = noun.partition(" ")[0]
    return "m" if article in ("el", "le", "o", "der") else "f" if article in ("la", "a", "die", "das") else None


def _korean_gender(noun: str) -> str | None:
    return "f" if _KOREAN_WOMEN.search(noun) else "m" if _KOREAN_MEN.search(noun) else None


def bare(noun: str) -> str:
    """Without the article at the start, in any of the languages."""
    found = _ARTICLE.match(noun)
    return noun[found.end() :] if found else noun


def _french_definite(noun: str) -> str:
    return re.sub(rf"^l[ea] (?=h|{_VOWEL})", "l'", noun)


def _catalan_definite(noun: str) -> str:
    # "la" stays before i and u, which are unstressed in these nouns: la infermera, l'infermer.
    return re.sub(rf"^(?:el (?=h?{_VOWEL})|la (?=h?(?![iu]){_VOWEL}))", "l'", noun)


def _tidy_spanish(text: str) -> str:
    text = re.sub(r"\b([Aa]) el\b", r"\1l", re.sub(r"\b([Dd]e) el\b", r"\1l", text))
    # "y" before the sound i is "e".
    return re.sub(r"\by (?=(?:I|i|Hi|hi)(?!e)[a-zñ])", "e ", text)


def _tidy_catalan(text: str) -> str:
    text = re.sub(
        r"\b(a|de|pe)r? els?\b", lambda match: match[0].replace("r ", " ").replace(" e", ""), text, flags=re.I
    )
    return re.sub(rf"\b([Dd])e (?=h?{_VOWEL})", r"\1'", text)


def _tidy_french(text: str) -> str:
    text = re.sub(r"\b([Dd])e le\b", r"\1u", re.sub(r"\bà le\b", "au", re.sub(r"\bÀ le\b", "Au", text)))
    return re.sub(rf"\b([Dd]|[Qq]u)e (?={_VOWEL})", r"\1'", text)


def _tidy_portuguese(text: str) -> str:
    text = re.sub(r"\b([Dd])e (?=[oa]\b)", r"\1", re.sub(r"\bem (?=[oa]\b)", "n", text))
    text = re.sub(r"\b([Pp])or (?=[oa]\b)", r"\1el", text)
    return re.sub(r"\bA a\b", "À", re.sub(r"\ba a\b", "à", re.sub(r"\b([Aa]) o\b", r"\1o", text)))


def _tidy_korean(text: str) -> str:
    text = re.sub(r"(?<=[가-힣]) \(", "(", text.replace("다+", ""))
    return _PARTICLE.sub(lambda match: match[1] + match[2] + match[3 if _ends_in_consonant(match[1]) else 4], text)


def _ends_in_consonant(letter: str) -> bool:
    """Whether a syllable, digit or Latin letter is spoken with a consonant at its end in Korean."""
    return (ord(letter) - ord("가")) % 28 > 0 if "가" <= letter <= "힣" else letter.upper() in "013678LMNR"


_INDEFINITE: Mapping[str, Callable[[str], str]] = {
    "en": _english_indefinite,
    "es": partial(_indefinite, "un", "una"),
    "de": _german_indefinite,
    "ca": partial(_indefinite, "un", "una"),
    "ko": str,
    "fr": partial(_indefinite, "un", "une"),
    "pt": partial(_indefinite, "um", "uma"),
}
_GENDER: Mapping[str, Callable[[str], str | None]] = {
    "en": _english_gender,
    "ko": _korean_gender,
}
_DEFINITE: Mapping[str, Callable[[str], str]] = {
    "en": "the {}".format,
    "ca": _catalan_definite,
    "fr": _french_definite,
}
_TIDY: Mapping[str, Callable[[str], str]] = {
    "es": _tidy_spanish,
    "ca": _tidy_catalan,
    "ko": _tidy_korean,
    "fr": _tidy_french,
    "pt": _tidy_portuguese,
}
"""Contractions, elisions and particles, which depend on what a template is filled with."""
