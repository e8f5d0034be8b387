"""What a text says without disguises: HTML entities, enclosed and full-width letters, look-alikes, invisible signs.

Text in base64, percent signs, quoted-printable or JSON's escapes is decoded, too. A reader sees the word, a scorer sees
other characters; so the guard checks both. Pure functions.
"""

from __future__ import annotations

import binascii
import codecs
import re
import sys
import unicodedata
from functools import lru_cache

from evenhand.core.untrusted import without_entities

_UNESCAPED = 3
"""Times that entities are resolved: entities of entities are used to hide words."""
_AMPERSAND = re.compile(r"&(?:(?:amp|#0*38|#x0*26);)+", re.IGNORECASE)
"""An ampersand that was written as an entity, again and again."""
_REVERSED = re.compile("\u202e([^\u202c\n]*)")
_INSIDE = re.compile(
    r"(?<=[^\W\d_])"
    r"(?:<!--[^<>]*-->|</?(?:a|b|big|code|del|em|font|i|ins|mark|s|small|span|strong|sub|sup|u|wbr)\b[^<>]*>|[*~`])+"
    r"(?=[^\W\d_])",
    re.IGNORECASE,
)
"""Markup inside a word: what is shown is the word."""
_APART = re.compile(r"(?<![^\W_])[^\W\d_]([-+/|\\·•,_])[^\W\d_](?:\1[^\W\d_])+(?![^\W_])")
"""A word with a sign after every letter."""
_FILLERS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
"""Characters that are not shown, though Unicode calls them letters, marks or symbols."""
_TAGS = range(0xE0020, 0xE007F)
"""ASCII that is not shown."""
_BRAILLE = str.maketrans("⠁⠃⠉⠙⠑⠋⠛⠓⠊⠚⠅⠇⠍⠝⠕⠏⠟⠗⠎⠞⠥⠧⠺⠭⠽⠵\u2800", "abcdefghijklmnopqrstuvwxyz ")
_IN_BRAILLE = re.compile("[\u2801-\u28ff]+(?:\u2800+[\u2801-\u28ff]+)*")
_LATIN_NAME = re.compile(
    r"(?:.* )?(?:LATIN|REGIONAL INDICATOR SYMBOL) (?:.* )?(?:LETTER|CAPITAL|SMALL) (?:.* )?([A-Z])(?: WITH .*)?"
)
_CYRILLIC = str.maketrans("абвегнікмоорстухѕјһԁԛԝѵӏьєзпи", "a6bernikmoopctyxsjhdqwvlbe3nu")
_GREEK = str.maketrans("αβγεζηικλμνοπρσςτυχω", "abyeznikluvonpostuxw")
_OTHERS = str.maketrans("օոսհցզյաեցꭺᏼꮯꭰꭼꮐꮋꭵꭻꮶꮮꮇꮲꮢꮪꭲꮩꮃꮓ", "onuhgqjwegabcdeghijklmprstvwz")
_LOOKALIKES = _CYRILLIC | _GREEK | _OTHERS
_CODES = re.compile(
    r"(?:\\|%(?=u[0-9A-Fa-f]{4}))"
    r"(?:[uxU]((?<=u)[0-9A-Fa-f]{4}|(?<=x)[0-9A-Fa-f]{2}|(?<=U)[0-9A-Fa-f]{8})|u\{([0-9A-Fa-f]{1,6})\}|[nrtbf\"/\\])"
)
_SIGNS = {'"': '"', "/": "/", "\\": "\\"}
"""What an escape of one sign stands for; all others are blanks of some kind."""
_OTHER_SIGNS = re.compile(r"[^\x00-\x7f]+")
_WORD = re.compile(r"[^\W\d_]+")
_SYMBOLS = 3
"""Words up to this length may have one foreign letter: units and formulas (kΩ, μm, ΔT) are no words."""
SHORTEST = 16
"""Characters of the shortest base64 that is decoded: twelve of text."""
ESCAPES = 3
"""Percent escapes from which a text, or a link, is decoded; a blank or two are no disguise."""
_LONG = 200
"""Characters from which base64 may begin anywhere, because long answers are read in pieces."""
_DEPTH = 3
"""Times that text is decoded: base64 of base64 hides words, too."""
_LETTERS = 0.7
"""Share of letters and blanks, from the first letter to the last, from which decoded signs count as text; ids, keys,
pictures and tokens have less."""
_WIDE = 0.4
"""Share of zeros from which bytes are Latin letters in UTF-16."""
_BASE64 = re.compile(rf"(?<![\w+/-])[A-Za-z0-9+/_-]{{{SHORTEST},}}(?:\r?\n[A-Za-z0-9+/_-]{{{SHORTEST},}})*")
_STANDARD = str.maketrans("-_", "+/", "\r\n")
_INNER = bytes(range(0x80, 0xC0))
"""Bytes that no character begins with in UTF-8."""
_EDGES = re.compile(r"\A[\W\d_]+|[\W\d_]+\Z")
_ESCAPED = re.compile("(?:%[0-9A-Fa-f]{2})+")
_QUOTED = re.compile(r"(?:=[0-9A-Fa-f]{2}|=\r?\n)+")
_QUOTES = re.compile(r"(?:=[0-9A-Fa-f]{2}(?:=\r?\n)?){3}")
"""A run from which a text counts as quoted-printable; assignments and links have shorter ones."""
_NO_SIGNS = str.maketrans("", "", "%=")
_SPELT = re.compile(r"(?<!\w)[^\W\d_](?: [^\W\d_]){2,}(?!\w)")
"""A word with a blank after every letter."""


