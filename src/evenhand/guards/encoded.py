"""Text that is written in an answer as base64 or with percent signs, so that a scorer sees no words. Pure functions."""

from __future__ import annotations

import binascii
import codecs
import re

SHORTEST = 16
"""Characters of the shortest base64 that is decoded: twelve of text."""
ESCAPES = 3
"""Percent escapes from which a word is decoded; a link with a blank or two is no disguise."""
_LONG = 200
"""Characters from which base64 may begin anywhere, because long answers are read in pieces."""
_DEPTH = 2
"""Times that text is decoded: base64 of base64 hides words, too."""
_LETTERS = 0.7
"""Share of letters and blanks from which decoded bytes count as text; ids, keys, pictures and tokens have less."""
_BASE64 = re.compile(rf"(?<![\w+/-])[A-Za-z0-9+/_-]{{{SHORTEST},}}(?:\r?\n[A-Za-z0-9+/_-]{{{SHORTEST},}})*")
_STANDARD = str.maketrans("-_", "+/", "\r\n")
_INNER = bytes(range(0x80, 0xC0))
"""Bytes that no character begins with in UTF-8."""
_ESCAPED = re.compile("(?:%[0-9A-Fa-f]{2})+")
_OTHER_SIGNS = re.compile(r"[^\x00-\x7f]+")


def decoded(text: str) -> str:
    """What the encoded parts of a text say, a line each; "" if there are none."""
    found: list[str] = []
    parts = [text]
    for _ in range(_DEPTH):
        parts = [plain for part in parts for plain in (*_from_base64(part), *_from_escapes(part))]
        found += parts
    return "\n".join(found)


def _from_base64(text: str) -> list[str]:
    if max(map(len, text.split()), default=0) < SHORTEST:
        return []
    runs = (match[0].translate(_STANDARD) for match in _BASE64.finditer(text))
    return [plain for run in runs if (plain := _plain(run))]


def _plain(run: str) -> str:
    """Return the text in a run of base64; "" if there is none."""
    for start in range(4 if len(run) >= _LONG else 1):
        used = len(run) - start
        used -= used % 4 == 1  # one character alone is less than a byte
        data = binascii.a2b_base64(run[start : start + used] + "=" * (-used % 4))
        try:
            plain, _ = codecs.utf_8_decode(data.lstrip(_INNER), "strict", False)  # its end may be cut
        except UnicodeDecodeError:
            continue
        if sum(map(str.isalpha, plain)) + sum(map(str.isspace, plain)) >= _LETTERS * len(plain):
            return plain
    return ""


def _from_escapes(text: str) -> list[str]:
    """Decode words with percent escapes; words of other scripts are usual in links, and left out there."""
    words = [word for word in text.split() if word.count("%") >= ESCAPES] if text.count("%") >= ESCAPES else ()
    found: list[str] = []
    for word in words:
        plain = _ESCAPED.sub(_unescaped, word)
        if len(word) - len(plain) >= 2 * ESCAPES:
            found.append(_OTHER_SIGNS.sub(" ", plain) if "://" in word else plain)
    return found


def _unescaped(match: re.Match[str]) -> str:
    return bytes.fromhex(match[0].replace("%", "")).decode("utf-8", "replace")
