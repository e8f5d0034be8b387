"""How a text is cut into segments: sentences, or some two hundred characters where a sentence takes long."""

from __future__ import annotations

import re
from collections.abc import Iterator

SHORTEST, LONGEST = 24, 200
"""Characters. Shorter pieces than the first say too little to be judged; longer ones than the second keep readers
waiting."""
_END = re.compile(r"[.!?…。！？][\"'”’»)\]*_]*\s+|\n+|[。！？]")
_CLOSING = ".,;:!?)]}”’"


def segment_end(text: str) -> int:
    """Return where the first complete segment of a growing text ends; 0 if there is none yet."""
    for end in _END.finditer(text, 0, LONGEST):
        if end.end() >= SHORTEST:
            return end.end()
    if len(text) <= LONGEST:
        return 0
    blank = text.rfind(" ", SHORTEST, LONGEST)
    return blank + 1 if blank > 0 else LONGEST


def pieces(text: str) -> Iterator[str]:
    """Split a complete text into segments."""
    while end := segment_end(text):
        yield text[:end]
        text = text[end:]
    if text:
        yield text


def going_on(before: str, text: str) -> str | None:
    """A continuation as it stands after `before`; None while it only repeats what was said, as some models do."""
    said, new = before.strip(), text.lstrip()
    if said.startswith(new):
        return None
    if new.startswith(said):
        text = new[len(said) :]
    if before and not before[-1].isspace() and not text[0].isspace() and text[0] not in _CLOSING:
        return f" {text}"
    return text.lstrip() if before and before[-1].isspace() else text
