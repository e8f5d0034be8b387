"""Redacts personal data and secrets that have a recognisable form, before texts are stored.

Mail addresses, phone numbers, card numbers (with a valid check digit), network addresses, and keys or tokens become
`[email]`, `[phone]`, `[card]`, `[ip]` and `[secret]`. Names, street addresses and other data without a fixed form are
not redacted. Every pattern is bounded, and long texts are read in windows: a regular expression holds the interpreter
until it is done, even in a thread, and the event loop would wait for it.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Literal

from evenhand.guards.types import Check
from evenhand.server.telemetry.events import Event

Texts = Literal["none", "redacted", "full"]
"""How prompts, answers and critiques are stored."""

WINDOW = 32_768
"""Characters in which a match is looked for at once."""
_REACH = 16_500
"""Characters of the longest match."""

_SECRETS = re.compile(
    r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----[^-]{0,10000}(?:-----END [A-Z ]{0,30}PRIVATE KEY-----)?"
    r"|\beyJ[\w-]{8,4096}\.[\w-]{8,8192}(?:\.[\w-]{0,4096})?"  # a signed token
    r"|\b(?:(?:evh|sk|pk|rk|gsk|hf|xai|ghp|gho|ghs|github_pat|glpat|xox[abprs])[-_]|AKIA|AIza|ya29\.)[A-Za-z0-9_-]{16,512}"
)
# Most texts contain none of these, and searching for them is far cheaper than matching the patterns.
_SECRET_MARKS = (
    *("evh-", "sk-", "sk_", "pk-", "pk_", "rk-", "rk_", "gsk_", "hf_", "xai-", "ghp_", "gho_", "ghs_", "github_pat_"),
    *("glpat-", "xox", "AKIA", "AIza", "ya29.", "eyJ", "-----BEGIN"),
)
_SECRET_NAMES = ("bearer", "basic", "key", "token", "secret", "passw", "pwd")
_MANY_DIGITS = re.compile(r"[0-9](?:[^0-9A-Za-z]{0,3}[0-9]){6}")
_DOTTED = re.compile(r"\.[0-9]{1,3}\.")
_COLONS = re.compile(r":[0-9A-Fa-f]{0,4}:")
_NAMED_SECRET = re.compile(  # a value labelled as a secret, whatever its form; the label stays
    r"(?i)(\bbearer[ ]{1,3}|\bbasic[ ]{1,3}(?=[A-Za-z0-9+/]{8})"
    r"|\b(?:api[_-]?key|key|token|secret|password|passwd|pwd)[\"']{0,1}[ ]{0,3}[=:][ ]{0,3}[\"']{0,1})"
    r"([^\s\"'&,;<>]{6,512})"
)
_EMAIL = re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@(?:[\w-]{1,63}\.){1,8}[^\W\d_]{2,24}\b")
_CARD = re.compile(r"(?<![\d.])[0-9](?:[ -]?[0-9]){12,18}(?!\d)")
_PHONE = re.compile(
    r"(?<![\w.+])(?:\+|00)[1-9](?:[ ().\-/]{0,2}\d){7,14}(?!\d)"  # with a country code
    r"|(?<![\w.+-])\(?\d{3}\)?[ .\-]{1,2}\d{3}[ .\-]\d{4}(?!\d)"  # North American format
    r"|(?<![\w.+-])0\d{2,4}[ \-/]\d{3,4}[ \-]?\d{3,5}(?!\d)"  # with a trunk zero
)
_IPV4 = re.compile(r"(?<![\d.])(?:\d{1,3}\.){3}\d{1,3}(?![\d]|\.\d)")
_IPV6 = re.compile(r"(?<![\w:])[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){2,7}(?![\w:])")


def redacted(text: str) -> str:
    """Replace recognised personal data and secrets by their kind."""
    text = without_secrets(text)
    if "@" in text:
        text = _replaced(_EMAIL, "[email]", text)
    if _COLONS.search(text):
        text = _replaced(_IPV6, _address, text)
    if _DOTTED.search(text):
        text = _replaced(_IPV4, _address, text)
    if _MANY_DIGITS.search(text):
        text = _replaced(_PHONE, "[phone]", _replaced(_CARD, _card, text))
    return text


def without_secrets(text: str) -> str:
    """Replace keys and tokens; everything that is logged goes through this."""
    if any(mark in text for mark in _SECRET_MARKS):
        text = _replaced(_SECRETS, "[secret]", text)
    lower = text.lower()
    if any(name in lower for name in _SECRET_NAMES):
        text = _replaced(_NAMED_SECRET, _labelled, text)
    return text


def _replaced(pattern: re.Pattern[str], by: str | Callable[[re.Match[str]], str], text: str) -> str:
    """Return `pattern.sub(by, text)`, in windows if the text is long."""
    if len(text) <= WINDOW:
        return pattern.sub(by, text)
    parts: list[str] = []
    kept = 0
    for match in _matches(pattern, text):
        parts += [text[kept : match.start()], by if isinstance(by, str) else by(match)]
        kept = match.end()
    return "".join([*parts, text[kept:]])


def _matches(pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    place = 0
    while place < len(text):
        match = pattern.search(text, place, place + WINDOW + _REACH)
        if match is not None and match.start() < place + WINDOW:
            yield match
            place = match.end()
        else:
            place += WINDOW


def _labelled(match: re.Match[str]) -> str:
    return f"{match[1]}[secret]"


def with_texts(event: Event, texts: Texts) -> Event:
    """Return the event with full texts, redacted texts, or none."""
    if texts == "full":
        return event

    def kept(text: str) -> str:
        return redacted(text) if texts == "redacted" else ""

    def checked(checks: tuple[Check, ...]) -> tuple[Check, ...]:
        return tuple(replace(check, words=kept(check.words), problem=kept(check.problem)) for check in checks)

    return replace(
        event,
        prompt=kept(event.prompt),
        first=kept(event.first),
        text=kept(event.text),
        input=event.input and replace(event.input, checks=checked(event.input.checks)),
        before=checked(event.before),
        after=checked(event.after),
    )


def _address(match: re.Match[str]) -> str:
    try:
        ipaddress.ip_address(match[0])
    except ValueError:
        return match[0]
    return "[ip]"


def _card(match: re.Match[str]) -> str:
    digits = [int(sign) for sign in match[0] if sign.isdigit()]
    return "[card]" if _has_check_digit(digits) and len(set(digits)) > 1 else match[0]


def _has_check_digit(digits: list[int]) -> bool:
    """Whether the digits pass the Luhn check."""
    doubled = [digit * 2 - 9 * (digit > 4) for digit in digits[-2::-2]]
    return (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0
