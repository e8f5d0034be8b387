"""Decodes a batch token by token: from the latest token of every sequence to the next logits.

Decoding with a small model is launch-bound, so on a GPU each step is captured once as a CUDA graph and replayed. A
graph needs static shapes: the KV cache has room for the tokens to come, and unwritten positions are masked.
"""

from __future__ import annotations

import importlib
import logging
import threading
from typing import Any, Protocol

from evenhand.models.hf import tuning as hf_tuning

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

    def next(self, ids: Any) -> Any:
        """Append one token to each sequence (sequences × 1); return the logits (sequences × vocabulary, float32)."""
        ...

    def keep(self, sequences: Any) -> None:
        """Continue with these sequences only, in this order; an index may be repeated."""
        ...


def decoder(
    model: Any,
    cache: Any,
    mask: Any,
    positions: Any,
    *,
    max_length: int,
    max_new_tokens: int,
    use_graphs: bool = True,
) -> Decoder:
    """Return the decoder for a batch whose prompts are in the cache.

    A model that does not keep all keys and values of all tokens gets a dynamic cache.

    Args:
        max_length: The context length of the model.
        use_graphs: Whether a static decoder on a GPU captures CUDA graphs; turn it off if several processes compute
            each step together.
    """
    if supports_static_cache(model, cache):
        limits = {"max_length": max_length, "max_new_tokens": max_new_tokens}
        return StaticDecoder(model, cache, mask, positions, **limits, use_graphs=use_graphs and mask.is_cuda)
    return DynamicDecoder(model, cache, mask, positions, max_length=max_length)


class DynamicDecoder:
    """Decodes with transformers' own cache, which is copied to a longer one at every token."""

    full = 0.75

    def __init__(self, model: Any, cache: Any, mask: Any, positions: Any, *, max_length: int) -> None:
        self._model, self._cache, self._mask, self._max_length = model, cache, mask, max_length
        self._positions = positions[:, -1:]

    def next(self, ids: Any) -> Any:
        torch = _torch()
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
        return output.logits[:, -1].float()

    def keep(self, sequences: Any) -> None:
        self._cache.batch_select_indices(sequences)
        self._mask, self._positions = self._mask[sequences], self._positions[sequences]


class StaticDecoder:
    """Decodes with static shapes. With CUDA graphs, the first step of a shape runs eagerly, the second is captured."""

    full = 0.5

    def __init__(
        self,
        model: Any,
        cache: Any,
        mask: Any,
        positions: Any,
        *,
        max_length: int,
        max_new_tokens: int,
        use_graphs: bool = False,
    ) -> None:
        torch = _torch()
        self._model, self._cache = model, cache
        self._max_length, self._tokens_left = max_length, max_new_tokens
        self._length = mask.shape[1]
        self._mask = mask.bool()[:, None, None, :]
        self._positions = positions[:, -1:].clone()
        self._ids = torch.zeros_like(self._positions)
        self._slot = torch.tensor([self._length], device=mask.device)
        cache.layers = [_StaticLayer(layer, self._slot) for layer in cache.layers]
        self._use_graphs = use_graphs
        self._reserve()

    def next(self, ids: Any) -> Any:
        if self._length == self._mask.shape[-1]:
            self._reserve()
        self._ids.copy_(ids)
        if self._graph is not None:
            self._graph.replay()
        elif self._warm and self._use_graphs:
            self._capture()
        else:
            self._logits = self._step()
            self._warm = True
        self._length += 1
        self._tokens_left -= 1
        return self._logits

    def keep(self, sequences: Any) -> None:
        for layer in self._cache.layers:
            layer.keep(sequences)
        self._mask, self._positions = self._mask[sequences], self._positions[sequences]
        self._ids = self._ids[sequences]
        self._drop_graph()

    def _reserve(self) -> None:
        """Make room in the cache for the next tokens."""
        ahead = max(1, min(self._tokens_left, _TOKENS_AHEAD))
        width = -(-(self._length + ahead) // _ALIGNMENT) * _ALIGNMENT
        for layer in self._cache.layers:
            layer.widen(width)
        self._mask = _widened(self._mask, -1, width)
        self._drop_graph()

    def _step(self) -> Any:
        """Run one step entirely on the device: nothing here may depend on a value that the CPU would wait for."""
        self._positions.add_(1).clamp_(max=self._max_length - 1)
        self._mask.index_fill_(-1, self._slot, True)
        output = self._model(
            input_ids=self._ids,
            attention_mask=self._mask,
            position_ids=self._positions,
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=1,
        )
        self._slot.add_(1)
        return output.logits[:, -1].float()

    def _capture(self) -> None:
        """Capture a step as a CUDA graph and replay it; if that fails, continue eagerly with the same results."""
        torch = _torch()
        graph = torch.cuda.CUDAGraph()
        stream = torch.cuda.stream(torch.cuda.current_stream())  # a failed capture may leave the thread on another one
        try:
            with _CAPTURING, stream, torch.cuda.graph(graph, capture_error_mode="thread_local"):
                logits = self._step()
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            reason = str(error).partition("\n")[0]
            log.warning("A decoding step could not be captured as a CUDA graph, so decoding is slower: %s", reason)
            self._use_graphs = False
            self._logits = self._step()
            return
        self._graph, self._logits = graph, logits
        graph.replay()

    def _drop_graph(self) -> None:
        """Forget the graph, because the shapes have changed."""
        self._graph: Any = None
        self._logits: Any = None
        self._warm = False


class _StaticLayer:
    """The keys and values of one layer with room for more; replaces a dynamic cache layer."""

    def __init__(self, dynamic: Any, slot: Any) -> None:
        self.keys, self.values = dynamic.keys, dynamic.values
        dynamic.keys = dynamic.values = None
        self._slot = slot

    def update(self, key: Any, value: Any, *_: Any, **__: Any) -> tuple[Any, Any]:
        """Store the new token and return all keys and values; the layer's attention calls this."""
        self.keys.index_copy_(2, self._slot, key.to(self.keys.dtype))
        self.values.index_copy_(2, self._slot, value.to(self.values.dtype))
        return self.keys, self.values

    def widen(self, width: int) -> None:
        self.keys = _widened(self.keys, 2, width)
        self.values = _widened(self.values, 2, width)

    def keep(self, sequences: Any) -> None:
        self.keys = self.keys[sequences]
        self.values = self.values[sequences]


def free_memory() -> None:
    """Release unused GPU memory."""
    with _CAPTURING:
        _torch().cuda.empty_cache()


def supports_static_cache(model: Any, cache: Any) -> bool:
    """Whether a model uses transformers' standard attention and caches the keys and values of all tokens."""
    kinds = {type(layer).__name__ for layer in cache.layers}
    return kinds == {"DynamicLayer"} and model.config._attn_implementation in ("sdpa", hf_tuning.NAME)


def _widened(values: Any, dimension: int, width: int) -> Any:
    shape = list(values.shape)
    old, shape[dimension] = shape[dimension], width
    wider = values.new_zeros(shape)
    wider.narrow(dimension, 0, old).copy_(values)
    return wider


def _torch() -> Any:
    return importlib.import_module("torch")
