"""How likely a language model finds given answers: what learning from examples and from pairs has in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evenhand.training.chat import Chat, Encoded
from evenhand.training.losses import token_logprobs
from evenhand.training.models import Machine


def answer_logprobs(model: Any, chat: Chat, rows: Sequence[Encoded], machine: Machine) -> Any:
    """The log probability of every answer token, and 0 at all other places (float32, rows × width)."""
    batch = chat.padded(rows, machine.device)
    with machine.autocast():
        logits = model(input_ids=batch.ids, attention_mask=batch.mask, use_cache=False).logits
    return token_logprobs(logits[:, :-1], batch.ids[:, 1:]) * batch.answer[:, 1:]
