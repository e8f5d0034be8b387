"""Decodes a batch token by token: from the latest token of every sequence to the next logits.

Decoding with a small model is launch-bound, so on a GPU each step is captured once as a CUDA graph and replayed. A
graph needs static shapes: the KV cache has room for the tokens to come, and unwritten positions are masked.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from evenhand.core.lazy import torch
from evenhand.models.hf import tuning as hf_tuning

if TYPE_CHECKING:
    from torch import Tensor

_TOKENS_AHEAD = 256
"""The maximum number of tokens that the static cache reserves room for at a time."""
_ALIGNMENT = 16
"""Cache lengths are multiples of this, so that attention need not pad."""

_CAPTURING = threading.Lock()
"""Held while a graph is captured: freeing GPU memory in another thread would break the capture."""

log = logging.getLogger(__name__)


class Decoder(Protocol):
    """The decoding state of a batch."""

    full: float
    """Finished sequences are removed once the share of running ones is at most this."""
    joins: bool
    """Whether sequences can be added to a running batch."""

    @property
    def count(self) -> int:
        """How many sequences it has, those included that make up a round number."""
        ...

    def next(self, ids: Tensor) -> Tensor:
        """Append one token to each sequence (sequences × 1); return the logits (sequences × vocabulary, float32).

        With `then`, its result is returned instead; it is overwritten by the next step.
        """
        ...

    def keep(self, sequences: Tensor) -> None:
        """Continue with these sequences only, in this order; an index may be repeated."""
        ...

    def join(self, cache: Any, mask: Tensor, positions: Tensor, sequences: Tensor, *, max_new_tokens: int) -> None:
        """Add `sequences` of other prompts, which are in their cache, after those that are there."""
        ...


def _float32(logits: Tensor) -> Tensor:
    return logits.float()


def decoder(
    model: Any,
    cache: Any,
    mask: Tensor,
    positions: Tensor,
    *,
    max_length: int,
    max_new_tokens: int,
    use_graphs: bool = True,
    then: Callable[[Tensor], Tensor] = _float32,
) -> Decoder:
    """Return the decoder for a batch whose prompts are in the cache.

    A model that does not keep all keys and values of all tokens gets a dynamic cache.

    Args:
        max_length: The context length of the model.
        use_graphs: Whether a static decoder on a GPU captures CUDA graphs; turn it off if several processes compute
            each step together.
        then: What a step computes from the model's logits, in their own dtype, on the device and with static shapes:
            sampling, for example.
    """
    start = (model, cache, mask, positions)
    if supports_static_cache(model, cache):
        limits = {"max_length": max_length, "max_new_tokens": max_new_tokens}
        # A capture records what the current device does; the work of another would be missing in the graph.
        captures = mask.is_cuda and mask.device.index == torch.cuda.current_device()
        return StaticDecoder(*start, **limits, use_graphs=use_graphs and captures, then=then)
    return DynamicDecoder(*start, max_length=max_length, then=then)


class DynamicDecoder:
    """Decodes with transformers' own cache, which is copied to a longer one at every token."""

    full = 0.75
    joins = False

    def __init__(
        self,
        model: Any,
        cache: Any,
        mask: Tensor,
        positions: Tensor,
        *,
        max_length: int,
        then: Callable[[Tensor], Tensor] = _float32,
    ) -> None:
        self._model, self._cache, self._mask, self._max_length = model, cache, mask, max_length
        self._then = then
        self._positions = positions[:, -1:]

    def next(self, ids: Tensor) -> Tensor:
        self._mask = torch.cat([self._mask, self._mask.new_ones(len(self._mask), 1)], dim=1)
        self._positions = (self._positions + 1).clamp(max=self._max_length - 1)
        output = self._model(
            input_ids=ids,
            attention_mask=self._mask,
            position_ids=self._positions,
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=1,
        )
        self._cache = output.past_key_values
        return self._then(output.logits[:, -1])

    @property
    def count(self) -> int:
        return len(self._mask)

    def join(self, *_: Any, **__: Any) -> None:
        raise NotImplementedError("transformers' own cache takes no more sequences")

    def keep(self, sequences: Tensor) -> None:
        self._cache.batch_select_indices(sequences)
        self._mask, self._positions = self._mask[sequences], self._positions[sequences]


