"""What a transformers model attends to as it begins its reply: the attention of the prompt's last token to all of them.

It is read from a copy of the model that computes attention step by step, since faster kernels do not keep it.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

from evenhand.errors import UsageError
from evenhand.models.base import ModelOptions, split_spec
from evenhand.models.hf import HFModel
from evenhand.types import Message

_INCOMPLETE = "\ufffd"
"""What a decoder writes for the beginning of a character that takes several tokens."""


@dataclass(frozen=True, slots=True)
class Attention:
    """How the attention of the last token is spread over the prompt, layer by layer, averaged over the heads."""

    words: tuple[str, ...]
    """The prompt as the model reads it, its template included; joined they are the whole text."""
    layers: tuple[tuple[float, ...], ...]
    """Layer × word; the shares of a layer add up to 1."""

    @property
    def mean(self) -> tuple[float, ...]:
        """The average over all layers."""
        return tuple(sum(each) / len(self.layers) for each in zip(*self.layers, strict=True))

    def on(self, part: str) -> float | None:
        """How much of it, averaged over all layers, is on the words of this part of the prompt; None if not found."""
        start = "".join(self.words).find(part)
        if start < 0 or not part:
            return None
        total, place = 0.0, 0
        for word, share in zip(self.words, self.mean, strict=True):
            if start < place + len(word) and place < start + len(part):
                total += share
            place += len(word)
        return total


# Registered as any provider's class, it hides its own attributes from type checkers.
_HF: Any = HFModel


class AttentiveModel(_HF):
    """An hf/ model whose attention can be read."""

    @cached_property
    def model(self) -> Any:
        parent: Any = super()
        loaded = parent.model
        try:
            loaded.set_attn_implementation("eager")
        except (AttributeError, ValueError) as error:
            raise UsageError(f"The attention of {self.spec} cannot be read: {error}") from error
        return loaded

    def attention(self, messages: Sequence[Message]) -> Attention:
        """The attention of the last token of the prompt that these messages make."""
        tokens = self._encode(messages)
        room: int = getattr(self.model.config.get_text_config(), "max_position_embeddings", None) or 1 << 30
        if not 1 < len(tokens) <= room:
            raise UsageError(f"The prompt has {len(tokens)} tokens, but {self.spec} takes 2 to {room}.")
        special = set(self.tokenizer.all_special_ids)
        read = [(self._read(tokens[: i + 1]), token in special) for i, token in enumerate(tokens)]
        starts, words = _words(read)
        layers = self._last_rows(tokens)
        bounds = list(pairwise([*starts, len(tokens)]))
        return Attention(words, tuple(tuple(sum(row[a:b]) for a, b in bounds) for row in layers))

    def _read(self, tokens: Sequence[int]) -> str:
        return self.tokenizer.decode(tokens, skip_special_tokens=False, clean_up_tokenization_spaces=False)

    def _last_rows(self, tokens: Sequence[int]) -> list[list[float]]:
        """Layer × token. All tokens but the last are read first, so that only one row per head is ever kept."""
        torch: Any = importlib.import_module("torch")
        with torch.inference_mode():
            ids = torch.tensor([tokens], device=self.device)
            cache = self.model(input_ids=ids[:, :-1], use_cache=True).past_key_values
            output = self.model(input_ids=ids[:, -1:], past_key_values=cache, output_attentions=True)
            found: Any = getattr(output, "attentions", None) or ()
            # Layers that are no attention (convolutions, recurrences) have none; a window sees the last tokens only.
            rows = [layer[0, :, -1].float().mean(0).tolist() for layer in found if layer is not None]
        if not rows:
            raise UsageError(f"{self.spec} has no attention that could be shown.")
        return [[0.0] * (len(tokens) - len(row)) + row for row in rows]


def load_attentive(spec: str, options: ModelOptions | None = None) -> AttentiveModel:
    """The copy of an hf/ model; other providers do not show what goes on inside."""
    provider, name = split_spec(spec)
    if provider != "hf":
        raise UsageError(
            f"Attention can be read from hf/ models only, and {spec} is none; a local file is also hf/PATH.gguf."
        )
    return AttentiveModel(name, options or ModelOptions())


def _words(read: Sequence[tuple[str, bool]]) -> tuple[list[int], tuple[str, ...]]:
    """Where words begin, by token, and what they are; `read` is the text after each token, and whether it is special.

    A word begins with a blank or on a new line, and never within a character; a special token is a word of its own.
    """
    starts: list[int] = []
    words: list[str] = []
    done, first, alone = "", 0, True
    for i, (text, special) in enumerate(read):
        if text.endswith(_INCOMPLETE) and i + 1 < len(read):
            continue
        piece, done = text[len(done) :], text
        if alone or special or piece[:1].isspace() or words[-1].endswith("\n"):
            starts.append(first)
            words.append(piece)
        else:
            words[-1] += piece
        first, alone = i + 1, special
    return starts, tuple(words)