def revealed(text: str) -> str:
    """The text without disguises; the same text if it has none."""
    shown = _shown(text)
    return _WORD.sub(lambda word: _resembled(word[0]) or word[0], shown) if _has_foreign_letters(shown) else shown


def has_foreign_words(text: str) -> bool:
    """Whether a text has words of other scripts than Latin, or words that mix scripts and resemble none."""
    shown = _shown(text)
    return _has_foreign_letters(shown) and (
        any(map(_is_foreign, _WORD.findall(shown))) or any(map(_is_spelt_foreign, _SPELT.findall(shown)))
    )


@lru_cache(maxsize=32)
def has_words(text: str) -> bool:
    """Whether there are words to evaluate; numbers and emoji are not words.

    It is asked often about the same text, also on the event loop, and a megabyte of digits takes 50 ms.
    """
    return any(map(str.isalpha, text)) or any(map(str.isalpha, revealed(text)))


def _shown(text: str) -> str:
    """The text as it is displayed: entities resolved, letters of other forms as plain ones, nothing invisible."""
    for _ in range(_UNESCAPED):
        if "&" not in text or (plain := without_entities(_AMPERSAND.sub("&", text))) == text:
            break
        text = plain
    if not text.isascii():
        ordered = _REVERSED.sub(lambda match: match[1][::-1], text)
        dots = _IN_BRAILLE.sub(_from_braille, ordered)
        text = _OTHER_SIGNS.sub(_shown_signs, unicodedata.normalize("NFC", dots))
    return _APART.sub(lambda match: match[0].replace(match[1], ""), _INSIDE.sub("", text))


def _from_braille(match: re.Match[str]) -> str:
    plain = match[0].translate(_BRAILLE)
    return plain if _is_text(plain) else match[0]  # pictures are made of dots, too


def _shown_signs(match: re.Match[str]) -> str:
    before = match.string[max(0, match.start() - 1) : match.start()]
    shown: list[str] = []
    for sign in match[0]:
        seen = _seen(sign)
        if seen is None:  # between emoji, invisible signs are part of them; after a letter, they only divide a word
            seen = "" if before.isalnum() else sign
        shown.append(seen)
        before = seen or before
    return "".join(shown)


@lru_cache(maxsize=4096)
def _seen(sign: str) -> str | None:
    """What a reader sees of a sign; None if it is invisible."""
    number = ord(sign)
    if number in _TAGS:
        return chr(number - 0xE0000)
    if sign in _FILLERS or unicodedata.category(sign) in ("Cf", "Mn", "Me"):
        return None
    if unicodedata.normalize("NFD", sign)[0].isascii():  # an accent is no disguise
        return sign
    letters = unicodedata.normalize("NFKC", sign)
    if letters.isascii():
        bare = letters.strip("().")
        return bare if bare.isalnum() else sign
    if named := _LATIN_NAME.fullmatch(unicodedata.name(sign, "")):
        return named[1].lower()
    return sign


