"""Reads what a transformers model attends to as it begins its reply: the attention of the prompt's last token.

It uses its own copy of the model with eager attention, since faster kernels do not return attention weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

from evenhand.core.errors import UsageError
from evenhand.core.lazy import torch
from evenhand.core.types import Message
from evenhand.models.base import ModelOptions, split_spec
from evenhand.models.hf import HFModel
from evenhand.models.load import reached

_INCOMPLETE = "\ufffd"
"""What a tokenizer decodes for the first tokens of a multi-token character."""


@dataclass(frozen=True, slots=True)
class Attention:
    """The attention of the last token over the words of the prompt, per layer, averaged over the heads."""

    words: tuple[str, ...]
    """The words of the prompt, chat template included; joined they are the whole text."""
    layers: tuple[tuple[float, ...], ...]
    """Layer × word; each layer sums to 1."""

    @property
    def mean(self) -> tuple[float, ...]:
        """The average over all layers."""
        return tuple(sum(each) / len(self.layers) for each in zip(*self.layers, strict=True))

    def on(self, part: str) -> float | None:
        """Return the attention on a part of the prompt, averaged over all layers; None if the part is not found."""
        start = "".join(self.words).find(part)
        if start < 0 or not part:
            return None
        total, position = 0.0, 0
        for word, share in zip(self.words, self.mean, strict=True):
            if start < position + len(word) and position < start + len(part):
                total += share
            position += len(word)
        return total


# The registry's decorator hides the attributes of HFModel from type checkers.
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
        """Return the attention of the last prompt token for these messages."""
        tokens = self._encode(messages)
        most: int = self._max_length
        if not 1 < len(tokens) <= most:
            raise UsageError(f"The prompt has {len(tokens)} tokens, but {self.spec} takes 2 to {most}.")
        special = set(self.tokenizer.all_special_ids)
        read = [(self._read(tokens[: i + 1]), token in special) for i, token in enumerate(tokens)]
        starts, words = _words(read)
        layers = self._last_rows(tokens)
        bounds = list(pairwise([*starts, len(tokens)]))
        return Attention(words, tuple(tuple(sum(row[a:b]) for a, b in bounds) for row in layers))

    def _read(self, tokens: Sequence[int]) -> str:
        return self.tokenizer.decode(tokens, skip_special_tokens=False, clean_up_tokenization_spaces=False)

    def _last_rows(self, tokens: Sequence[int]) -> list[list[float]]:
        """Return attention, layer × token. All other tokens are read first, so that only one row per head is kept."""
        with torch.inference_mode():
            ids = torch.tensor([tokens], device=self.device)
            cache = self.model(input_ids=ids[:, :-1], use_cache=True).past_key_values
            output = self.model(input_ids=ids[:, -1:], past_key_values=cache, output_attentions=True)
            attentions: Any = getattr(output, "attentions", None) or ()
            # Convolutional and recurrent layers have no attention; sliding windows cover the last tokens only.
            rows = [layer[0, :, -1].float().mean(0).tolist() for layer in attentions if layer is not None]
        if not rows:
            raise UsageError(f"{self.spec} has no attention layers to show.")
        return [[0.0] * (len(tokens) - len(row)) + row for row in rows]


def load_attentive(spec: str, options: ModelOptions | None = None) -> AttentiveModel:
    """Load a copy of an hf/ model whose attention can be read; other providers do not expose it."""
    spec, options = reached(spec, options)
    if options.provider != "hf":
        raise UsageError(
            f"Attention can be read from hf/ models only, not from {spec}; use a local file as hf/PATH.gguf."
        )
    return AttentiveModel(split_spec(spec)[1], options)


def _words(read: Sequence[tuple[str, bool]]) -> tuple[list[int], tuple[str, ...]]:
    """Split tokens into words; return the first token of each word and the words.

    A word begins with a blank or on a new line, and never within a character; a special token is its own word.

    Args:
        read: For each token, the text up to it and whether it is special.
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
