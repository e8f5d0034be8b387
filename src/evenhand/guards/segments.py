"""How a text is cut into segments: sentences, or some two hundred characters where a sentence takes long."""

from __future__ import annotations

import re
from collections.abc import Iterator

SHORTEST, LONGEST = 24, 200
"""Characters. Shorter pieces than the first say too little to be judged; longer ones than the second keep readers
waiting."""
UNIT = 300
"""Characters that are scored at once."""
_STOPS, _CLOSERS = ".!?…。！？", "\"'”’»)]*_"
_QUOTED = re.escape(_CLOSERS)
# It begins with a set of characters, so that the search skips all others quickly.
_END = re.compile(rf"[{_STOPS}\n](?:(?<=\n)\n*|[{_QUOTED}]*\s+|(?<=[。！？]))")
_WHOLE = re.compile(rf"[^\W\d_]{{3}}[{_STOPS}][{_QUOTED}]*\Z")
_LAST = _STOPS + _CLOSERS
_CLOSING = ".,;:!?)]}”’"


def segment_end(text: str, start: int = 0) -> int:
    """Return where the first complete segment of a growing text ends, from `start` on; 0 if there is none yet."""
    if len(text) < start + SHORTEST:
        return 0
    for end in _END.finditer(text, start, start + LONGEST):
        if end.end() >= start + SHORTEST:
            return end.end()
    if len(text) <= start + LONGEST:
        return 0
    blank = text.rfind(" ", start + SHORTEST, start + LONGEST)
    return blank + 1 if blank > 0 else start + LONGEST


def first_end(text: str) -> int:
    """Return where the first segment of an answer ends: also after a sentence whose next word is not there yet."""
    if end := segment_end(text):
        return end
    if len(text) < SHORTEST or text[-1] not in _LAST:
        return 0
    return len(text) if _WHOLE.search(text, len(text) - SHORTEST) else 0


def pieces(text: str) -> Iterator[str]:
    """Split a complete text into segments."""
    start = 0
    while end := segment_end(text, start):
        yield text[start:end]
        start = end
    if text[start:]:
        yield text[start:]


def new_pieces(text: str, since: int = 0) -> Iterator[str]:
    """Yield the segments that end after `since`."""
    end = 0
    for piece in pieces(text):
        end += len(piece)
        if end > since:
            yield piece


def units(text: str, since: int = 0) -> Iterator[str]:
    """Yield what is scored at once: every segment that ends after `since`, with the whole segments just before it.

    A unit depends on nothing that comes later, so a stream and a whole text have the same units; and its length has a
    bound, so harmless text around a toxic sentence does not hide it.
    """
    starts: list[int] = []
    end = 0
    for piece in pieces(text):
        starts.append(end)
        end += len(piece)
        while len(starts) > 1 and end - starts[0] > UNIT:
            del starts[0]
        if end > since and any(map(str.isalpha, piece)):
            yield text[starts[0] : end]


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