def _resembled(word: str) -> str | None:
    """The Latin word that a word looks like, if any."""
    if not any(map(_is_foreign_letter, word)):
        return word
    latin = word.lower().translate(_LOOKALIKES)
    return None if any(map(_is_foreign_letter, latin)) else latin


def _is_foreign(word: str) -> bool:
    foreign = sum(map(_is_foreign_letter, word))
    if foreign == len(word):
        return foreign > 1
    return (foreign > 1 or (foreign == 1 and len(word) > _SYMBOLS)) and _resembled(word) is None


def _is_spelt_foreign(spelt: str) -> bool:
    """Whether it is a word of another script, letter by letter; Greek ones are variables."""
    return all(_is_foreign_letter(sign) and "GREEK" not in unicodedata.name(sign, "") for sign in spelt[::2])


def _has_foreign_letters(text: str) -> bool:
    return not text.isascii() and any(map(_is_foreign_letter, "".join(_OTHER_SIGNS.findall(text))))


@lru_cache(maxsize=4096)
def _is_foreign_letter(sign: str) -> bool:
    if sign.isascii() or not sign.isalpha():
        return False
    return not unicodedata.name(sign, "").startswith(("LATIN", "MODIFIER", "FEMININE", "MASC"))


def decoded(text: str) -> str:
    """What the encoded parts of a text say, a line each; "" if there are none."""
    plain = unescaped(text)
    found, parts = [plain] if plain else [], [plain or text]
    for _ in range(_DEPTH):
        parts = [said for part in parts for said in (*_from_base64(part), *_from_escapes(part), *_from_quoted(part))]
        found += parts
    return "\n".join(found)


def unescaped(text: str) -> str:
    """The text with its characters instead of JSON's, Python's and %uXXXX escapes; "" if it has none."""
    plain = _CODES.sub(_meant, text) if "\\" in text or "%u" in text else text
    return "" if plain == text else plain.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _meant(match: re.Match[str]) -> str:
    number = int(match[1] or match[2] or "0", 16)
    return chr(number) if 0 < number <= sys.maxunicode else _SIGNS.get(match[0][1:], "\n")


def _from_base64(text: str) -> list[str]:
    if max(map(len, text.split()), default=0) < SHORTEST:
        return []
    runs = (match[0].translate(_STANDARD) for match in _BASE64.finditer(text))
    return [plain for run in runs if (plain := _plain(run))]


def _plain(run: str) -> str:
    """Return the text in a run of base64, or an empty string."""
    for start in range(4 if len(run) >= _LONG else 1):
        used = len(run) - start
        used -= used % 4 == 1  # one character alone is less than a byte
        data = binascii.a2b_base64(run[start : start + used] + "=" * (-used % 4))
        if data.count(0) > _WIDE * len(data):
            data = data.replace(b"\0", b"").removeprefix(b"\xff\xfe").removeprefix(b"\xfe\xff")
        try:
            plain, _ = codecs.utf_8_decode(data.lstrip(_INNER), "strict", False)  # its end may be cut
        except UnicodeDecodeError:
            continue
        if _is_text(_EDGES.sub("", plain)):
            return plain
    return ""


def _is_text(plain: str) -> bool:
    return bool(plain) and sum(map(str.isalpha, plain)) + sum(map(str.isspace, plain)) >= _LETTERS * len(plain)


def _from_escapes(text: str) -> list[str]:
    """Decode a text with percent escapes, and links; words of other scripts are usual in links, and left out there."""
    if text.count("%") < ESCAPES:
        return []
    words = text.split()
    links = [word for word in words if "://" in word]
    found: list[str] = []
    for part in (" ".join(word for word in words if "://" not in word), *links):
        plain = _ESCAPED.sub(_from_hexadecimal, part)
        if len(part) - len(plain) >= 2 * ESCAPES:
            found.append(_OTHER_SIGNS.sub(" ", plain) if "://" in part else plain)
    return found


def _from_quoted(text: str) -> list[str]:
    return [_QUOTED.sub(_from_hexadecimal, text)] if "=" in text and _QUOTES.search(text) else []


def _from_hexadecimal(match: re.Match[str]) -> str:
    return bytes.fromhex(match[0].translate(_NO_SIGNS)).decode("utf-8", "replace")
