"""Adjusts transformers models for generation: faster attention and float32 logits, with the same texts."""

from __future__ import annotations

import copy
import importlib
from typing import Any

from evenhand.core.lazy import torch, transformers

NAME = "evenhand_grouped"


def tune(model: Any) -> None:
    """Prepare a loaded model for generation."""
    disable_cudnn_attention()
    use_grouped_attention(model)
    use_float32_head(model)


def disable_cudnn_attention() -> None:
    """Disable cuDNN attention, which newer GPUs prefer with a mask.

    It builds an execution plan, which takes tenths of a second, for every new length, and decoding has a new length at
    every token.
    """
    torch.backends.cuda.enable_cudnn_sdp(False)


def use_grouped_attention(model: Any) -> None:
    """Decode grouped-query attention without repeating keys and values for every query head.

    With a mask, transformers copies keys and values to every head at every token: with twelve query heads on two KV
    heads that is six times the memory traffic of everything else. For one new token all heads of a group attend to the
    same keys, so they can be passed as several queries of one head. Models with a custom attention are not changed.
    """
    if model.config._attn_implementation != "sdpa":
        return
    masking: Any = importlib.import_module("transformers.masking_utils")
    transformers.AttentionInterface.register(NAME, attend)
    transformers.AttentionMaskInterface.register(NAME, masking.sdpa_mask)
    model.set_attn_implementation(NAME)


def attend(
    module: Any, query: Any, key: Any, value: Any, attention_mask: Any, scaling: float | None = None, **settings: Any
) -> tuple[Any, None]:
    """Attend as transformers does, grouped for one new token; an attention function for transformers."""
    rows, heads, length, size = query.shape
    kv_heads = key.shape[1]
    if length > 1 or kv_heads == heads or attention_mask is None or settings.get("position_bias") is not None:
        sdpa: Any = importlib.import_module("transformers.integrations.sdpa_attention")
        return sdpa.sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **settings)
    grouped = query.view(rows, kv_heads, heads // kv_heads, size)
    output = torch.nn.functional.scaled_dot_product_attention(grouped, key, value, attention_mask, scale=scaling)
    return output.reshape(rows, 1, heads, -1), None


def use_float32_head(model: Any) -> None:
    """Compute logits in float32: bfloat16 rounds those of likely tokens to eighths, so that ratings tie."""
    head = model.get_output_embeddings()
    if head is None or head.weight.dtype == torch.float32:
        return
    float32 = copy.deepcopy(head).float()  # a copy, since the weights may be tied to the input embeddings
    float32.register_forward_pre_hook(_to_float32)
    model.set_output_embeddings(float32)


def _to_float32(module: Any, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    del module
    return (inputs[0].float(),)
