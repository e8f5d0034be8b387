"""The network in torch: the same arithmetic as `evenhand.scorers.builtin`, with gradients; and its export."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from evenhand.scorers.base import ATTRIBUTES
from evenhand.scorers.builtin import fingerprint, gram_hashes
from tools.train_scorer.vectors import Vectors


@dataclass(frozen=True, slots=True)
class Shape:
    """What distinguishes one scorer from another before any training."""

    seed: int
    shortest: int
    longest: int
    buckets: int = 2**15
    width: int = 48
    hidden: int = 128


class Lexicon:
    """Numbers for words: the row in the vectors, the row of a learned vector, the n-grams; 0 stands for none."""

    def __init__(self, shape: Shape, vectors: Vectors, learned: Sequence[str]) -> None:
        self.shape = shape
        self.words = list(dict.fromkeys([*vectors.words, *learned]))
        self._vector = {word: row for row, word in enumerate(vectors.words, 1)}
        self.learned = len(learned)
        self._learned = {word: row for row, word in enumerate(learned, 1)}
        self._seen: dict[str, tuple[int, int, list[int]]] = {}

    def entry(self, word: str) -> tuple[int, int, list[int]]:
        if word not in self._seen:
            shape = self.shape
            grams = gram_hashes(word, shape.seed, shape.shortest, shape.longest, shape.buckets)
            self._seen[word] = (self._vector.get(word, 0), self._learned.get(word, 0), grams)
        return self._seen[word]

    def batch(self, texts: Sequence[Sequence[str]]) -> Batch:
        """Texts as a rectangle of indices into the distinct words."""
        distinct = {word: number for number, word in enumerate(dict.fromkeys(w for text in texts for w in text), 1)}
        places = np.zeros((len(texts), max(map(len, texts))), np.int64)
        for row, text in zip(places, texts, strict=True):
            row[: len(text)] = [distinct[word] for word in text]
        entries = [self.entry(word) for word in distinct]
        counts = np.array([len(grams) for _, _, grams in entries])
        return Batch(
            torch.tensor([vector for vector, _, _ in entries]),
            torch.tensor([learned for _, learned, _ in entries]),
            torch.tensor([gram for _, _, grams in entries for gram in grams]),
            torch.from_numpy(np.cumsum(counts) - counts),
            torch.from_numpy(places),
        )


@dataclass(frozen=True, slots=True)
class Batch:
    vector: Tensor
    learned: Tensor
    grams: Tensor
    offsets: Tensor
    places: Tensor
    """Per text the numbers of its words, from 1; 0 is no word."""


@dataclass(frozen=True, slots=True)
class Noise:
    """Dropout in training: of units, and of what is known of a word beyond its letters."""

    units: float
    known: float


class Network(nn.Module):
    """Words → one layer over three neighbours → maximum and weighted mean → seven logits."""

    def __init__(self, shape: Shape, vectors: Vectors, learned: int, noise: Noise) -> None:
        super().__init__()
        self.noise = noise
        rows = np.vstack([np.zeros((1, vectors.rows.shape[1]), np.float32), vectors.rows])
        self.vectors = nn.Embedding.from_pretrained(torch.from_numpy(rows), freeze=True)
        self.project = nn.Linear(rows.shape[1], shape.width, bias=False)
        self.learned = nn.Embedding(learned + 1, shape.width, padding_idx=0)
        self.grams = nn.EmbeddingBag(shape.buckets, shape.width, mode="mean")
        self.layer = nn.Linear(3 * shape.width, shape.hidden)
        self.attention = nn.Linear(shape.hidden, 1, bias=False)
        self.out = nn.Linear(2 * shape.hidden, len(ATTRIBUTES))
        nn.init.zeros_(self.learned.weight)
        nn.init.zeros_(self.grams.weight)

    def known_part(self, vector: Tensor, learned: Tensor) -> Tensor:
        return self.project(self.vectors(vector)) + self.learned(learned)

    def forward(self, batch: Batch) -> Tensor:
        known = self.known_part(batch.vector, batch.learned)
        if self.training:
            known = known * (torch.rand(len(known), 1) >= self.noise.known)
        words = known + self.grams(batch.grams, batch.offsets)
        words = functional.pad(words, (0, 0, 1, 0))[batch.places]
        there = (batch.places > 0).float()[..., None]
        words = functional.dropout(words, self.noise.units, self.training) * there
        around = functional.pad(words, (0, 0, 1, 1))
        triples = torch.cat([around[:, :-2], words, around[:, 2:]], dim=2)
        hidden = functional.dropout(torch.relu(self.layer(triples)), self.noise.units, self.training)
        away = (1 - there) * 1e4
        mean = (hidden * torch.softmax(self.attention(hidden) - away, dim=1)).sum(1)
        pooled = torch.cat([(hidden - away).amax(1), mean], dim=1)
        return self.out(functional.dropout(pooled, self.noise.units, self.training))


def logits_of(
    network: Network, lexicon: Lexicon, texts: Sequence[Sequence[str]], step: int = 256
) -> NDArray[np.float64]:
    network.eval()
    with torch.no_grad():
        parts = [network(lexicon.batch(texts[start : start + step])).numpy() for start in range(0, len(texts), step)]
    return np.concatenate(parts).astype(np.float64)


def export(
    network: Network,
    lexicon: Lexicon,
    calibration: tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]],
    version: str,
    path: Path,
) -> None:
    """Write the arrays that the scorer loads: tables as int8 with a scale per column, no words, no pickle."""
    shape = lexicon.shape
    keys = np.array([fingerprint(word, shape.seed) for word in lexicon.words], np.uint32)
    keys, first = np.unique(keys, return_index=True)
    entries = [lexicon.entry(lexicon.words[place]) for place in first]
    with torch.no_grad():
        words = network.known_part(
            torch.tensor([vector for vector, _, _ in entries]), torch.tensor([learned for _, learned, _ in entries])
        ).numpy()
    grams = network.grams.weight.detach().numpy()
    words, word_scale = _small(words)
    grams, gram_scale = _small(grams)
    slope, shift, scale = calibration
    about = {
        "version": version,
        "attributes": ATTRIBUTES,
        "seed": shape.seed,
        "shortest": shape.shortest,
        "longest": shape.longest,
    }
    np.savez_compressed(
        path,
        about=np.frombuffer(json.dumps(about, sort_keys=True).encode(), np.uint8),
        keys=keys,
        words=words,
        word_scale=word_scale,
        grams=grams,
        gram_scale=gram_scale,
        kernel=network.layer.weight.detach().numpy().T.astype(np.float16),
        bias=network.layer.bias.detach().numpy(),
        attention=network.attention.weight.detach().numpy()[0],
        out=(network.out.weight.detach().numpy().T * slope).astype(np.float32),
        out_bias=(network.out.bias.detach().numpy() * slope + shift).astype(np.float32),
        scale=scale.astype(np.float32),
    )


def _small(table: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    scale = (np.abs(table).max(0) / 127).astype(np.float32)
    return np.round(table / scale).astype(np.int8), scale
