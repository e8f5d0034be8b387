"""Where a model's attention goes when a text is said to be its own, a model's or a competitor's."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from evenhand.core import aio
from evenhand.core.errors import UnknownNameError
from evenhand.data.framing import Text, load_texts, read_text
from evenhand.models.base import ModelOptions

if TYPE_CHECKING:
    from evenhand.show.attention import Framed


def find_text(name: str) -> Text:
    """The text of a YAML file, or the built-in one of this id."""
    path = Path(name).expanduser()
    if path.suffix or path.is_file():
        return read_text(path)
    known = {each.id: each for each in load_texts()}
    if name not in known:
        raise UnknownNameError("text", name, known)
    return known[name]


def framed_attention(spec: str, text: Text, options: ModelOptions | None = None, seed: int = 0) -> list[Framed]:
    """The text under each framing, with the attention of the hf/ model `spec`."""
    from evenhand.benchmarks.framing import WRITTEN, sample_of
    from evenhand.core.untrusted import fenced
    from evenhand.methods.framing import messages_of
    from evenhand.models.hf.attention import load_attentive
    from evenhand.show.attention import Framed

    model = load_attentive(spec, options or ModelOptions())
    try:
        framed: list[Framed] = []
        for name, written in WRITTEN.items():
            passages = {"Who wrote it": written, "Question": fenced(text.question), "Answer": fenced(text.answer)}
            framed.append(Framed(name, model.attention(messages_of(sample_of(text, name), seed)), passages))
        return framed
    finally:
        aio.run(model.aclose())
