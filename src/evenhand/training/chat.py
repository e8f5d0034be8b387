"""Conversations as tokens: the one place that renders, cuts and pads what is trained on, sampled from and scored.

A prompt is rendered with the model's own chat template, exactly as `hf/` models do it, and an answer is what the
template adds to that, up to the token that ends a turn. So text that was sampled and text from a file look the same to
every model, whichever stage reads it.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evenhand.errors import DataError, UsageError
from evenhand.types import Message

MAX_LENGTH = 2048
_PADS = ("<|endoftext|>", "<pad>", "<|pad|>", "[PAD]", "<|finetune_right_pad_id|>")
"""Tokens that may pad where a tokenizer names none; padding is masked, so it only must not end a turn."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """A prompt and an answer as tokens; the answer ends with the token that ends a turn."""

    prompt: tuple[int, ...]
    answer: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of equal width: token ids, what is no padding, and what belongs to an answer (tensors, rows × width)."""

    ids: Any
    mask: Any
    answer: Any


def fitted(prompt: Sequence[int], answer: Sequence[int], longest: int) -> Encoded:
    """Cut from the left, the prompt first, so that the end of the answer always stays."""
    answer = tuple(answer)[-longest:]
    room = longest - len(answer)
    return Encoded(tuple(prompt)[-room:] if room else (), answer)


class Chat:
    """A tokenizer with its chat template, the tokens that end a turn, and the longest conversation in tokens."""

    def __init__(self, tokenizer: Any, ends: frozenset[int], max_length: int = MAX_LENGTH) -> None:
        self.tokenizer = tokenizer
        self.ends = ends
        self.max_length = max_length

    def encode(self, prompt: Sequence[Message], answer: str) -> Encoded:
        """Prompt and answer, cut to the greatest length."""
        opening = self._render(prompt, open_answer=True)
        whole = self._render([*prompt, Message("assistant", answer)], open_answer=False)
        if not whole.startswith(opening):
            raise UsageError(
                "The chat template does not put its generation prompt before an answer, so answers cannot be told "
                "from prompts; give another one with --chat-template FILE."
            )
        # Split before tokenizing: a sampled answer, too, begins with a token of its own.
        return fitted(self._tokens(opening), self._ended(self._tokens(whole[len(opening) :])), self.max_length)

    def opening(self, prompt: Sequence[Message], room: int) -> tuple[int, ...]:
        """A prompt up to where the answer begins, cut from the left so that `room` tokens still fit."""
        return tuple(self._tokens(self._render(prompt, open_answer=True))[-(self.max_length - room) :])

    def text(self, tokens: Sequence[int]) -> str:
        """What an answer's tokens say, without the end of the turn."""
        return self.tokenizer.decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False)

    def padded(self, rows: Sequence[Encoded], device: str) -> Batch:
        """Rows padded on the right, so that the last token of each is known."""
        torch: Any = importlib.import_module("torch")
        width = max(len(row.prompt) + len(row.answer) for row in rows)
        pad: int = self.tokenizer.pad_token_id
        ids: list[list[int]] = []
        mask: list[list[int]] = []
        answer: list[list[int]] = []
        for row in rows:
            before, own = len(row.prompt), len(row.answer)
            rest = width - before - own
            ids.append([*row.prompt, *row.answer, *[pad] * rest])
            mask.append([1] * (before + own) + [0] * rest)
            answer.append([0] * before + [1] * own + [0] * rest)
        return Batch(*(torch.tensor(each, device=device) for each in (ids, mask, answer)))

    def _render(self, messages: Sequence[Message], *, open_answer: bool) -> str:
        chat = [{"role": message.role, "content": message.content} for message in messages]
        try:
            return self.tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=open_answer)
        except Exception as error:
            if not type(error).__module__.startswith("jinja2"):
                raise
            raise UsageError(f"The chat template refuses a conversation of the data ({error}).") from None

    def _tokens(self, text: str) -> list[int]:
        return self.tokenizer(text, add_special_tokens=False)["input_ids"]

    def _ended(self, tokens: list[int]) -> list[int]:
        """Up to the last token that ends a turn: what a template adds after it (a newline) is never sampled."""
        last = max((i for i, token in enumerate(tokens) if token in self.ends), default=None)
        return [*tokens, self.tokenizer.eos_token_id] if last is None else tokens[: last + 1]


def prepared(tokenizer: Any, name: str, *, template: Path | None = None, pad: str | None = None) -> Any:
    """The tokenizer with a chat template and a padding token that ends no turn; else one sentence says what to do."""
    if template is not None:
        try:
            tokenizer.chat_template = template.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"The chat template cannot be read ({error}).", file=template) from None
    if not tokenizer.chat_template:
        raise UsageError(
            f"{name} has no chat template, so it is probably a base model: use its instruct version, or give a "
            "template with --chat-template FILE."
        )
    if tokenizer.eos_token_id is None:
        raise UsageError(f"The tokenizer of {name} has no end token, so an answer of it has no end; use another model.")
    known: dict[str, int] = tokenizer.get_vocab()
    if pad is not None and known.get(pad, tokenizer.eos_token_id) == tokenizer.eos_token_id:
        raise UsageError(f"{pad!r} cannot pad {name}: it must be one of its tokens and not {tokenizer.eos_token!r}.")
    for token in (pad, tokenizer.pad_token, tokenizer.unk_token, *_PADS):
        if token in known and known[token] != tokenizer.eos_token_id:
            tokenizer.pad_token = token
            return tokenizer
    raise UsageError(
        f"The tokenizer of {name} has no padding token besides its end token; name one of its tokens that texts do "
        "not use with --pad-token TOKEN."
    )
