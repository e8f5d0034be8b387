"""Attention of one new token for models whose heads share keys and values, without copying those for every head.

Behind a mask transformers gives each head its own copy of the keys and values, at every token: for twelve heads that
share two, six times the memory traffic of all else. A new token sees the same past from every head of a group, so the
heads of a group can stand in the place of several queries.
"""

from __future__ import annotations

import importlib
from typing import Any

NAME = "evenhand_grouped"


def avoid_plans_per_shape() -> None:
    """Keep cuDNN out of attention: behind a mask newer GPUs prefer it, and it makes a plan, for tenths of a second, at
    every new length of text; a text that is being written has a new length at every token."""
    torch: Any = importlib.import_module("torch")
    torch.backends.cuda.enable_cudnn_sdp(False)


def use_grouped_attention(model: Any) -> None:
    """Have a loaded model attend so; one with an attention of its own is left as it is."""
    if model.config._attn_implementation != "sdpa":
        return
    transformers: Any = importlib.import_module("transformers")
    masking: Any = importlib.import_module("transformers.masking_utils")
    transformers.AttentionInterface.register(NAME, _attend)
    transformers.AttentionMaskInterface.register(NAME, masking.sdpa_mask)
    model.set_attn_implementation(NAME)


def _attend(
    module: Any, query: Any, key: Any, value: Any, attention_mask: Any, scaling: float | None = None, **settings: Any
) -> tuple[Any, None]:
    rows, heads, length, size = query.shape
    shared = key.shape[1]
    if length > 1 or shared == heads or attention_mask is None or settings.get("position_bias") is not None:
        sdpa: Any = importlib.import_module("transformers.integrations.sdpa_attention")
        return sdpa.sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **settings)
    torch: Any = importlib.import_module("torch")
    grouped = query.view(rows, shared, heads // shared, size)
    found = torch.nn.functional.scaled_dot_product_attention(grouped, key, value, attention_mask, scale=scaling)
    return found.reshape(rows, 1, heads, -1), None
