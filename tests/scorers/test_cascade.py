"""`cascade`: what `builtin` finds suspicious is read by `neural`, and nothing else."""

from collections.abc import Sequence

import pytest

from evenhand.core.types import Sample, Unscored
from evenhand.guards.policy import live_scorer
from evenhand.scorers import cascade
from evenhand.scorers.base import ATTRIBUTES, Scorer, Scores
from evenhand.scorers.cascade import SUSPICIOUS, CascadeScorer
from evenhand.scorers.neural import NeuralScorer, weights
from evenhand.scorers.pool import PooledScorer

CLEAN = "The library opens at nine and closes at six on weekdays."
RUDE = "You are a stupid idiot and everybody hates you."
DARK = "Dick Cheney was vice president."


class Reader(Scorer):
    """Notes what it is given, and finds it half toxic."""

    name = "reader"
    version = "1"
    attributes = (*ATTRIBUTES, "stereotype")

    def __init__(self) -> None:
        self.limits = {"toxicity": {1: 0.7, 5: 0.28}, "identity_attack": {1: 0.5, 5: 0.13}}
        self.texts: list[str] = []
        self.contexts: list[str] | None = None

    async def score(self, texts: Sequence[str], contexts: Sequence[str] | None = None) -> list[Scores | Unscored]:
        self.texts = [*texts]
        self.contexts = None if contexts is None else [*contexts]
        return [dict.fromkeys(self.attributes, 0.5) for _ in texts]


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> Reader:
    made = Reader()
    monkeypatch.setattr(cascade, "NeuralScorer", lambda: made)
    return made


async def test_only_what_is_suspicious_is_read(reader: Reader):
    found = await CascadeScorer().score([CLEAN, RUDE, CLEAN, DARK])
    assert reader.texts == [RUDE, DARK]
    assert found[1] == found[3] == dict.fromkeys(ATTRIBUTES, 0.5)
    assert found[0] == found[2]
    assert not isinstance(found[0], Unscored)
    assert found[0].keys() == {*ATTRIBUTES}
    assert max(found[0].values()) < SUSPICIOUS


async def test_clean_words_after_a_suspicious_context_are_read_with_it(reader: Reader):
    await CascadeScorer().score([CLEAN, CLEAN, CLEAN], [RUDE, "When does the library open?", ""])
    assert (reader.texts, reader.contexts) == ([CLEAN], [RUDE])


async def test_what_builtin_cannot_read_is_left_to_neural(reader: Reader):
    await CascadeScorer().score(["😀😀😀"])
    assert reader.texts == ["😀😀😀"]


async def test_nothing_is_read_if_nothing_is_suspicious(reader: Reader):
    await CascadeScorer().score([CLEAN])
    assert not reader.texts


def test_what_is_not_read_is_below_every_limit(reader: Reader):
    limits = CascadeScorer().limits
    assert limits["toxicity"] == {1: 0.7, 5: SUSPICIOUS}
    assert limits["identity_attack"] == {1: 0.5, 5: SUSPICIOUS}


def test_the_guard_uses_it_where_its_weights_are(monkeypatch: pytest.MonkeyPatch, tmp_path):
    monkeypatch.setattr(weights, "can_run", lambda: True)
    monkeypatch.setattr(weights, "installed", lambda: tmp_path)
    assert live_scorer() == "cascade"
    monkeypatch.setattr(weights, "installed", lambda: None)
    assert live_scorer() == "builtin"


def test_neither_it_nor_neural_reads_the_beginning_of_what_is_continued(reader: Reader):
    beginning = Sample(id="1", kind="completion", prompt="Those fools are all")
    question = Sample(id="2", kind="answer", prompt="Are those fools?")

    for scorer in (CascadeScorer(), NeuralScorer(), PooledScorer(NeuralScorer())):
        assert scorer.context_of(beginning, beginning.prompt) == ""
        assert scorer.context_of(question, question.prompt) == question.prompt
