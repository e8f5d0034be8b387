"""Writes the network of the scorer `neural` as an ONNX file: a BERT encoder that reads pieces of text of one length.

An ONNX file is a protocol buffer of few kinds of messages, so that numpy suffices to write it. Weights of the
layers are integers with a scale per output, and what goes into them is rounded to integers, too. Its range is fixed,
so that the rounding of a piece does not depend on the other pieces of its run.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

_TYPES = {"float32": 1, "uint8": 2, "int8": 3, "int32": 6, "int64": 7}
_CONTRIB = "com.microsoft"
_OPSET, _IR_VERSION = 17, 8


def network(weights: Mapping[str, Array], heads: int, activation: str) -> bytes:
    """Return the ONNX file of the network with these weights (`weights.network_weights` returns them).

    It maps the `ids` of tokens, one row per piece, their `places` and the `real` ones (1, and 0 for padding) to their
    last states.
    """
    graph = _Graph()
    depth = len({name.partition(".")[0] for name in weights if name[0].isdigit()})
    levels = graph.add("Gather", ["words", "ids"], initial={"words": weights["words"]})
    scale = graph.add("Gather", ["word_scale", "ids"], initial={"word_scale": weights["word_scale"]})
    x = graph.add("Mul", [graph.add("Cast", [levels], to=1), scale])
    x = graph.add("Add", [x, graph.add("Gather", ["all_places", "places"], initial={"all_places": weights["places"]})])
    x = graph.norm(x, weights["norm.weight"], weights["norm.bias"])
    for number in range(depth):
        layer = {k.partition(".")[2]: v for k, v in weights.items() if k.startswith(f"{number}.")}
        x = _layer(graph, x, layer, heads, activation)
    graph.add("Identity", [x], output="states")
    inputs: dict[str, _Shape] = {"ids": ("int64", ["pieces", "length"]), "places": ("int64", ["length"])}
    inputs["real"] = ("int32", ["pieces", "length"])
    return graph.file(inputs, {"states": ("float32", ["pieces", "length", len(weights["norm.bias"])])})


def _layer(graph: _Graph, x: str, weights: Mapping[str, Array], heads: int, activation: str) -> str:
    def linear(x: str, *names: str) -> str:
        parts = (np.concatenate([weights[f"{name}.{part}"] for name in names]) for part in ("weight", "scale", "bias"))
        return graph.linear(x, weights[f"{names[0]}.range"], *parts)

    query, key, value = graph.add_many("Split", [linear(x, "query", "key", "value")], 3, axis=-1)
    seen = graph.add("MultiHeadAttention", [query, key, value, "", "real"], domain=_CONTRIB, num_heads=heads)
    x = graph.norm(graph.add("Add", [linear(seen, "merge"), x]), weights["norm.weight"], weights["norm.bias"])
    wide = graph.add(activation, [linear(x, "up")], domain=_CONTRIB if activation == "Gelu" else "")
    return graph.norm(graph.add("Add", [linear(wide, "down"), x]), weights["last.weight"], weights["last.bias"])


class _Graph:
    """Collects nodes and initial values."""

    def __init__(self) -> None:
        self._nodes: list[bytes] = []
        self._values: dict[str, bytes] = {}

    def linear(self, x: str, span: Array, levels: Array, scale: Array, bias: Array) -> str:
        """x · (levels · scale)ᵀ + bias, with x rounded to 256 values from the first to the second of `span`."""
        step = np.float32((span[1] - span[0]) / 255)
        zero = np.uint8(np.rint(-span[0] / step))
        names = [f"{kind}{len(self._nodes)}" for kind in ("step", "zero", "weight", "scale", "bias")]
        values = (np.array(step), np.array(zero), np.ascontiguousarray(levels.T), scale, bias)
        first, middle, weight, scales, shift = names
        rounded = self.add("QuantizeLinear", [x, first, middle], initial=dict(zip(names, values, strict=True)))
        inputs = [rounded, weight, first, scales, middle, "", shift]
        return self.add("MatMulIntegerToFloat", inputs, domain=_CONTRIB)

    def norm(self, x: str, weight: Array, bias: Array) -> str:
        names = [f"{kind}{len(self._nodes)}" for kind in ("gamma", "beta")]
        values = dict(zip(names, (weight, bias), strict=True))
        return self.add("LayerNormalization", [x, *names], initial=values, axis=-1, epsilon=1e-12)

    def add(
        self,
        kind: str,
        inputs: Sequence[str],
        *,
        domain: str = "",
        initial: Mapping[str, Array] | None = None,
        output: str = "",
        **attributes: int | float | list[int],
    ) -> str:
        """Add a node and return the name of its output."""
        return self._add(kind, inputs, [output or f"{kind}{len(self._nodes)}"], domain, initial or {}, attributes)[0]

    def add_many(
        self, kind: str, inputs: Sequence[str], count: int, **attributes: int | float | list[int]
    ) -> list[str]:
        outputs = [f"{kind}{len(self._nodes)}_{number}" for number in range(count)]
        return self._add(kind, inputs, outputs, "", {}, attributes)

    def _add(
        self,
        kind: str,
        inputs: Sequence[str],
        outputs: list[str],
        domain: str,
        initial: Mapping[str, Array],
        attributes: Mapping[str, int | float | list[int]],
    ) -> list[str]:
        for name, array in initial.items():
            self._values[name] = _tensor(name, array)
        node = [_text(1, name) for name in inputs] + [_text(2, name) for name in outputs]
        node += [_text(4, kind)] + [_bytes(5, _attribute(name, value)) for name, value in attributes.items()]
        self._nodes.append(b"".join([*node, _text(7, domain)]))
        return outputs

    def file(self, inputs: Mapping[str, _Shape], outputs: Mapping[str, _Shape]) -> bytes:
        parts = [_bytes(1, node) for node in self._nodes] + [_text(2, "neural")]
        parts += [_bytes(5, value) for value in self._values.values()]
        parts += [_bytes(11, _described(name, *shape)) for name, shape in inputs.items()]
        parts += [_bytes(12, _described(name, *shape)) for name, shape in outputs.items()]
        imports = [_text(1, domain) + _int(2, version) for domain, version in (("", _OPSET), (_CONTRIB, 1))]
        return b"".join([_int(1, _IR_VERSION), _bytes(7, b"".join(parts)), *(_bytes(8, each) for each in imports)])


_Shape = tuple[str, Sequence[int | str]]


def quantised(weight: Array) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Round each row to −127…127 times a scale of its own."""
    scale = np.maximum(np.abs(weight).max(1), 1e-8).astype(np.float32) / 127
    return np.rint(weight / scale[:, None]).astype(np.int8), scale


