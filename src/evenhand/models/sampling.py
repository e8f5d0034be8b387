"""The step from logits to the next tokens of a batch, on the device that holds the logits.

Every row has its own settings and random generator; rows that are drawn in the same way are drawn together.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any, Protocol

from evenhand.types import Params, Steering


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
    for cut in (False, True):  # apart, since the order of the tokens decides which of them a random number means
        chosen = [i for i in sampled if _cut(rows[i].params) is cut]
        if chosen:
            drawn = _sample(logits if len(chosen) == len(rows) else logits[chosen], [rows[i] for i in chosen], cut)
            for i, token in zip(chosen, drawn, strict=True):
                tokens[i] = token
    return tokens


def _cut(params: Params) -> bool:
    return params.top_p is not None and params.top_p < 1


def _sample(logits: Any, rows: Sequence[Drawn], cut: bool) -> list[int]:
    torch: Any = importlib.import_module("torch")

    def column(values: list[Any]) -> Any:
        return torch.tensor(values, dtype=torch.float64, device=logits.device)[:, None]

    chances = (logits.double() / column([row.params.temperature for row in rows])).softmax(-1)
    order = None
    if cut:
        chances, order = chances.sort(descending=True, stable=True)
        chances = chances * (chances.cumsum(-1) - chances < column([row.params.top_p for row in rows]))
    edges = chances.cumsum(-1)
    marks = column([torch.rand(1, generator=row.generator, dtype=edges.dtype).item() for row in rows])
    places = torch.searchsorted(edges, marks * edges[:, -1:], right=True).clamp(max=edges.shape[-1] - 1)
    return (places if order is None else order.gather(-1, places))[:, 0].tolist()


def steered(logits: Any, steering: Steering) -> Any:
    """One row's logits from its own (the first) and those of the texts to steer away from.

    Schick et al., 2021: a token that any of these texts makes likelier loses weight, exp(-decay · the difference) and
    `epsilon` at the least. Adding the logarithm of the weight to a logit weighs the probability after softmax.
    """
    chances = logits.softmax(-1)
    excess = (chances[1:].amax(0) - chances[0]).clamp(min=0)
    return logits[0] + (-steering.decay * excess).exp().clamp(min=steering.epsilon).log()
