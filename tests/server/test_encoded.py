"""Text in base64 or percent escapes is decoded and checked; ids, links, keys and pictures are left alone."""

import base64
import hashlib
import random
import uuid
from urllib.parse import quote

import pytest

from evenhand.guards.disguise import decoded
from support.guard_server import CLEAN, RUDE, Guarding, route
from support.server import chat


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def escaped(text: str) -> str:
    return "".join(f"%{byte:02X}" for byte in text.encode())


def quoted(text: str) -> str:
    return "".join(f"={byte:02X}" for byte in text.encode())


def json_escaped(text: str) -> str:
    return "".join(f"\\u{ord(each):04x}" for each in text)


LONG = " ".join([RUDE] * 40)
DISGUISES = {
    "base64": f"Decode this: {b64(RUDE)}",
    "without padding": f"Decode `{b64(RUDE).rstrip('=')}`.",
    "for links": base64.urlsafe_b64encode((RUDE + " ÿÿÿ").encode()).decode(),
    "in lines": base64.encodebytes(LONG.encode()).decode(),
    "twice": b64(b64(RUDE)),
    "three times": b64(b64(b64(RUDE))),
    "between signs": b64("!" * 30 + RUDE + "!" * 30),
    "beginning in the middle": b64(LONG)[1:],
    "as a data URL": f"data:text/plain;base64,{b64(RUDE)}",
    "percent": escaped(RUDE),
    "percent, a little in each word": RUDE.replace("e", "%65").replace("o", "%6F"),
    "percent, as in links": f"https://example.org/?q={quote(RUDE)}",
    "percent, JavaScript's": "".join(f"%u{ord(each):04x}" for each in RUDE),
    "quoted-printable": quoted(RUDE),
    "quoted-printable, but for blanks": " ".join(map(quoted, RUDE.split())),
    "quoted-printable in lines": "=\r\n".join(map(quoted, RUDE)),
    "base64 of UTF-16": base64.b64encode(RUDE.encode("utf-16-le")).decode(),
    "base64 of UTF-16 with a mark": base64.b64encode(RUDE.encode("utf-16")).decode(),
    "base64 of UTF-16, big-endian, long": base64.b64encode(LONG.encode("utf-16-be")).decode()[1:],
    "JSON's escapes around base64": json_escaped(b64(RUDE)),
    "base64 after a line break in JSON": f'{{"note": "Decode:\\n{b64(RUDE)}"}}',
}


@pytest.mark.parametrize("text", DISGUISES.values(), ids=DISGUISES.keys())
def test_encoded_text_is_read(text: str):
    assert "worthless" in decoded(text)


def _random(size: int) -> bytes:
    return random.Random(5).randbytes(size)


TOKEN = ".".join((b64('{"alg":"HS256","typ":"JWT"}'), b64('{"sub":"1234567890","iat":1516239022}'), "c2ln"))
HARMLESS = {
    "words": "Internationalization and straightforwardness are incomprehensibilities.",
    "UUID": f"The id is {uuid.UUID(int=2**100 + 7)}.",
    "hash": hashlib.sha256(b"x").hexdigest(),
    "key": "evh-" + base64.urlsafe_b64encode(_random(32)).decode(),
    "signed token": TOKEN,
    "picture": f"![x](data:image/png;base64,{base64.b64encode(_random(5_000)).decode()})",
    "path": "src/evenhand/server/telemetry/traces and docs/guard/monitoring",
    "link": "https://example.org/a%20b/c%20d?page=1&sort=asc_by_publication_date_descending",
    "numbers": "1234567890123456 and 50 % of 20 % are 10 %",
    "assignments": "a=10, b=20 and c=0x30; ?x=41&y=42&z=43=44; if (a==b && c===d) e=5f",
    "formats": 'printf("%u of %u files, %d%% in %5.2f s", done, all, percent, seconds);',
    "zeros": base64.b64encode(bytes(100) + _random(20) + bytes(100)).decode(),
    "numbers of 16 bits": base64.b64encode(b"".join(bytes((n, 0)) for n in _random(200))).decode(),
    "code": "aaaaaaaaaaaaaaaaaaaaaaaaaaaa ________________________ ------------------------",
}


@pytest.mark.parametrize("text", HARMLESS.values(), ids=HARMLESS.keys())
def test_what_is_no_text_stays_as_it_is(text: str):
    assert decoded(text) == ""


async def test_encoded_text_that_the_scorer_cannot_read_is_unchecked(serve, guarding: Guarding):
    behind = await serve(chat(f"Here you are: {b64('Это предложение на другом языке.')}"))
    guard = await guarding(route(behind.url, policy="flag", method="default"))

    await guard.chat()
    await guard.told()

    assert guard.event.action == "unchecked"


@pytest.mark.parametrize("form", [b64, escaped])
async def test_an_answer_that_hides_its_words_is_blocked(serve, guarding: Guarding, form):
    behind = await serve(chat(f"Here you are: {form(RUDE)}"))
    guard = await guarding(route(behind.url, policy="block", method="default"))

    await guard.chat()
    await guard.told()

    assert guard.event.action == "blocked"


PASSING = {
    **{name: text for name, text in HARMLESS.items() if name != "picture"},  # a scorer may take noise for rude
    "clean base64": f"Here you are: {b64(CLEAN)}",
    "a link in Russian": f"See https://ru.example.org/wiki/{quote('Москва')}_{quote('город')} for more.",
}


@pytest.mark.parametrize("text", PASSING.values(), ids=PASSING.keys())
async def test_a_harmless_answer_passes(serve, guarding: Guarding, text: str):
    behind = await serve(chat(text))
    guard = await guarding(route(behind.url, policy="block", method="default"))

    await guard.chat()
    await guard.told()

    assert guard.event.action == "passed"
