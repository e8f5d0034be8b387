"""Writes a LoRA adapter as a GGUF file, which llama.cpp applies to the base model: local/NAME?lora=FILE."""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evenhand.core.errors import DataError, UsageError
from evenhand.core.files import draft
from evenhand.training import models

_ARCHITECTURES: Mapping[str, str] = {"llama": "llama", "mistral": "llama", "qwen2": "qwen2", "qwen3": "qwen3"}
"""transformers' name of a kind of model → llama.cpp's."""
_PERMUTED = "llama"
"""llama.cpp stores the rotated halves of each head of queries and keys interleaved for this architecture."""
_WEIGHTS = "adapter_model.safetensors"
_NAME = re.compile(r"base_model\.model\.(.+)\.lora_([AB])\.weight")


def write_gguf_lora(adapter: Path, out: Path) -> None:
    """Convert the adapter in a folder (peft) to float16."""
    if not (adapter / models.ADAPTER).is_file():
        raise UsageError(f"{adapter} holds no adapter; train one with `evenhand train verifiable`.")
    gguf: Any = importlib.import_module("gguf")
    settings, tensors = models.adapter_settings(adapter), _tensors(adapter / _WEIGHTS)
    config = models.load_config(settings["base_model_name_or_path"])
    architecture = _ARCHITECTURES.get(config.model_type)
    if architecture is None:
        raise UsageError(
            f"Adapters of {config.model_type} models cannot be written as GGUF, only those of "
            f"{', '.join(_ARCHITECTURES)}; train with --merge and convert the model with llama.cpp's own converter."
        )
    kind = next(each for each, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture)
    names = gguf.get_tensor_name_map(kind, config.num_hidden_layers)
    with draft(out) as unfinished:
        writer = gguf.GGUFWriter(unfinished, architecture)
        writer.add_type(gguf.GGUFType.ADAPTER)
        writer.add_string(gguf.Keys.Adapter.TYPE, "lora")
        writer.add_float32(gguf.Keys.Adapter.LORA_ALPHA, float(settings["lora_alpha"]))
        for name, tensor in sorted(tensors.items()):
            match = _NAME.fullmatch(name)
            target = names.get_name(f"{match[1]}.weight", try_suffixes=(".weight",)) if match else None
            if match is None or target is None:
                raise UsageError(f"The adapter changes {name}, which GGUF has no name for.")
            permuted = architecture == _PERMUTED and match[2] == "B"
            values = _permuted(tensor, match[1], config) if permuted else tensor
            writer.add_tensor(f"{target}.lora_{match[2].lower()}", values.astype("float16"))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()


def _tensors(path: Path) -> Mapping[str, Any]:
    safetensors: Any = importlib.import_module("safetensors")
    try:
        return importlib.import_module("safetensors.numpy").load_file(path)
    except (OSError, safetensors.SafetensorError) as error:
        raise DataError(f"These weights cannot be read ({error}); copy them again.", file=path) from None


def _permuted(tensor: Any, layer: str, config: Any) -> Any:
    """Reorder the output rows (outputs × rank) of a query or key projection as llama.cpp has them."""
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}.get(layer.rpartition(".")[2])
    if heads is None:
        return tensor
    outputs, rank = tensor.shape
    return tensor.reshape(heads, 2, outputs // heads // 2, rank).swapaxes(1, 2).reshape(outputs, rank)
