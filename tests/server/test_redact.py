"""What is taken out of texts before they are stored, what stays, and that no text takes long."""

from dataclasses import replace

import pytest

from evenhand.guards.types import Check
from evenhand.server.telemetry import logs as redact
from evenhand.server.telemetry.events import Event
from evenhand.server.telemetry.logs import redacted, with_texts, without_secrets

KEY = "evh-" + "Ab3_" * 10


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Write to jo.doe+news@mail.example.org.", "Write to [email]."),
        ("Grüße an müller@bücher.example!", "Grüße an [email]!"),
        ("Card 4111 1111 1111 1111, thanks", "Card [card], thanks"),
        ("4111-1111-1111-1111", "[card]"),
        ("378282246310005", "[card]"),
        ("Call +49 30 1234567 now", "Call [phone] now"),
        ("Call +1 (555) 010-9999", "Call [phone]"),
        ("(555) 010-9999 or 555-010-9999", "[phone] or [phone]"),
        ("030 1234 5678", "[phone]"),
        ("From 192.168.0.1 to 2001:db8::8a2e:370:7334.", "From [ip] to [ip]."),
        (f"My key is {KEY}.", "My key is [secret]."),
        ("Authorization: Bearer abcdef123456", "Authorization: Bearer [secret]"),
        ('{"api_key": "hunter2hunter2"}', '{"api_key": "[secret]"}'),
        ("https://x.example/?key=abcdef123&alt=json", "https://x.example/?key=[secret]&alt=json"),
        ("password: correct-horse", "password: [secret]"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl", "[secret]"),
        ("-----BEGIN PRIVATE KEY-----\nMIIEv\n-----END PRIVATE KEY-----", "[secret]"),
        ("-----BEGIN PRIVATE KEY-----\nMIIEv and no end", "[secret]"),
    ],
)
def test_what_has_a_form_is_replaced_by_its_kind(text: str, expected: str):
    assert redacted(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "She was born in 1987 and has 12 cats.",
        "Version 1.2.3, chapter 4.5.6.7.8, 999.999.999.999",
        "4111 1111 1111 1112 fails its check digit",
        "0000000000000000",
        "It is 10:30:45 now; std::vector is fine",
        "The key to success: patience. A token of thanks.",
        "On 2026-11-15 we sold 1,234,567 items for 99.95.",
        "user@localhost",
    ],
)
def test_what_only_looks_alike_stays(text: str):
    assert redacted(text) == text


@pytest.mark.parametrize(
    "piece",
    ["1", "1 ", "a@", "a.", "1.", ":", "(1", "-----BEGIN PRIVATE KEY-----", "eyJ", "sk-", "key=", "00"],
)
def test_no_text_takes_long(piece: str):
    assert redacted(piece * 50_000)  # a quadratic pattern would run into the limit of the test


PERSONAL = (
    f"jo@mail.example, {KEY} and 4111 1111 1111 1111; 192.168.0.1, 2001:db8::8a2e:370:7334 or +49 30 1234567. "
    "password: correct-horse\n-----BEGIN PRIVATE KEY-----\nMIIEv\n-----END PRIVATE KEY----- It is 10:30:45 now. "
)


@pytest.mark.parametrize("window", [1, 7, 50, 1000])
def test_a_text_in_windows_is_redacted_as_a_whole(monkeypatch: pytest.MonkeyPatch, window: int):
    expected = redacted(PERSONAL * 5)
    monkeypatch.setattr(redact, "WINDOW", window)

    assert redacted(PERSONAL * 5) == expected
    assert expected.count("[secret]") == 15


def test_a_long_text_is_not_matched_at_one_go(monkeypatch: pytest.MonkeyPatch):
    """A single match on all of it would hold the interpreter, and so the event loop, for its whole duration."""
    spans: list[int] = []

    class Watched:
        def search(self, text: str, start: int, end: int) -> None:
            spans.append(min(end, len(text)) - start)

    monkeypatch.setattr(redact, "_EMAIL", Watched())

    redacted("a@b " * 250_000)

    assert len(spans) > 20
    assert max(spans) < 50_000


def test_the_log_keeps_addresses_but_no_secrets():
    assert without_secrets(f"192.168.0.1 sent {KEY}") == "192.168.0.1 sent [secret]"


def test_texts_of_an_event_are_kept_as_asked_for():
    check = Check("toxicity", 0.9, 0.1, False, words="Do not name jo@mail.example.", problem="")
    event = Event("r1", 0.0, "chat", "/v1/chat/completions", prompt="I am jo@mail.example", first="a", before=(check,))

    assert with_texts(event, "full") is event
    assert with_texts(event, "redacted").prompt == "I am [email]"
    assert with_texts(event, "redacted").before[0].words == "Do not name [email]."
    assert with_texts(event, "none") == replace(event, prompt="", first="", before=(replace(check, words=""),))
