"""The training loop: scored texts and templated sentences, disguised words, soft labels, logistic loss."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from evenhand.scorers.builtin import WINDOW, words_of
from tools.train_scorer.corpora import Texts
from tools.train_scorer.identity import labels_of, training_sentences
from tools.train_scorer.network import Lexicon, Network, Noise, Shape, logits_of
from tools.train_scorer.vectors import Vectors

PER_EPOCH = {"neutral": 1500, "grave": 300, "unkind": 500, "threatening": 200}
"""How many templated sentences of a kind an epoch sees, drawn anew each time; contrasting ones are all seen."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How long and how fast."""

    epochs: int = 8
    batch: int = 64
    rate: float = 3e-3
    decay: float = 0.01
    disguised: float = 0.03
    """Share of words that are misspelled on purpose, so that letters alone must do."""
    templates: bool = True


Words = list[str]
Progress = Callable[[str], None]


def learn(
    scored: Texts, shape: Shape, vectors: Vectors, settings: Settings, progress: Progress, noise: Noise = Noise()
) -> tuple[Network, Lexicon]:
    """Train one network; the result depends on nothing but the arguments."""
    torch.manual_seed(shape.seed)
    random = np.random.default_rng(shape.seed)
    texts, labels = readable(scored)
    extra = _Templates(random) if settings.templates else None
    counts = Counter(word for text in texts for word in set(text))
    learned = sorted(word for word, count in counts.items() if count >= 2)
    lexicon = Lexicon(shape, vectors, learned)
    network = Network(shape, vectors, len(learned), noise)
    optimiser = torch.optim.AdamW(
        [weight for weight in network.parameters() if weight.requires_grad], settings.rate, weight_decay=settings.decay
    )
    size = len(texts) + (extra.size if extra else 0)
    steps = settings.epochs * -(-size // settings.batch)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, settings.rate, total_steps=steps, pct_start=0.1)
    for epoch in range(settings.epochs):
        epoch_texts, epoch_labels = texts, labels
        if extra:
            more, more_labels = extra.draw()
            epoch_texts, epoch_labels = texts + more, np.concatenate([labels, more_labels])
        network.train()
        order = random.permutation(len(epoch_texts))
        total = 0.0
        for start in range(0, len(order), settings.batch):
            chosen = order[start : start + settings.batch]
            batch = lexicon.batch([disguise(epoch_texts[place], settings.disguised, random) for place in chosen])
            targets = torch.tensor(epoch_labels[chosen], dtype=torch.float32)
            loss = functional.binary_cross_entropy_with_logits(network(batch), targets)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
            total += loss.item() * len(chosen)
        progress(f"epoch {epoch + 1} of {settings.epochs}: loss {total / len(order):.4f}")
    return network, lexicon


def readable(scored: Texts) -> tuple[list[Words], NDArray[np.float64]]:
    """The texts that can be scored, as words, at most one window long."""
    read = [words_of(text) for text in scored.texts]
    keep = np.array([isinstance(words, list) for words in read])
    return [words[:WINDOW] for words in read if isinstance(words, list)], scored.labels[keep]


def calibrate(
    network: Network, lexicon: Lexicon, scored: Texts
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Slope and shift of each attribute's logit that fit Perspective's scores best (logistic loss, Newton steps)."""
    texts, labels = readable(scored)
    logits = logits_of(network, lexicon, texts)
    fits = [_fit(logits[:, column], labels[:, column]) for column in range(labels.shape[1])]
    return np.array([slope for slope, _ in fits]), np.array([shift for _, shift in fits])


def disguise(text: Words, share: float, random: np.random.Generator) -> Words:
    """The text with some of its longer words misspelled."""
    if share == 0:
        return text
    hit = random.random(len(text)) < share
    return [_misspell(word, random) if wrong and len(word) > 3 else word for word, wrong in zip(text, hit, strict=True)]


def _misspell(word: str, random: np.random.Generator) -> str:
    place = int(random.integers(1, len(word) - 1))
    way = int(random.integers(4))
    if way == 0:
        return word[:place] + "*" + word[place + 1 :]
    if way == 1:
        return word[:place] + word[place + 1 :]
    if way == 2:
        return word[:place] + word[place + 1] + word[place] + word[place + 2 :]
    return word[: place + 1] + word[place:]


def _fit(logits: NDArray[np.float64], labels: NDArray[np.float64]) -> tuple[float, float]:
    design = np.stack([logits, np.ones_like(logits)], axis=1)
    weights = np.array([1.0, 0.0])
    for _ in range(25):
        chance = 1 / (1 + np.exp(-design @ weights))
        curvature = design.T @ (design * (chance * (1 - chance))[:, None])
        weights -= np.linalg.solve(curvature, design.T @ (chance - labels))
    return float(weights[0]), float(weights[1])


class _Templates:
    """Draws a fresh handful of templated sentences for each epoch."""

    def __init__(self, random: np.random.Generator) -> None:
        self._random = random
        self._kinds: dict[str, list[Words]] = {}
        for sentence in training_sentences():
            words = words_of(sentence.text)
            assert isinstance(words, list), sentence.text
            self._kinds.setdefault(sentence.kind, []).append(words)
        self._draws = {kind: PER_EPOCH.get(kind, len(texts)) for kind, texts in self._kinds.items()}
        self.size = sum(self._draws.values())

    def draw(self) -> tuple[list[Words], NDArray[np.float64]]:
        texts: list[Words] = []
        labels: list[Sequence[float]] = []
        for kind, known in self._kinds.items():
            chosen = self._random.choice(len(known), self._draws[kind], replace=False)
            texts += [known[place] for place in chosen]
            labels += [labels_of(kind)] * len(chosen)
        return texts, np.array(labels)
