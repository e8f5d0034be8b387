"""The training loop: scored texts, templated sentences and clean texts, disguised words, soft labels, logistic loss."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from evenhand.scorers.builtin import WINDOW, words_of
from tools.train_scorer import everyday, identity
from tools.train_scorer.corpora import Texts
from tools.train_scorer.identity import training_sentences
from tools.train_scorer.network import Lexicon, Network, Noise, Shape, logits_of
from tools.train_scorer.vectors import Vectors

SHARES = {"neutral": 0.10, "odd": 0.08, "grave": 0.06, "unkind": 0.12, "threatening": 0.02}
"""Templated sentences of a kind per text of an epoch, drawn anew each time; contrasting ones are all seen."""
CROSSED = {"neutral": 0.10, "odd": 0.08, "unkind": 0.06}
"""The same for sentences with one or two groups in one phrase."""
EVERYDAY = {"people": 0.06, "people_unkind": 0.01, "replies": 0.03, "terms": 0.01, "plain": 0.02, "strings": 0.01}
"""The same for everyday text."""
CLEAN = 0.15
"""The same for parts and joins of clean texts; a text is clean if its toxicity is below CLEAN_BELOW."""
CLEAN_BELOW, HARMLESS_BELOW = 0.15, 0.3
BROKEN = 0.3
"""Share of the templated sentences that are brought into broken grammar."""

HARMLESS = ("neutral", "odd", "people", "replies", "terms", "plain")

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


def learn(
    scored: Texts, shape: Shape, vectors: Vectors, settings: Settings, progress: Progress
) -> tuple[Network, Lexicon]:
    """Train one network; it depends on nothing but the arguments."""
    texts, labels = readable(scored)
    counts = Counter(word for text in texts for word in set(text))
    lexicon = Lexicon(shape, vectors, sorted(word for word, count in counts.items() if count >= 2))
    torch.manual_seed(shape.seed)
    random = np.random.default_rng(shape.seed)
    templates = _Templates(texts, labels, random)
    network = Network(lexicon.shape, vectors, lexicon.learned, Noise(units=0.2, known=0.03))
    weights = [weight for weight in network.parameters() if weight.requires_grad]
    optimiser = torch.optim.AdamW(weights, settings.rate, weight_decay=settings.decay, fused=True)
    steps = settings.epochs * -(-(len(texts) + templates.size) // settings.batch)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, settings.rate, total_steps=steps, pct_start=0.1)
    for epoch in range(settings.epochs):
        network.train()
        drawn, drawn_labels = templates.draw()
        epoch_texts, epoch_labels = texts + drawn, np.concatenate([labels, drawn_labels])
        total = 0.0
        for chosen in _batches([len(text) for text in epoch_texts], settings.batch, random):
            batch = lexicon.batch([disguise(epoch_texts[place], settings.disguised, random) for place in chosen])
            targets = torch.tensor(epoch_labels[chosen], dtype=torch.float32)
            loss = functional.binary_cross_entropy_with_logits(network(batch), targets)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
            total += loss.item() * len(chosen)
        progress(f"epoch {epoch + 1} of {settings.epochs}: loss {total / len(epoch_texts):.4f}")
    return network, lexicon


def _batches(lengths: list[int], size: int, random: np.random.Generator) -> list[NDArray[np.int64]]:
    """Random batches of texts of similar length, since padding costs as much as words."""
    order = random.permutation(len(lengths))
    pools = [order[start : start + 16 * size] for start in range(0, len(order), 16 * size)]
    ordered = np.concatenate([sorted(pool, key=lengths.__getitem__) for pool in pools])
    batches = [ordered[start : start + size] for start in range(0, len(ordered), size)]
    return [batches[place] for place in random.permutation(len(batches))]


def readable(scored: Texts) -> tuple[list[Words], Labels]:
    """The texts that can be scored, as words, at most one window long."""
    read = [words_of(text) for text in scored.texts]
    keep = np.array([isinstance(words, list) for words in read])
    return [words[:WINDOW] for words in read if isinstance(words, list)], scored.labels[keep]


def clean_texts(
    texts: list[Words], labels: Labels, number: int, random: np.random.Generator, below: float = CLEAN_BELOW
) -> tuple[list[Words], Labels]:
    """Parts of clean texts, from one word on, and joins of several of them, up to a window."""
    clean = np.flatnonzero(labels[:, 0] < below)
    made: list[Words] = []
    made_labels: list[Labels] = []
    for _ in range(number):
        length = int(np.exp(random.uniform(0, np.log(WINDOW + 1))))
        places: list[int] = []
        words: Words = []
        while len(words) < length:
            places.append(int(random.choice(clean)))
            text = texts[places[-1]]
            words = words + text[random.integers(len(text)) if not words else 0 :]
        made.append(words[:length])
        made_labels.append(labels[places].mean(0))
    return made, np.array(made_labels)


def calibrate(network: Network, lexicon: Lexicon, scored: Texts) -> tuple[Labels, Labels, Labels]:
    """Slope and shift of each attribute's logit (logistic loss, Newton steps), and its scale on harmless text.

    Slope and shift are fitted on scored texts and as many clean ones. The scale is the mean excess of a window's logit
    over its 80 % quantile: the maximum of n windows grows by about the scale times log n.
    """
    random = np.random.default_rng(0)
    texts, labels = readable(scored)
    clean, clean_labels = clean_texts(texts, labels, len(texts), random)
    logits = logits_of(network, lexicon, texts + clean)
    targets = np.concatenate([labels, clean_labels])
    fits = [_fit(logits[:, column], targets[:, column]) for column in range(targets.shape[1])]
    slope, shift = np.array([slope for slope, _ in fits]), np.array([shift for _, shift in fits])
    parts, _ = clean_texts(texts, labels, 10 * len(texts), random, HARMLESS_BELOW)
    tail = logits_of(network, lexicon, [text for text in parts if len(text) > WINDOW // 2]) * slope
    high = np.quantile(tail, 0.8, axis=0)
    scale = np.array([(column[column > bound] - bound).mean() for column, bound in zip(tail.T, high, strict=True)])
    return slope, shift, scale


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
    """Draws fresh templated sentences, everyday texts and clean texts for each epoch."""

    def __init__(self, texts: list[Words], labels: Labels, random: np.random.Generator) -> None:
        self._random = random
        self._texts, self._labels = texts, labels
        self._kinds: dict[str, list[Words]] = {}
        for sentence in training_sentences():
            self._kinds.setdefault(sentence.kind, []).append(_words(sentence.text))
        self._draws = {
            kind: min(len(known), round(SHARES[kind] * len(texts))) if kind in SHARES else len(known)
            for kind, known in self._kinds.items()
        }
        more = sum(round(share * len(texts)) for share in (*CROSSED.values(), *EVERYDAY.values(), CLEAN))
        self.size = sum(self._draws.values()) + more

    def draw(self) -> tuple[list[Words], Labels]:
        texts: list[Words] = []
        labels: list[Sequence[float]] = []
        for kind, known in self._kinds.items():
            chosen = self._random.choice(len(known), self._draws[kind], replace=False)
            texts += [self._broken(known[place], kind) for place in chosen]
            labels += [identity.labels_of(kind)] * len(chosen)
        for kind, share in CROSSED.items():
            drawn = identity.crossed_sentences(kind, round(share * len(self._texts)), self._random)
            texts += [self._broken(_words(text), kind) for text in drawn]
            labels += [identity.labels_of(kind)] * len(drawn)
        for kind, share in EVERYDAY.items():
            drawn = everyday.draw(kind, round(share * len(self._texts)), self._random)
            texts += [self._broken(_words(text), kind) for text in drawn]
            labels += [everyday.labels_of(kind)] * len(drawn)
        clean, clean_labels = clean_texts(self._texts, self._labels, round(CLEAN * len(self._texts)), self._random)
        return texts + clean, np.concatenate([np.array(labels), clean_labels])

    def _broken(self, text: Words, kind: str) -> Words:
        if self._random.random() >= BROKEN:
            return text
        return identity.break_grammar(text, kind in HARMLESS, self._random)


def _words(text: str) -> Words:
    words = words_of(text)
    assert isinstance(words, list), text
    return words[:WINDOW]
