"""What is changed in models of transformers before they generate: faster attention, finer logits, the same texts."""

from __future__ import annotations

import copy
import importlib
from typing import Any

NAME = "evenhand_grouped"


def tune(model: Any) -> None:
    """Make a loaded model ready to generate."""
    avoid_plans_per_shape()
    use_grouped_attention(model)
    use_exact_head(model)


def avoid_plans_per_shape() -> None:
    """Keep cuDNN out of attention: behind a mask newer GPUs prefer it, and it makes a plan, for tenths of a second, at
    every new length of text; a text that is being written has a new length at every token."""
    torch: Any = importlib.import_module("torch")
    torch.backends.cuda.enable_cudnn_sdp(False)


def use_grouped_attention(model: Any) -> None:
    """Attend to the past from one new token without copying it for every head that shares its keys and values.

    Behind a mask transformers gives each head its own copy, at every token: for twelve heads that share two, six times
    the memory traffic of all else. A new token sees the same past from every head of a group, so the heads of a group
    can stand in the place of several queries. A model with an attention of its own is left as it is.
    """
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


def use_exact_head(model: Any) -> None:
    """Logits in float32: bfloat16 tells those of likely tokens apart in steps of an eighth only, so ratings tie."""
    torch: Any = importlib.import_module("torch")
    head = model.get_output_embeddings()
    if head is None or head.weight.dtype == torch.float32:
        return
    exact = copy.deepcopy(head).float()  # a copy, since the weights may be those of the input as well
    exact.register_forward_pre_hook(_in_float32)
    model.set_output_embeddings(exact)


def _in_float32(module: Any, given: tuple[Any, ...]) -> tuple[Any, ...]:
    del module
    return (given[0].float(),)
