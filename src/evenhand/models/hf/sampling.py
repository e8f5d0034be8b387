"""The step from logits to the next tokens of a batch, on the device that holds the logits.

Every row has its own settings and random generator, so that what is drawn does not depend on its neighbours.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any, Protocol

from evenhand.types import Params, Steering

_LIKELIEST = 1024


class Drawn(Protocol):
    """What a row must tell about itself."""

    @property
    def params(self) -> Params: ...
    @property
    def generator(self) -> Any: ...


def draw(logits: Any, rows: Sequence[Drawn]) -> list[int]:
    """The next token of each row: the likeliest, or one drawn after temperature, then top_p."""
    tokens: list[int] = logits.argmax(-1).tolist()
    sampled = [i for i, row in enumerate(rows) if row.params.temperature]
    if sampled:
        drawn = _sample(logits if len(sampled) == len(rows) else logits[sampled], [rows[i] for i in sampled])
        for i, token in zip(sampled, drawn, strict=True):
            tokens[i] = token
    return tokens


def _sample(logits: Any, rows: Sequence[Drawn]) -> list[int]:
    torch: Any = importlib.import_module("torch")

    def column(values: list[Any]) -> Any:
        return torch.tensor(values, dtype=torch.float64, device=logits.device)[:, None]

    chances = (logits.double() / column([row.params.temperature for row in rows])).softmax(-1)
    cut = [i for i, row in enumerate(rows) if row.params.top_p is not None and row.params.top_p < 1]
    if cut:
        part = chances[cut]
        chances[cut] = part * (part >= _least_kept(part, column([rows[i].params.top_p for i in cut])))
    edges = chances.cumsum(-1)
    marks = column([torch.rand(1, generator=row.generator, dtype=edges.dtype).item() for row in rows])
    return torch.searchsorted(edges, marks * edges[:, -1:], right=True).clamp(max=edges.shape[-1] - 1)[:, 0].tolist()


def _least_kept(chances: Any, top_p: Any) -> Any:
    """The smallest probability that top_p keeps, per row; tokens as likely as the last one kept are kept as well.

    A limit instead of a sorted vocabulary: most distributions need a look at the likeliest few tokens only.
    """
    best = chances.topk(min(_LIKELIEST, chances.shape[-1])).values
    if bool((best.sum(-1, keepdim=True) < top_p).any()):
        best = chances.sort(descending=True).values
    kept = (best.cumsum(-1) - best < top_p).sum(-1, keepdim=True)
    return best.gather(-1, kept.clamp(min=1) - 1)


def steered(logits: Any, steering: Steering) -> Any:
    """One row's logits from its own (the first) and those of the texts to steer away from.

    Schick et al., 2021: a token that any of these texts makes likelier loses weight, exp(-decay · the difference) and
    `epsilon` at the least. Adding the logarithm of the weight to a logit weighs the probability after softmax.
    """
    chances = logits.softmax(-1)
    excess = (chances[1:].amax(0) - chances[0]).clamp(min=0)
    return logits[0] + (-steering.decay * excess).exp().clamp(min=steering.epsilon).log()
