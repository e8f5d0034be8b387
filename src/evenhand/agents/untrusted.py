"""Text of strangers on its way into a prompt: fenced as data, and without sentences that give a model orders.

A fence alone asks the model to be careful; a sentence that is not there cannot be followed. So both: what looks like an
instruction to a model is left out, and counted. It is a filter for known tricks, not a proof; what comes from outside
also never reaches the agent that answers, only the one that rewrites reasoning, as facts with their source.
"""

from __future__ import annotations

import re
import unicodedata

_SENTENCE = re.compile(r"[^.!?\n]*(?:[.!?]+[\"'”’)\]]*|\n|$)\s*")
_FENCE = re.compile(r"<{2,}|>{2,}")
_ORDERS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"\b(?:ignore|disregard|forget|override|bypass|skip|do not follow|stop following)\b.{0,60}"
        r"\b(?:instructions?|prompts?|rules?|directions?|messages?|guidelines?|context|passage|question|above|earlier|"
        r"previous|everything)\b",
        r"\b(?:new|updated|important|special|secret|hidden|following)\s+(?:system\s+)?(?:instructions?|prompt|directives?)\b",
        r"\byou\s+(?:are|must|should|will|shall)\s+(?:now\b|(?:always\s+|only\s+)?(?:answer|respond|reply|output|say|"
        r"choose|select|pick|return|write|print)\b|an?\s+(?:ai|assistant|chatbot|language\s+model|large\s+language))",
        r"\b(?:answer|respond|reply|output|choose|select|pick|return|print|say)\b[^.]{0,40}"
        r"(?:\b(?:option|letter|choice|answer)\b[^.]{0,10})?[\"'“‘(\[ ][A-Ca-c0-2][\"'”’)\]]*[.!]?\s*$",
        r"\b(?:the\s+)?(?:correct|right|true|best|only|final|expected)\s+(?:answer|option|choice|letter)\b",
        r"\b(?:system|developer|assistant)\s+(?:prompt|message|note|instruction)s?\b",
        r"\b(?:ai|language)\s+(?:models?|assistants?|agents?)\b[^.]{0,60}\b(?:must|should|shall|need\s+to|have\s+to|"
        r"are\s+(?:required|instructed|asked|to))\b",
        r"\b(?:note|attention|message|notice)\s+(?:to|for)\s+(?:the\s+|all\s+|any\s+)?(?:ai|assistants?|bots?|models?|"
        r"llms?|summari[sz]ers?|agents?)\b",
        r"\b(?:act|behave)\s+as\b|\bpretend\s+(?:to\s+be|that)\b|\brole-?play\b|\bjailbreak\b",
        r"^\W*(?:system|user|assistant|human|instruction)s?\s*[:>\]|]",
        r"<\|?\/?\s*(?:system|user|assistant|instructions?|im_start|im_end|endoftext)\b",
        r"\[/?inst\]|###\s*(?:instruction|response|system)",
    )
)


def fenced(text: str) -> str:
    """The text as a prompt may hold it between <<< and >>>: it cannot close the fence itself."""
    return _FENCE.sub("…", text).strip()


def without_orders(text: str) -> tuple[str, int]:
    """The text without sentences that tell a model what to do, and how many those were."""
    plain = "".join(letter for letter in unicodedata.normalize("NFKC", text) if not _invisible(letter))
    kept: list[str] = []
    dropped = 0
    for sentence in _SENTENCE.findall(plain):
        if any(order.search(sentence.strip()) for order in _ORDERS):
            dropped += 1
        else:
            kept.append(sentence)
    return "".join(kept).strip(), dropped


def _invisible(letter: str) -> bool:
    """Characters that a reader does not see, such as those that could split a word that is looked for."""
    return unicodedata.category(letter) in ("Cf", "Cc", "Co") and letter not in "\n\t"
