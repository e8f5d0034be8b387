"""The log-probabilities of given texts, by one forward pass over all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from evenhand.core.errors import ModelError
from evenhand.core.types import Completion, TokenLogprob
from evenhand.models.given import START


def score_texts(
    model: Any, tokenizer: Any, texts: Sequence[str], longest: int, word: Callable[[int], str]
) -> tuple[list[Completion], int]:
    """Return the texts with the log-probability of each token, and how many tokens were read."""
    import torch

    start: list[int] = tokenizer(START)["input_ids"]
    own: list[list[int]] = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
    rows = [start + ids for ids in own]
    width = max(map(len, rows))
    if width > longest:
        raise ModelError(f"A text has {width} tokens, but the model takes {longest}; shorten it.")
    # Padded on the right: what comes after a text does not change its probabilities.
    ids = torch.tensor([row + [0] * (width - len(row)) for row in rows], device=model.device)
    mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows], device=model.device)
    logprobs = model(input_ids=ids, attention_mask=mask).logits[:, :-1].float().log_softmax(-1)
    found = logprobs.gather(-1, ids[:, 1:, None])[..., 0].tolist()
    completions = [
        Completion(
            text,
            logprobs=tuple(
                TokenLogprob(word(token), value)
                for token, value in zip(tokens, values[len(start) - 1 : len(row) - 1], strict=True)
            ),
        )
        for text, tokens, row, values in zip(texts, own, rows, found, strict=True)
    ]
    return completions, sum(map(len, rows))
