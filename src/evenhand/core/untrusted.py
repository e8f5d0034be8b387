"""Untrusted text on its way onto a screen, and into a prompt.

On a screen, control characters and marks that reorder text are made visible. In a prompt it is fenced as data, and
without sentences that give orders to a model: a fence only asks the model to be careful, but a sentence that was
removed cannot be followed. So sentences that look like instructions to a model are removed and counted. This filters
known tricks and proves nothing. Text from searches also never reaches the agent that answers, only the one that
rewrites reasoning, as facts with their source.
"""

from __future__ import annotations

import html
import re
import unicodedata
from itertools import pairwise

_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]"
)
_SENTENCE = re.compile(r"[^.!?\n]*(?:[.!?]+[\"'”’)\]]*|\n|$)\s*")
_FENCE = re.compile(r"<{2,}|>{2,}")
# Where an order can begin: "Young drivers ignore rules" is not one.
_BEGIN = (
    r"(?:^\W*|[:;,–—]\s*|\b(?:please|kindly|now|always|just|simply|only|must|should|shall|and|then|"
    r"(?:need|have|required|instructed|important)\s+to)\s+)"
)
_TELL = r"(?:answer|respond|reply|output|say|choose|select|pick|return|write|print|conclude|state)"
_MODELS = r"(?:ai|llms?|(?:language\s+)?models?|(?:ai\s+)?assistants?|bots?|summari[sz]ers?|(?:ai\s+)?agents?)"
_ORDERS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"{_BEGIN}(?:ignore|disregard|forget|override|bypass|skip|do\s+not\s+follow|don['’]t\s+follow|stop\s+following)"
        r"\b.{0,60}\b(?:instructions?|prompts?|rules?|directions?|messages?|guidelines?|context|passage|question|above|"
        r"earlier|previous|everything)\b",
        r"\b(?:ignore|disregard|forget|override|bypass)\b.{0,20}\b(?:all|any|your|these|above|previous|prior|earlier|"
        r"preceding)\b.{0,40}\b(?:instructions?|prompts?|rules?|directions?|messages?|guidelines?|context)\b",
        r"\b(?:your|my)\s+(?:new|updated|real|actual|only|true)\s+(?:instructions?|prompt|task|goal|role)\b",
        r"\b(?:new|updated|important|special|secret|hidden|following)\s+(?:system\s+)?"
        r"(?:instructions?|prompts?|directives?)\s*[:!–—-]",
        rf"\byou\s+(?:are|must|should|will|shall)\s+(?:now\b|(?:always\s+|only\s+)?{_TELL}\b|"
        r"an?\s+(?:ai|assistant|chatbot|language\s+model|large\s+language))",
        rf"\b{_TELL}\b[\s:]*(?:(?:with|only|just|always|the|option|letter|choice|answer|is|as|number|that|it|by)\b"
        r"[\s:]*){0,6}[\"'“‘(\[*]*[A-Ca-c0-2][\"'”’)\]*]*[.!]?\s*$",
        r"^\W*(?:(?:please|always|now|simply|just|so|then)\W+)*(?:(?:answer|respond|reply)\s+(?:that|with|by|as|only)|"
        r"(?:conclude|state|report|say|claim|write|output)\s+that|(?:act|behave)\s+as|pretend\s+(?:to|that|you)|"
        r"role-?play\s+(?:as|that|an?|the))\b",
        r"\b(?:(?:correct|right|true|final|expected)\s+(?:answer|option|choice|letter)|(?:best|only)\s+(?:answer|letter))"
        r"\s*(?:\b(?:is|must|should|will)\b|[:=])",
        r"\b(?:system|developer|assistant)\s+(?:prompt|message|note|instruction)s?\b|\bjailbreak\b",
        rf"\b{_MODELS}\b[^.]{{0,60}}\b(?:must|should|shall|need\s+to|have\s+to|are\s+(?:\w+\s+)?to)\s+(?:\w+\s+)?"
        rf"(?:{_TELL}|ignore|disregard|report|treat|summari[sz]e|follow|recommend|believe|prefer)\b",
        rf"\b{_MODELS}\b[^.]{{0,20}}\b(?:reading|processing|summari[sz]ing)\s+this\b",
        rf"\b(?:(?:note|message|notice|instructions?)\s+(?:to|for)|attention,?)\s+(?:(?:the|all|any)\s+)*{_MODELS}\b",
        r"^\W*(?:system|user|assistant|human|instruction)s?\s*[:>\]|]",
        r"<\|?\/?\s*(?:system|user|assistant|instructions?|im_start|im_end|endoftext)\b",
        r"\[/?inst\]|###\s*(?:instruction|response|system)",
    )
)


def clean(text: str) -> str:
    """Replace every unprintable or reordering character by a visible symbol."""
    return _UNPRINTABLE.sub(_symbol, text.replace("\r\n", "\n"))


def one_line(text: str) -> str:
    return " ".join(clean(text).split())


def _symbol(match: re.Match[str]) -> str:
    code = ord(match.group())
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "\u2421"
    if 0xD800 <= code <= 0xDFFF:
        return "\ufffd"
    return f"[U+{code:04X}]"


def escaped(text: object) -> str:
    """HTML that shows the text as it is."""
    return html.escape(clean(str(text)))


def without_entities(text: str) -> str:
    """Return the text with HTML's entities resolved."""
    try:
        return html.unescape(text)
    except ValueError:  # a character number of more digits than Python converts
        return text


def fenced(text: str) -> str:
    """The text for a prompt to put between <<< and >>>, unable to close that fence itself."""
    return _FENCE.sub("…", text).strip()


def without_orders(text: str) -> tuple[str, int]:
    """The text without sentences that tell a model what to do, and how many were removed."""
    plain = "".join(_visible(letter) for letter in unicodedata.normalize("NFKC", text))
    sentences = _SENTENCE.findall(plain)
    orders = [_is_order(sentence) for sentence in sentences]
    for number, (one, other) in enumerate(pairwise(sentences)):
        # A line may end in the middle of a sentence.
        broken = "\n" in one and not one.rstrip().endswith((".", "!", "?"))
        if broken and not any(orders[number : number + 2]) and _is_order(f"{one.strip()} {other}"):
            orders[number : number + 2] = True, True
    kept = [sentence for sentence, order in zip(sentences, orders, strict=True) if not order]
    return "".join(kept).strip(), sum(orders)


def _is_order(sentence: str) -> bool:
    return any(order.search(sentence.strip()) for order in _ORDERS)


def _visible(letter: str) -> str:
    """The letter, or nothing for an invisible one, which could hide a word from the filter."""
    if unicodedata.category(letter) not in ("Cf", "Cc", "Co") or letter in "\n\t":
        return letter
    return " " if letter.isspace() else ""