class StaticDecoder:
    """Decodes with static shapes. With CUDA graphs, the first step of a shape runs eagerly, the second is captured.

    Sequences that leave make room at the end of the same memory, so that there is one graph for each number of
    sequences, and `restart` can use the graphs of an earlier batch.
    """

    full = 0.5
    joins = True

    def __init__(
        self,
        model: Any,
        cache: Any,
        mask: Tensor,
        positions: Tensor,
        *,
        max_length: int,
        max_new_tokens: int,
        use_graphs: bool = False,
        then: Callable[[Tensor], Tensor] = _float32,
    ) -> None:
        self._model, self._cache, self._then = model, cache, then
        self._max_length, self._tokens_left = max_length, max_new_tokens
        self._count, self._length = mask.shape
        self._mask = mask.bool()[:, None, None, :]
        self._positions = positions[:, -1:].clone()
        self._ids = torch.zeros_like(self._positions)
        self._slot = torch.tensor([self._length], device=mask.device)
        cache.layers = [StaticLayer(layer, self._slot) for layer in cache.layers]
        self._use_graphs = use_graphs
        self._reserve()

    def restart(self, cache: Any, mask: Tensor, positions: Tensor, sequences: Tensor, *, max_new_tokens: int) -> None:
        """Begin with other prompts: those of `sequences` in their cache, at most as many as in the first batch."""
        self._count, self._length, self._tokens_left = len(sequences), mask.shape[1], max_new_tokens
        if self._length + min(max_new_tokens, _TOKENS_AHEAD) > self._mask.shape[-1]:
            self._reserve()
        for own, layer in zip(self._cache.layers, cache.layers, strict=True):
            own.restart(layer, sequences)
        self._mask.zero_()
        self._mask[: self._count, ..., : self._length] = mask.bool()[sequences, None, None, :]
        self._positions[: self._count] = positions[sequences, -1:]
        self._slot.fill_(self._length)

    @property
    def count(self) -> int:
        return self._count

    def join(self, cache: Any, mask: Tensor, positions: Tensor, sequences: Tensor, *, max_new_tokens: int) -> None:
        # All sequences end at the same place, so those that run move to where the longest of all needs to end.
        seen = self._mask[: self._count, 0, 0, : self._length].any(0)
        first, read = int(seen.int().argmax()), mask.shape[1]
        length = max(self._length - first, read)
        count = self._count + len(sequences)
        # A graph for each multiple of 16 sequences; those that nobody asked for compute something that is not read.
        rounded = -(-count // _ALIGNMENT) * _ALIGNMENT if self._use_graphs else count
        rounded = max(count, min(rounded, len(self._mask)))
        rows, width = max(count, len(self._mask)), max(length, self._mask.shape[-1])
        if (rows, width) != (len(self._mask), self._mask.shape[-1]):
            self._mask = _widened(_widened(self._mask, 0, rows), -1, width)
            self._positions, self._ids = (_widened(each, 0, rows) for each in (self._positions, self._ids))
            for layer in self._cache.layers:
                layer.widen(width, rows)
            self._drop_graphs()
        old, new = slice(0, self._count), slice(self._count, count)
        run, end = slice(first, self._length), slice(length - (self._length - first), length)
        running = self._mask[old, ..., run].clone()
        self._mask.zero_()
        self._mask[old, ..., end] = running
        self._mask[new, ..., length - read : length] = mask.bool()[sequences, None, None, :]
        for own, layer in zip(self._cache.layers, cache.layers, strict=True):
            for values, more in ((own.keys, layer.keys), (own.values, layer.values)):
                values[old, :, end] = values[old, :, run].clone()
                values[new, :, length - read : length] = more[sequences]
        self._positions[new] = positions[sequences, -1:]
        self._slot.fill_(length)
        self._count, self._length = rounded, length
        self._tokens_left = max(self._tokens_left, max_new_tokens)

    def next(self, ids: Tensor) -> Tensor:
        if self._length == self._mask.shape[-1]:
            self._reserve()
        self._ids[: self._count].copy_(ids)
        if self._count in self._graphs:
            graph, result = self._graphs[self._count]
            graph.replay()
        elif self._use_graphs and self._count in self._warm:
            result = self._capture()
        else:
            result = self._step()
            self._warm.add(self._count)
        self._length += 1
        self._tokens_left -= 1
        return result

    def keep(self, sequences: Tensor) -> None:
        more = len(sequences) > len(self._mask)
        for layer in self._cache.layers:
            layer.keep(sequences)
        self._mask, self._positions = _kept(self._mask, sequences), _kept(self._positions, sequences)
        self._count = len(sequences)
        if more:
            self._ids = self._ids.new_zeros(self._count, 1)
            self._drop_graphs()

    def _reserve(self) -> None:
        """Make room in the cache for the next tokens."""
        ahead = max(1, min(self._tokens_left, _TOKENS_AHEAD))
        width = -(-(self._length + ahead) // _ALIGNMENT) * _ALIGNMENT
        for layer in self._cache.layers:
            layer.widen(width)
        self._mask = _widened(self._mask, -1, width)
        self._drop_graphs()

    def _step(self) -> Tensor:
        """Run one step entirely on the device: nothing here may depend on a value that the CPU would wait for."""
        ids, mask, positions = (each[: self._count] for each in (self._ids, self._mask, self._positions))
        positions.add_(1).clamp_(max=self._max_length - 1)
        mask.index_fill_(-1, self._slot, True)
        output = self._model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=1,
        )
        self._slot.add_(1)
        return self._then(output.logits[:, -1])

    def _capture(self) -> Any:
        """Capture a step as a CUDA graph and replay it; if that fails, continue eagerly with the same results."""
        graph = torch.cuda.CUDAGraph()
        stream = torch.cuda.stream(torch.cuda.current_stream())  # a failed capture may leave the thread on another one
        pool = next((other.pool() for other, _ in self._graphs.values()), None)  # graphs run one after another
        try:
            with _CAPTURING, stream, torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
                result = self._step()
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            reason = str(error).partition("\n")[0]
            log.warning("A decoding step could not be captured as a CUDA graph, so decoding is slower: %s", reason)
            self._use_graphs = False
            return self._step()
        self._graphs[self._count] = graph, result
        graph.replay()
        return result

    def _drop_graphs(self) -> None:
        """Forget the graphs, because the memory that they use has moved."""
        self._graphs: dict[int, tuple[Any, Any]] = {}
        self._warm: set[int] = set()


class StaticLayer:
    """The keys and values of one layer with room for more; replaces a dynamic cache layer."""

    def __init__(self, dynamic: Any, slot: Tensor) -> None:
        self.keys, self.values = dynamic.keys, dynamic.values
        dynamic.keys = dynamic.values = None
        self.slot = slot

    def update(self, key: Tensor, value: Tensor, *_: object, **__: object) -> tuple[Tensor, Tensor]:
        """Store the new token and return all keys and values; the layer's attention calls this."""
        keys, values = self.keys[: len(key)], self.values[: len(value)]
        keys.index_copy_(2, self.slot, key.to(keys.dtype))
        values.index_copy_(2, self.slot, value.to(values.dtype))
        return keys, values

    def restart(self, dynamic: Any, sequences: Tensor) -> None:
        length = dynamic.keys.shape[2]
        self.keys[: len(sequences), :, :length] = dynamic.keys[sequences]
        self.values[: len(sequences), :, :length] = dynamic.values[sequences]

    def widen(self, width: int, rows: int | None = None) -> None:
        rows = rows or len(self.keys)
        self.keys = _widened(_widened(self.keys, 2, width), 0, rows)
        self.values = _widened(_widened(self.values, 2, width), 0, rows)

    def keep(self, sequences: Tensor) -> None:
        self.keys = _kept(self.keys, sequences)
        self.values = _kept(self.values, sequences)


def free_memory() -> None:
    """Release unused GPU memory."""
    with _CAPTURING:
        torch.cuda.empty_cache()


def supports_static_cache(model: Any, cache: Any) -> bool:
    """Whether a model uses transformers' standard attention and caches the keys and values of all tokens."""
    kinds = {type(layer).__name__ for layer in cache.layers}
    return kinds == {"DynamicLayer"} and model.config._attn_implementation in ("sdpa", hf_tuning.NAME)


def _widened(values: Tensor, dimension: int, width: int) -> Tensor:
    shape = list(values.shape)
    old, shape[dimension] = shape[dimension], width
    if old == width:
        return values
    wider = values.new_zeros(shape)
    wider.narrow(dimension, 0, old).copy_(values)
    return wider


def _kept(values: Tensor, sequences: Tensor) -> Tensor:
    """Move the values of some sequences to the front, or to new memory if they need more."""
    moved = values[sequences]
    if len(sequences) > len(values):
        return moved
    values[: len(sequences)] = moved
    return values
