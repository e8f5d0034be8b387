"""A batch of texts that is being written, token by token: from the latest tokens of all lines to the next logits.

A step of a small model is hundreds of small operations, and a processor takes ten times as long to order them as a GPU
to do them. So on a GPU a step is recorded once and then played again, as one order. What is recorded has fixed shapes:
keys and values lie in memory that is set apart for the tokens to come, and what is not written yet is masked.
"""

from __future__ import annotations

import importlib
import logging
import threading
from typing import Any, Protocol

from evenhand.models.hf import tuning as hf_tuning

_AHEAD = 256
"""The most tokens that memory is set apart for at a time."""
_ALIGNED = 16
"""Widths that attention need not pad."""

_ALONE = threading.Lock()
"""Held while a model of this process records: others that free memory then would break it."""

log = logging.getLogger(__name__)


class Steps(Protocol):
    """Where a batch stands."""

    full: float
    """The share of lines in use below which it pays to take out the others."""

    def next(self, ids: Any) -> Any:
        """The logits (lines × vocabulary, float32) after one more token in each line (lines × 1)."""
        ...

    def keep(self, lines: Any) -> None:
        """Go on with these lines alone, in this order; one may be named several times."""
        ...


def steps(model: Any, cache: Any, mask: Any, positions: Any, *, room: int, most: int, recorded: bool = True) -> Steps:
    """The steps that follow prompts that were read; `room` is the model's context, `most` how many steps there may be.

    A model that remembers something else than all keys and values gets steps that grow. On a GPU fixed ones are
    `recorded`, unless several processes compute them together.
    """
    if can_be_fixed(model, cache):
        return FixedSteps(model, cache, mask, positions, room=room, most=most, recorded=recorded and mask.is_cuda)
    return GrowingSteps(model, cache, mask, positions, room=room)


class GrowingSteps:
    """Everything as transformers has it: what is remembered is copied to a longer place at every token."""

    full = 0.75

    def __init__(self, model: Any, cache: Any, mask: Any, positions: Any, *, room: int) -> None:
        self._model, self._cache, self._mask, self._room = model, cache, mask, room
        self._positions = positions[:, -1:]

    def next(self, ids: Any) -> Any:
        torch = _torch()
        self._mask = torch.cat([self._mask, self._mask.new_ones(len(self._mask), 1)], dim=1)
        self._positions = (self._positions + 1).clamp(max=self._room - 1)
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

    def keep(self, lines: Any) -> None:
        self._cache.batch_select_indices(lines)
        self._mask, self._positions = self._mask[lines], self._positions[lines]


class FixedSteps:
    """Fixed shapes; where steps are recorded, the first one in each shape is computed as ever, the second recorded."""

    full = 0.5

    def __init__(
        self, model: Any, cache: Any, mask: Any, positions: Any, *, room: int, most: int, recorded: bool = False
    ) -> None:
        torch = _torch()
        self._model, self._cache, self._room, self._left = model, cache, room, most
        self._written = mask.shape[1]
        self._seen = mask.bool()[:, None, None, :]
        self._positions = positions[:, -1:].clone()
        self._ids = torch.zeros_like(self._positions)
        self._place = torch.tensor([self._written], device=mask.device)
        cache.layers = [_FixedLayer(layer, self._place) for layer in cache.layers]
        self._recordable = recorded
        self._widen()

    def next(self, ids: Any) -> Any:
        if self._written == self._seen.shape[-1]:
            self._widen()
        self._ids.copy_(ids)
        if self._recording is not None:
            self._recording.replay()
        elif self._warm and self._recordable:
            self._record()
        else:
            self._logits = self._step()
            self._warm = True
        self._written += 1
        self._left -= 1
        return self._logits

    def keep(self, lines: Any) -> None:
        for layer in self._cache.layers:
            layer.keep(lines)
        self._seen, self._positions, self._ids = self._seen[lines], self._positions[lines], self._ids[lines]
        self._forget()

    def _widen(self) -> None:
        """Set memory apart for the tokens to come."""
        ahead = max(1, min(self._left, _AHEAD))
        width = -(-(self._written + ahead) // _ALIGNED) * _ALIGNED
        for layer in self._cache.layers:
            layer.widen(width)
        self._seen = _widened(self._seen, -1, width)
        self._forget()

    def _step(self) -> Any:
        """One step, all of it on the device: nothing here may depend on a value that the processor would wait for."""
        self._positions.add_(1).clamp_(max=self._room - 1)
        self._seen.index_fill_(-1, self._place, True)
        output = self._model(
            input_ids=self._ids,
            attention_mask=self._seen,
            position_ids=self._positions,
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=1,
        )
        self._place.add_(1)
        return output.logits[:, -1].float()

    def _record(self) -> None:
        """Record a step and play it; where that fails, steps go on one operation at a time, with the same results."""
        torch = _torch()
        recording = torch.cuda.CUDAGraph()
        ours = torch.cuda.stream(torch.cuda.current_stream())  # where a failed recording may not leave this thread
        try:
            with _ALONE, ours, torch.cuda.graph(recording, capture_error_mode="thread_local"):
                logits = self._step()
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            log.warning("A step could not be recorded, so the next ones are slower: %s", str(error).partition("\n")[0])
            self._recordable = False
            self._logits = self._step()
            return
        self._recording, self._logits = recording, logits
        recording.replay()

    def _forget(self) -> None:
        """The shapes are others now."""
        self._recording: Any = None
        self._logits: Any = None
        self._warm = False


class _FixedLayer:
    """The keys and values of one layer, with room for more; in the place of one that grows."""

    def __init__(self, grown: Any, place: Any) -> None:
        self.keys, self.values = grown.keys, grown.values
        grown.keys = grown.values = None
        self._place = place

    def update(self, key: Any, value: Any, *_: Any, **__: Any) -> tuple[Any, Any]:
        """Called by the layer's attention: note the new token, and return all."""
        self.keys.index_copy_(2, self._place, key.to(self.keys.dtype))
        self.values.index_copy_(2, self._place, value.to(self.values.dtype))
        return self.keys, self.values

    def widen(self, width: int) -> None:
        self.keys = _widened(self.keys, 2, width)
        self.values = _widened(self.values, 2, width)

    def keep(self, lines: Any) -> None:
        self.keys = self.keys[lines]
        self.values = self.values[lines]


def free_memory() -> None:
    """Give back the memory of the GPU that is not in use."""
    with _ALONE:
        _torch().cuda.empty_cache()


def can_be_fixed(model: Any, cache: Any) -> bool:
    """Whether a model attends as transformers' usual ones do, and remembers all keys and values of all tokens."""
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
