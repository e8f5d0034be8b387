"""Samples the next tokens of a batch from its logits, on the device that holds them.

Every row has its own sampling parameters and random generator, so its tokens do not depend on the rest of the batch.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any, Protocol

from evenhand.core.types import Params, Steering

_TOP_TOKENS = 1024


class SampledRow(Protocol):
    """What sampling needs to know about a row."""

    @property
    def params(self) -> Params: ...
    @property
    def generator(self) -> Any: ...


def sample(logits: Any, rows: Sequence[SampledRow]) -> list[int]:
    """Return the next token of each row: greedy, or sampled with temperature, then top_p."""
    tokens: list[int] = logits.argmax(-1).tolist()
    sampled = [i for i, row in enumerate(rows) if row.params.temperature]
    if sampled:
        drawn = _sample(logits if len(sampled) == len(rows) else logits[sampled], [rows[i] for i in sampled])
        for i, token in zip(sampled, drawn, strict=True):
            tokens[i] = token
    return tokens


def _sample(logits: Any, rows: Sequence[SampledRow]) -> list[int]:
    torch: Any = importlib.import_module("torch")

    def column(values: list[Any]) -> Any:
        return torch.tensor(values, dtype=torch.float64, device=logits.device)[:, None]

    probabilities = (logits.double() / column([row.params.temperature for row in rows])).softmax(-1)
    cut = [i for i, row in enumerate(rows) if row.params.top_p is not None and row.params.top_p < 1]
    if cut:
        part = probabilities[cut]
        probabilities[cut] = part * (part >= _top_p_cutoff(part, column([rows[i].params.top_p for i in cut])))
    cumulative = probabilities.cumsum(-1)
    drawn = column([torch.rand(1, generator=row.generator, dtype=cumulative.dtype).item() for row in rows])
    tokens = torch.searchsorted(cumulative, drawn * cumulative[:, -1:], right=True)
    return tokens.clamp(max=cumulative.shape[-1] - 1)[:, 0].tolist()


def _top_p_cutoff(probabilities: Any, top_p: Any) -> Any:
    """Return the smallest probability that top_p keeps, per row. Tokens tied with it are kept too.

    Most distributions need only their likeliest tokens for this, so the whole vocabulary is rarely sorted.
    """
    best = probabilities.topk(min(_TOP_TOKENS, probabilities.shape[-1])).values
    if bool((best.sum(-1, keepdim=True) < top_p).any()):
        best = probabilities.sort(descending=True).values
    kept = (best.cumsum(-1) - best < top_p).sum(-1, keepdim=True)
    return best.gather(-1, kept.clamp(min=1) - 1)


def steered(logits: Any, steering: Steering) -> Any:
    """Return the steered logits of a row from its own (the first) and those of the texts to steer away from.

    Self-debiasing (Schick et al., 2021): a token that any of these texts makes likelier is weighted by
    exp(−decay · difference in probability), but at least by `epsilon`. The log of the weight is added to the logit.
    """
    probabilities = logits.softmax(-1)
    excess = (probabilities[1:].amax(0) - probabilities[0]).clamp(min=0)
    return logits[0] + (-steering.decay * excess).exp().clamp(min=steering.epsilon).log()
