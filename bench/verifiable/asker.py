"""The few ways in which the sets ask a transformers model: letters, first words, replies, likelihoods.

`first_letters` asks any model that gives log probabilities.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Sequence
from typing import Any

from evenhand.core import aio
from evenhand.core.types import Message, Params
from evenhand.models.base import Model, ModelOptions, close_all
from evenhand.models.hf import HFModel
from evenhand.models.load import load_model
from evenhand.reading.text import letter_probabilities

LETTERS = "ABCDE"
_TOKENS = 1 << 15
"""Prompt tokens, padding included, in one forward pass."""
_SCORED_TOKENS = 1 << 12
"""Tokens whose likelihood is computed at once: each takes the whole vocabulary in float32."""
_LONGEST = 512
"""Tokens of a text whose likelihood is measured."""

Prompt = Sequence[Message]


def first_letters(spec: str, prompts: Sequence[Prompt], count: int) -> list[list[float]]:
    """Return the probabilities of the first letters, scaled to sum to 1, after each prompt; all 0 if none is likely."""

    async def ask(model: Model, prompt: Prompt) -> list[float]:
        reply = (await model.generate(prompt, Params(temperature=0, max_tokens=1, logprobs=20))).completions[0]
        return letter_probabilities(reply.logprobs[0], count)[0] if reply.logprobs else [0.0] * count

    async def ask_all() -> list[list[float]]:
        model = load_model(spec)
        try:
            return await asyncio.gather(*(ask(model, prompt) for prompt in prompts))
        finally:
            await close_all([model])

    return aio.run(ask_all())


class Asker:
    """Every question is asked once; replies are greedy unless a temperature is given."""

    def __init__(self, spec: str) -> None:
        self.spec = spec
        self.model = HFModel(spec.removeprefix("hf/"), ModelOptions(concurrency=512, extra={"batch": 256}))

    def letters(self, prompts: Sequence[Prompt], count: int) -> list[list[float]]:
        """Return the probabilities of the first letters, scaled to sum to 1, after each prompt."""
        logprobs = self.first_words(prompts, LETTERS[:count])
        weights = [[2.718281828459045**each for each in row] for row in logprobs]
        return [[each / sum(row) for each in row] for row in weights]

    def first_words(self, prompts: Sequence[Prompt], words: Sequence[str]) -> list[list[float]]:
        """Return the log probability that the reply begins with each word, with or without a space before it."""
        tokenizer = self.model.tokenizer
        starts = [
            sorted({tokenizer(text, add_special_tokens=False)["input_ids"][0] for text in (word, f" {word}")})
            for word in words
        ]
        encoded = [self._encode(prompt) for prompt in prompts]
        by_length = sorted(range(len(encoded)), key=lambda i: -len(encoded[i]))
        rows: list[list[float]] = [[] for _ in encoded]
        while by_length:
            size = max(1, _TOKENS // len(encoded[by_length[0]]))
            batch, by_length = by_length[:size], by_length[size:]
            logprobs = self.model.next_token_logits([encoded[i] for i in batch]).log_softmax(-1)
            for i, row in zip(batch, logprobs, strict=True):
                rows[i] = [row[each].logsumexp(0).item() for each in starts]
        return rows

    def replies(self, prompts: Sequence[Prompt], tokens: int, temperature: float = 0.0) -> list[str]:
        """Return the reply to each prompt."""

        async def ask() -> list[str]:
            params = [Params(temperature=temperature, max_tokens=tokens, seed=i) for i in range(len(prompts))]
            calls = (self.model.generate(each, param) for each, param in zip(prompts, params, strict=True))
            return [reply.completions[0].text for reply in await asyncio.gather(*calls)]

        return asyncio.run(ask())

    def likelihoods(self, texts: Sequence[str]) -> list[tuple[float, int]]:
        """Return the sum of the token log probabilities and the number of tokens of each text, without a template."""
        torch: Any = importlib.import_module("torch")
        tokenizer, device = self.model.tokenizer, self.model.device
        start = tokenizer.bos_token_id if tokenizer.bos_token_id is not None else tokenizer.eos_token_id
        encoded = [[start, *tokenizer(text, add_special_tokens=False)["input_ids"][:_LONGEST]] for text in texts]
        found: list[tuple[float, int]] = []
        batch = max(1, _SCORED_TOKENS // max(map(len, encoded)))
        for at in range(0, len(encoded), batch):
            rows = encoded[at : at + batch]
            width = max(map(len, rows))
            ids = torch.tensor([row + [0] * (width - len(row)) for row in rows], device=device)
            mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows], device=device)
            with torch.inference_mode():
                logits = self.model.model(input_ids=ids, attention_mask=mask, use_cache=False).logits[:, :-1].float()
            chosen = (logits.gather(-1, ids[:, 1:, None])[..., 0] - logits.logsumexp(-1)) * mask[:, 1:]
            found += [(total.item(), len(row) - 1) for total, row in zip(chosen.sum(1), rows, strict=True)]
        return found

    def _encode(self, prompt: Prompt) -> list[int]:
        chat = [{"role": message.role, "content": message.content} for message in prompt]
        text = self.model.tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
        return self.model.tokenizer(text, add_special_tokens=False)["input_ids"]
