"""Drawing tokens: what temperature and top_p leave, row by row."""

from dataclasses import dataclass
from typing import Any

import pytest

from evenhand.core.types import Params
from evenhand.models.hf import sample

torch: Any = pytest.importorskip("torch", reason="needs pip install 'evenhand[hf]'")

CHANCES = [0.4, 0.1, 0.3, 0.2]


@dataclass(frozen=True)
class Row:
    params: Params
    generator: Any


def rows(params: Params, count: int) -> list[Row]:
    return [Row(params, torch.Generator().manual_seed(seed)) for seed in range(count)]


def drawn(params: Params, count: int = 2000) -> list[float]:
    """How often each token is drawn."""
    tokens = sample(torch.tensor(CHANCES).log().repeat(count, 1), rows(params, count))
    return [tokens.count(token) / count for token in range(4)]


CASES = {
    "all": (Params(temperature=1), CHANCES),
    "top_p of one": (Params(temperature=1, top_p=1.0), CHANCES),
    "a token that reaches over the limit is kept": (Params(temperature=1, top_p=0.5), [4 / 7, 0, 3 / 7, 0]),
    "a limit that is reached exactly": (Params(temperature=1, top_p=0.89), [4 / 9, 0, 3 / 9, 2 / 9]),
    "the likeliest is always kept": (Params(temperature=1, top_p=0.0), [1, 0, 0, 0]),
    "temperature": (Params(temperature=0.5), [16 / 30, 1 / 30, 9 / 30, 4 / 30]),
    "temperature before top_p": (Params(temperature=0.5, top_p=0.53), [1, 0, 0, 0]),
    "greedy": (Params(), [1, 0, 0, 0]),
}


@pytest.mark.parametrize(("params", "expected"), CASES.values(), ids=CASES.keys())
def test_tokens_are_drawn_as_often_as_they_should(params: Params, expected: list[float]):
    assert drawn(params) == pytest.approx(expected, abs=0.04)


@pytest.mark.parametrize("top_p", [0.3, 0.999], ids=["a few tokens hold the mass", "most tokens are needed"])
def test_a_large_vocabulary_is_cut_as_if_it_were_sorted(top_p: float):
    logits = torch.randn(3, 5000, generator=torch.Generator().manual_seed(1))
    for row in logits:
        chances, order = row.double().softmax(-1).sort(descending=True)
        kept = set(order[: int((chances.cumsum(-1) - chances < top_p).sum())].tolist())
        assert set(sample(row.repeat(300, 1), rows(Params(temperature=1, top_p=top_p), 300))) <= kept


def test_what_is_drawn_does_not_depend_on_the_neighbours():
    settings = [Params(), Params(temperature=1), Params(temperature=2, top_p=0.9), Params(temperature=1, top_p=0.2)]
    logits = torch.randn(4, 3000, generator=torch.Generator().manual_seed(1))
    for seed in range(20):
        each = [Row(params, torch.Generator().manual_seed(seed)) for params in settings]
        alone = [sample(logits[i : i + 1], [row])[0] for i, row in enumerate(each)]
        together = sample(logits, [Row(params, torch.Generator().manual_seed(seed)) for params in settings])
        assert together == alone
