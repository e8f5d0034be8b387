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

SHARES = {"neutral": 0.07, "grave": 0.04, "unkind": 0.04, "threatening": 0.012}
"""Templated sentences of a kind per text of an epoch, drawn anew each time; contrasting ones are all seen."""

Words = list[str]
Labels = NDArray[np.float64]
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Settings:
    """How long and how fast."""

    epochs: int = 8
    batch: int = 64
    rate: float = 3e-3
    decay: float = 0.01
    disguised: float = 0.03
    """Share of words that are misspelled on purpose, so that letters alone must do."""
    teachers: int = 4
    splices: int = 10_000


def learn(
    scored: Texts, shape: Shape, vectors: Vectors, settings: Settings, progress: Progress
) -> tuple[Network, Lexicon]:
    """Train several teachers, then one network on their mean opinion; it depends on nothing but the arguments.

    The teachers learn Perspective's scores. The student learns the mean of those and of the teachers' opinion, and the
    teachers' opinion alone on texts that are spliced from two training texts.
    """
    texts, labels = readable(scored)
    counts = Counter(word for text in texts for word in set(text))
    lexicon = Lexicon(shape, vectors, sorted(word for word, count in counts.items() if count >= 2))
    teachers: list[Network] = []
    for number in range(settings.teachers):
        progress(f"teacher {number + 1} of {settings.teachers}")
        seed = shape.seed + 1 + number
        teachers.append(_train(texts, labels, lexicon, vectors, Noise(0.2, 0.03), settings, seed, progress))
    if not teachers:
        return _train(texts, labels, lexicon, vectors, Noise(0.2, 0.03), settings, shape.seed, progress), lexicon
    more = splice(texts, settings.splices, np.random.default_rng(shape.seed))
    opinion = np.mean([logits_of(teacher, lexicon, texts + more) for teacher in teachers], axis=0)
    opinion = 1 / (1 + np.exp(-opinion))
    targets = np.concatenate([(labels + opinion[: len(texts)]) / 2, opinion[len(texts) :]])
    progress("student")
    return _train(texts + more, targets, lexicon, vectors, Noise(0.1, 0.03), settings, shape.seed, progress), lexicon


def _train(
    texts: list[Words],
    labels: Labels,
    lexicon: Lexicon,
    vectors: Vectors,
    noise: Noise,
    settings: Settings,
    seed: int,
    progress: Progress,
) -> Network:
    torch.manual_seed(seed)
    random = np.random.default_rng(seed)
    templates = _Templates(len(texts), random)
    network = Network(lexicon.shape, vectors, lexicon.learned, noise)
    weights = [weight for weight in network.parameters() if weight.requires_grad]
    optimiser = torch.optim.AdamW(weights, settings.rate, weight_decay=settings.decay)
    steps = settings.epochs * -(-(len(texts) + templates.size) // settings.batch)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, settings.rate, total_steps=steps, pct_start=0.1)
    for epoch in range(settings.epochs):
        network.train()
        drawn, drawn_labels = templates.draw()
        epoch_texts, epoch_labels = texts + drawn, np.concatenate([labels, drawn_labels])
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
    return network


def splice(texts: list[Words], number: int, random: np.random.Generator) -> list[Words]:
    """New texts: the beginning of one and the end of another."""
    made: list[Words] = []
    for first, second in random.integers(len(texts), size=(number, 2)):
        head, tail = texts[first], texts[second]
        made.append((head[: random.integers(1, len(head) + 1)] + tail[random.integers(len(tail)) :])[:WINDOW])
    return made


def readable(scored: Texts) -> tuple[list[Words], Labels]:
    """The texts that can be scored, as words, at most one window long."""
    read = [words_of(text) for text in scored.texts]
    keep = np.array([isinstance(words, list) for words in read])
    return [words[:WINDOW] for words in read if isinstance(words, list)], scored.labels[keep]


def calibrate(network: Network, lexicon: Lexicon, scored: Texts) -> tuple[Labels, Labels]:
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


def _fit(logits: Labels, labels: Labels) -> tuple[float, float]:
    design = np.stack([logits, np.ones_like(logits)], axis=1)
    weights = np.array([1.0, 0.0])
    for _ in range(25):
        chance = 1 / (1 + np.exp(-design @ weights))
        curvature = design.T @ (design * (chance * (1 - chance))[:, None])
        weights -= np.linalg.solve(curvature, design.T @ (chance - labels))
    return float(weights[0]), float(weights[1])


class _Templates:
    """Draws a fresh handful of templated sentences for each epoch."""

    def __init__(self, texts: int, random: np.random.Generator) -> None:
        self._random = random
        self._kinds: dict[str, list[Words]] = {}
        for sentence in training_sentences():
            words = words_of(sentence.text)
            assert isinstance(words, list), sentence.text
            self._kinds.setdefault(sentence.kind, []).append(words)
        self._draws = {
            kind: min(len(known), round(SHARES[kind] * texts)) if kind in SHARES else len(known)
            for kind, known in self._kinds.items()
        }
        self.size = sum(self._draws.values())

    def draw(self) -> tuple[list[Words], Labels]:
        texts: list[Words] = []
        labels: list[Sequence[float]] = []
        for kind, known in self._kinds.items():
            chosen = self._random.choice(len(known), self._draws[kind], replace=False)
            texts += [known[place] for place in chosen]
            labels += [labels_of(kind)] * len(chosen)
        return texts, np.array(labels)
