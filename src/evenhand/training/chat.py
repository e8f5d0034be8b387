"""Conversations as tokens: the only place that renders, truncates and pads text for training, sampling and scoring.

A prompt is rendered with the model's own chat template, exactly as `hf/` models do it. An answer is what the template
adds to it, up to the end-of-turn token. So sampled text and text from a file look the same to every model and stage.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evenhand.core.errors import DataError, UsageError
from evenhand.core.lazy import torch
from evenhand.core.types import Message

if TYPE_CHECKING:
    from torch import Tensor

MAX_LENGTH = 2048
_PADS = ("<|endoftext|>", "<pad>", "<|pad|>", "[PAD]", "<|finetune_right_pad_id|>")
"""Padding tokens to try if a tokenizer names none. Padding is masked, so it only must differ from the end token."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """A prompt and an answer as tokens; the answer ends with the end-of-turn token."""

    prompt: tuple[int, ...]
    answer: tuple[int, ...]

    @property
    def length(self) -> int:
        return len(self.prompt) + len(self.answer)


@dataclass(frozen=True, slots=True)
class Packed:
    """Rows one after the other in lines of equal width (tensors, lines × width), which take less padding."""

    ids: Tensor
    positions: Tensor
    """Counted from 0 in each row, which tells the rows of a line apart."""
    next: Tensor
    """The answers' tokens, row by row."""
    at: Tensor
    """Where the token before each of them stands, counted over all lines."""
    row: Tensor
    """Which row each of them is of."""
    last: Tensor
    """Where the last token of each row stands."""


def truncated(prompt: Sequence[int], answer: Sequence[int], max_length: int) -> Encoded:
    """Truncate on the left, the prompt first, so that the end of the answer is always kept."""
    answer = tuple(answer)[-max_length:]
    room = max_length - len(answer)
    return Encoded(tuple(prompt)[-room:] if room else (), answer)


class Chat:
    """A tokenizer with its chat template, its end-of-turn tokens and the maximum length of a conversation.

    `shares_lines`: whether its model keeps rows of one line apart.
    """

    def __init__(
        self, tokenizer: Any, eos_ids: frozenset[int], max_length: int = MAX_LENGTH, *, shares_lines: bool = True
    ) -> None:
        self.tokenizer = tokenizer
        self.eos_ids = eos_ids
        self.max_length = max_length
        self.shares_lines = shares_lines

    def encode(self, prompt: Sequence[Message], answer: str) -> Encoded:
        """Tokenize prompt and answer, truncated to the maximum length."""
        [opening] = self._render([prompt], open_answer=True)
        [conversation] = self._render([[*prompt, Message("assistant", answer)]], open_answer=False)
        if not conversation.startswith(opening):
            raise UsageError(
                "The chat template does not put its generation prompt before an answer, so prompt and answer cannot "
                "be separated; give another template with --chat-template FILE."
            )
        # Split before tokenizing, because a sampled answer also begins with a new token.
        opened, answered = self._tokens([opening, conversation[len(opening) :]])
        return truncated(opened, self._up_to_eos(answered), self.max_length)

    def encode_prompt(self, prompt: Sequence[Message], room: int) -> tuple[int, ...]:
        """Tokenize a prompt with its generation prompt, truncated on the left to leave `room` tokens for an answer."""
        return self.encode_prompts([prompt], room)[0]

    def encode_prompts(self, prompts: Sequence[Sequence[Message]], room: int) -> list[tuple[int, ...]]:
        """Tokenize prompts as `encode_prompt` does, which is faster for many at once."""
        rows: list[list[int]] = self._tokens(self._render(prompts, open_answer=True))
        return [tuple(row[-(self.max_length - room) :]) for row in rows]

    def text(self, tokens: Sequence[int]) -> str:
        """Decode the tokens of an answer, without special tokens."""
        return self.tokenizer.decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False)

    def pack(self, rows: Sequence[Encoded], device: str) -> Packed:
        """Put rows into as few lines as are found at once, each as long as the longest row; or each into its own."""
        width = max(row.length for row in rows)
        lines: list[list[int]] = []
        for place in sorted(range(len(rows)), key=lambda place: -rows[place].length):
            used = ((sum(rows[each].length for each in line), line) for line in lines)
            fits = (line for length, line in used if self.shares_lines and length + rows[place].length <= width)
            line = next(fits, None)
            lines.append([place]) if line is None else line.append(place)
        ids = [[self.tokenizer.pad_token_id] * width for _ in lines]
        positions = [list(range(width)) for _ in lines]
        first: dict[int, int] = {}
        for number, line in enumerate(lines):
            start = 0
            for place in line:
                row, end = rows[place], start + rows[place].length
                ids[number][start:end], positions[number][start:end] = [*row.prompt, *row.answer], range(row.length)
                first[place], start = number * width + start, end
            positions[number][start:] = range(width - start)
        learned = [row.answer if row.prompt else row.answer[1:] for row in rows]  # nothing tells the very first token
        last = [first[place] + row.length - 1 for place, row in enumerate(rows)]
        at = [i for answer, end in zip(learned, last, strict=True) for i in range(end - len(answer), end)]
        tokens = [token for answer in learned for token in answer]
        of = [place for place, answer in enumerate(learned) for _ in answer]
        parts = (ids, positions, tokens, at, of, last)
        return Packed(*(torch.tensor(each, dtype=torch.long, device=device) for each in parts))

    def _render(self, chats: Sequence[Sequence[Message]], *, open_answer: bool) -> list[str]:
        rows = [[{"role": message.role, "content": message.content} for message in chat] for chat in chats]
        try:
            return self.tokenizer.apply_chat_template(rows, tokenize=False, add_generation_prompt=open_answer)
        except Exception as error:
            if not type(error).__module__.startswith("jinja2"):
                raise
            raise UsageError(f"The chat template rejects a conversation of the data ({error}).") from None

    def _tokens(self, texts: Sequence[str]) -> list[list[int]]:
        return self.tokenizer(texts, add_special_tokens=False)["input_ids"]

    def _up_to_eos(self, tokens: list[int]) -> list[int]:
        """Cut after the last end-of-turn token: what a template adds after it (a newline) is never sampled."""
        last = max((i for i, token in enumerate(tokens) if token in self.eos_ids), default=None)
        return [*tokens, self.tokenizer.eos_token_id] if last is None else tokens[: last + 1]


def prepare_tokenizer(tokenizer: Any, name: str, *, template: Path | None = None, pad: str | None = None) -> Any:
    """Give a tokenizer a chat template and a padding token that is not its end token, or raise UsageError."""
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
        raise UsageError(f"The tokenizer of {name} has no end token, so answers would never end; use another model.")
    known: dict[str, int] = tokenizer.get_vocab()
    if pad is not None and known.get(pad, tokenizer.eos_token_id) == tokenizer.eos_token_id:
        raise UsageError(f"{pad!r} cannot pad {name}: it must be one of its tokens and not {tokenizer.eos_token!r}.")
    for token in (pad, tokenizer.pad_token, tokenizer.unk_token, *_PADS):
        if token in known and known[token] != tokenizer.eos_token_id:
            tokenizer.pad_token = token
            return tokenizer
    raise UsageError(
        f"The tokenizer of {name} has no padding token besides its end token; name one of its unused tokens with "
        "--pad-token TOKEN."
    )