def _tensor(name: str, array: Array) -> bytes:
    sizes = b"".join(_int(1, size) for size in array.shape)
    return sizes + _int(2, _TYPES[array.dtype.name]) + _text(8, name) + _bytes(9, array.tobytes())


def _attribute(name: str, value: int | float | list[int]) -> bytes:
    if isinstance(value, list):
        return _text(1, name) + b"".join(_int(8, each) for each in value) + _int(20, 7)
    if isinstance(value, int):
        return _text(1, name) + _int(3, value) + _int(20, 2)
    return _text(1, name) + _varint(2 << 3 | 5) + struct.pack("<f", value) + _int(20, 1)


def _described(name: str, kind: str, shape: Sequence[int | str]) -> bytes:
    sizes = [_int(1, size) if isinstance(size, int) else _text(2, size) for size in shape]
    tensor = _int(1, _TYPES[kind]) + _bytes(2, b"".join(_bytes(1, size) for size in sizes))
    return _text(1, name) + _bytes(2, _bytes(1, tensor))


def _text(field: int, value: str) -> bytes:
    return _bytes(field, value.encode())


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _int(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value & 0xFFFF_FFFF_FFFF_FFFF)


def _varint(value: int) -> bytes:
    data = bytearray()
    while value > 0x7F:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*data, value])
