"""The models of a training: loading them, choosing which weights are trained, saving them."""

from __future__ import annotations

import contextlib
import copy
import importlib
import importlib.util
import json
import re
from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from evenhand.core.errors import DataError, MissingExtraError, UsageError
from evenhand.core.files import draft
from evenhand.core.lazy import peft, torch, transformers
from evenhand.models import weights
from evenhand.models.hf import ModelFiles, end_tokens
from evenhand.models.hf.tuning import disable_cudnn_attention
from evenhand.training import parallel
from evenhand.training.chat import MAX_LENGTH, Chat, prepare_tokenizer
from evenhand.training.options import FixedDataOptions, StageOptions
from evenhand.training.parallel import Team

ADAPTER = "adapter_config.json"
HEAD = "score"
"""The name of a classifier's last layer in transformers."""
HEADS = "reward_heads"
"""The entry of a config that tells the outputs of an ensemble from the classes of another classifier."""
_TRAINED, _REFERENCE = "default", "reference"
"""The names of adapters in peft: the one that is trained, and a frozen copy of it where there is one."""
_ARCHITECTURES: Mapping[str, str] = {"llama": "llama", "mistral": "llama", "qwen2": "qwen2", "qwen3": "qwen3"}
"""transformers' name of a kind of model → llama.cpp's."""
_PERMUTED = "llama"
"""llama.cpp stores the rotated halves of each head of queries and keys interleaved for this architecture."""
_WEIGHTS = "adapter_model.safetensors"
_NAME = re.compile(r"base_model\.model\.(.+)\.lora_([AB])\.weight")


def need_packages() -> None:
    """Raise MissingExtraError if the packages for training are not installed."""
    if any(importlib.util.find_spec(package) is None for package in ("torch", "transformers", "peft")):
        raise MissingExtraError("training", "train")


@dataclass(frozen=True, slots=True)
class Machine:
    """The device, the precision of the computation, and the team of processes. Trained weights are always float32."""

    device: str
    dtype: str
    team: Team = Team()

    @property
    def load_device(self) -> str:
        """Where models are loaded: the CPU if they will be sharded, since they may not fit on one device."""
        return "cpu" if self.team.shards else self.device

    def autocast(self) -> AbstractContextManager[object]:
        if self.dtype == "float32":
            return contextlib.nullcontext()
        return torch.autocast(self.device.partition(":")[0], dtype=getattr(torch, self.dtype))


def machine(device: str | None = None, dtype: str | None = None, team: Team | None = None) -> Machine:
    """Return the requested device and precision; by default a GPU with bfloat16, or the CPU with float32.

    In a team of several processes, the launcher decides the device.
    """
    team = team or Team()
    device = team.device if team.size > 1 else device or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise UsageError(f"The device {device!r} cannot be used: {str(error).splitlines()[0]}") from None
    if device.startswith("cuda:"):
        torch.cuda.set_device(device)  # CUDA graphs are captured on the current device
    return Machine(device, dtype or ("float32" if device.startswith("cpu") else "bfloat16"), team)


# Loading


def load_chat(
    name: str, model: Any, *, max_length: int = MAX_LENGTH, template: Path | None = None, pad: str | None = None
) -> Chat:
    """Load the tokenizer of a loaded model and prepare it for training."""
    tokenizer = prepare_tokenizer(_from_pretrained("AutoTokenizer", name), name, template=template, pad=pad)
    length = min(max_length, context_of(model))
    return Chat(tokenizer, end_tokens(model, tokenizer), length, shares_lines=_keeps_rows_apart(model))


def _keeps_rows_apart(model: Any) -> bool:
    """Return whether a row is read alike whatever stands before it in its line; not all architectures do that."""
    inner, trained = unwrapped(model).base_model, model.training
    positions = torch.tensor([[0, 1, 2, 0, 1, 2]], device=model.device)
    ids = torch.tensor([[1, 2, 3, 1, 2, 3], [3, 1, 1, 1, 2, 3]], device=model.device)
    inner.eval()
    with torch.no_grad(), torch.autocast(model.device.type, model.dtype, enabled=model.dtype != torch.float32):
        read = [inner(input_ids=row[None], position_ids=positions, use_cache=False)[0][0, 3:] for row in ids]
    model.train(trained)
    return torch.equal(*read)


def chat_of(options: StageOptions, model: Any) -> Chat:
    """Load the tokenizer of the model that the options name."""
    return load_chat(
        options.model,
        model,
        max_length=options.max_length,
        template=options.chat_template,
        pad=options.pad_token,
    )


def load_policy(options: StageOptions, at: Machine) -> Any:
    """Load the language model that the options name, with LoRA adapters if they ask for them."""
    model = load_causal(options.model, at, trained=options.lora is None)
    if options.lora is None:
        return model
    dropout = options.lora_dropout if isinstance(options, FixedDataOptions) else 0.0
    adapted = with_adapters(model, options.lora, options.lora_layers, dropout=dropout)
    if (source := _files(options.model).path) is not None and source.is_file():
        # transformers does not remember GGUF files; `local/builtin` also names the file on other machines.
        name = options.model if options.model.startswith("local/") else str(source)
        adapted.peft_config[_TRAINED].base_model_name_or_path = name
    return adapted


def load_adapted(folder: str, at: Machine) -> Any:
    """Load an adapter to go on training it, with a frozen copy of it as the reference."""
    base = load_causal(adapter_base(Path(folder)), at, trained=False)
    adapted = peft.PeftModel.from_pretrained(base, folder, adapter_name=_TRAINED, is_trainable=True)
    adapted.load_adapter(folder, adapter_name=_REFERENCE)
    adapted.set_adapter(_TRAINED)
    return adapted.eval()


def adapter_base(folder: Path) -> str:
    """Return the name of the model that an adapter belongs to."""
    return adapter_settings(folder)["base_model_name_or_path"]


def adapter_settings(folder: Path) -> dict[str, Any]:
    """Return the settings of an adapter, as peft wrote them."""
    try:
        settings: Any = json.loads((folder / ADAPTER).read_text(encoding="utf-8"))
        return {"base_model_name_or_path": str(settings["base_model_name_or_path"]), **settings}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"This is not the config of an adapter by peft ({error!r}).", file=folder / ADAPTER) from None


def check_there(name: str) -> None:
    """Raise UsageError if a model is neither here nor on the hub, which is asked once."""
    if _files(name).path is not None:
        return
    hub: Any = importlib.import_module("huggingface_hub")
    source = name.removeprefix("hf/")
    try:
        if not isinstance(hub.try_to_load_from_cache(source, "config.json"), str):
            hub.HfApi().model_info(source, timeout=10)
    except Exception as error:  # of httpx, of the hub, or a name that the hub does not allow
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise UsageError(f"There is no model {source} here, and the hub did not find it: {reason}") from None


def load_causal(name: str, at: Machine, *, trained: bool) -> Any:
    """Load a language model, with its adapter merged; in float32 if all its weights will be trained."""
    dtype = torch.float32 if trained else getattr(torch, at.dtype)
    folder = Path(name.removeprefix("hf/")).expanduser()
    if (folder / ADAPTER).is_file():
        model = load_causal(adapter_base(folder), at, trained=trained)
        merged = peft.PeftModel.from_pretrained(model, folder).merge_and_unload()
        return merged.requires_grad_(True)  # peft froze what it adapted
    model = _from_pretrained("AutoModelForCausalLM", name, dtype=dtype)
    if getattr(model.config, "quantization_config", None) is not None:
        model = _unquantized(model, dtype)
    return model.to(at.load_device)  # in evaluation mode: without dropout, all passes of a step agree


def classifier_of(causal: Any, chat: Chat, seed: int, *, heads: int = 1) -> Any:
    """Make a classifier with one output per head: the trunk of a language model and new heads."""
    config = copy.deepcopy(causal.config)
    config.num_labels = heads
    setattr(config, HEADS, heads)
    config.pad_token_id = chat.tokenizer.pad_token_id
    config.eos_token_id = sorted(chat.eos_ids)  # a classifier has no generation config to hold them
    try:
        with _without_initial_weights():
            model = transformers.AutoModelForSequenceClassification.from_config(config, dtype=causal.dtype)
        model.base_model.load_state_dict(causal.base_model.state_dict())
    except (ValueError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise UsageError(f"This kind of model cannot become a reward model: {reason}") from None
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(model.score.weight.shape, generator=generator) / (model.score.in_features + 1) ** 0.5
    model.score.weight.data = weight  # initialized here, so that other versions of transformers give the same head
    return model.to(causal.device).eval()


def load_classifier(name: str, at: Machine) -> Any:
    """Load a saved classifier. Its head computes in float32, because bfloat16 would make close scores equal."""
    model = _from_pretrained("AutoModelForSequenceClassification", name, dtype=getattr(torch, at.dtype))
    if model.config.num_labels != getattr(model.config, HEADS, 1) or not hasattr(model, HEAD):
        raise UsageError(f"{name} is not a reward model; make one with `evenhand train reward`.")
    model.score.float()
    return model.to(at.load_device).eval()


def with_adapters(
    model: Any, rank: int, layers: str | None = None, *, dropout: float = 0.0, head: str | None = None
) -> Any:
    """Add LoRA adapters to the linear layers of a model, or to some; only they, and a head if given, are trained."""
    task = {"task_type": "SEQ_CLS", "modules_to_save": [head]} if head else {"task_type": "CAUSAL_LM"}
    target = layers.split(",") if layers else "all-linear"
    settings = peft.LoraConfig(target_modules=target, r=rank, lora_alpha=2 * rank, lora_dropout=dropout, **task)
    try:
        adapted = peft.get_peft_model(model, settings)
    except ValueError:
        if layers is None:
            raise
        raise UsageError(f"The model has no layers called {layers}; see --lora-layers.") from None
    for weight in trainable(adapted).values():
        weight.data = weight.data.float()  # small updates would be lost in bfloat16
    return adapted.eval()


# Preparing


def unwrapped(model: Any) -> Any:
    """Return the transformers model inside a peft model; its layers still apply the adapters."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def _dropouts(model: Any) -> list[Any]:
    """Return the dropout of the adapters in a model or layer; empty where there is none."""
    layers = (each for each in model.modules() if hasattr(each, "lora_dropout"))
    return [each for layer in layers for each in layer.lora_dropout.values() if isinstance(each, torch.nn.Dropout)]


@contextlib.contextmanager
def adapter_dropout(model: Any) -> Generator[None]:
    """Turn the dropout of adapters on, for the passes that train; all others are without it."""
    dropouts = _dropouts(model)
    for each in dropouts:
        each.train()
    try:
        yield
    finally:
        for each in dropouts:
            each.eval()


def trainable(model: Any, prefix: str = "") -> dict[str, Any]:
    return {prefix + name: each for name, each in model.named_parameters() if each.requires_grad}


def frozen(model: Any) -> Any:
    return model.requires_grad_(False).eval()


def frozen_reference(policy: Any, lora: int | None) -> Any:
    """Copy a policy before it is trained; None with LoRA, where the policy with its adapters off is the reference."""
    return frozen(copy.deepcopy(policy)) if lora is None else None


@contextlib.contextmanager
def as_reference(policy: Any, reference: Any) -> Generator[Any]:
    """Give the reference model: a frozen copy of the policy or of its adapter, or the policy with its adapters off."""
    if reference is not None:
        yield reference
        return
    if _REFERENCE in policy.peft_config:
        policy.set_adapter(_REFERENCE)
        try:
            yield policy
        finally:
            policy.set_adapter(_TRAINED)
        return
    with policy.disable_adapter():
        yield policy


def prepare(model: Any, options: StageOptions, at: Machine) -> None:
    """Turn on gradient checkpointing and sharding as requested; afterwards the model must not be copied.

    A model of None is ignored.
    """
    if model is None:
        return
    for layer in model.modules():
        if hasattr(layer, "lora_A") and is_plain(layer) and not _dropouts(layer):
            layer.forward = partial(_adapted, layer)
        elif hasattr(model, "peft_config") and hasattr(layer, "variance_epsilon"):
            layer.forward = partial(_normalized, layer)
    if options.gradient_checkpointing:
        enable_gradient_checkpointing(model)
    classifier = unwrapped(model)  # its trunk and its head are called separately
    parallel.shard(model, at.team, *((classifier.base_model, classifier.score) if hasattr(classifier, HEAD) else ()))


def is_plain(linear: Any) -> bool:
    """Whether a layer is a matrix, or a matrix with LoRA adapters that can be added to it."""
    if not hasattr(linear, "get_delta_weight"):
        return type(linear) is torch.nn.Linear
    lora: Any = importlib.import_module("peft.tuners.lora")
    return (
        type(linear) is lora.Linear
        and type(linear.base_layer) is torch.nn.Linear
        and not linear.merged
        and not linear.lora_variant
        and all(each.bias is None for each in linear.lora_B.values())
    )


def _adapted(layer: Any, x: Any) -> Any:
    """Compute a plain layer with its active adapter as peft does, with fewer kernels."""
    base, [name] = layer.base_layer, layer.active_adapters
    if layer.disable_adapters:
        return base(x)
    gradients: Any = importlib.import_module("evenhand.training.gradients")  # it imports torch
    inner, outer = layer.lora_A[name].weight, layer.lora_B[name].weight
    return gradients.Adapted.apply(x.to(base.weight.dtype), base.weight, base.bias, inner, outer, layer.scaling[name])


def _normalized(layer: Any, x: Any) -> Any:
    """Compute the RMSNorm of Llama, Mistral and Qwen in one kernel instead of seven."""
    return torch.nn.functional.rms_norm(x, x.shape[-1:], layer.weight, layer.variance_epsilon)


def enable_gradient_checkpointing(model: Any) -> None:
    """Keep only the inputs of each layer and recompute its activations in the backward pass.

    transformers' own switch works in training mode only, and our models are in evaluation mode.
    """
    layers = parallel.layers_of(model)
    if not layers:
        raise UsageError("This kind of model has no layers that can be recomputed; remove --gradient-checkpointing.")
    for layer in layers:
        layer.forward = _recomputed(layer.forward, is_random=bool(_dropouts(layer)))


def _recomputed(forward: Any, *, is_random: bool) -> Any:
    checkpoint: Any = importlib.import_module("torch.utils.checkpoint").checkpoint

    def compute(*args: Any, **settings: Any) -> Any:
        if not torch.is_grad_enabled():
            return forward(*args, **settings)
        return checkpoint(forward, *args, use_reentrant=False, preserve_rng_state=is_random, **settings)

    return compute


# Saving


def save(model: Any, chat: Chat, folder: Path, at: Machine, *, keep_adapter: bool = False) -> None:
    """Save weights (safetensors), config and tokenizer, so that `hf/FOLDER` can use them at once."""
    parallel.unshard(model, at.team)
    if not at.team.is_main:
        return
    if not keep_adapter:
        model = model.merge_and_unload() if hasattr(model, "merge_and_unload") else model
        model = model.to(getattr(torch, at.dtype))
    # Otherwise peft asks the hub whether the vocabulary has changed.
    settings = {"selected_adapters": [_TRAINED], "save_embedding_layers": False} if keep_adapter else {}
    model.save_pretrained(folder, **settings)
    chat.tokenizer.save_pretrained(folder)


def write_gguf_lora(adapter: Path, out: Path) -> None:
    """Write the adapter in a folder (peft) as a GGUF file in float16, which llama.cpp applies: local/NAME?lora=FILE."""
    if not (adapter / ADAPTER).is_file():
        raise UsageError(f"{adapter} holds no adapter; train one with `evenhand train verifiable`.")
    gguf: Any = importlib.import_module("gguf")
    settings, tensors = adapter_settings(adapter), _tensors(adapter / _WEIGHTS)
    config = _from_pretrained("AutoConfig", settings["base_model_name_or_path"])
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


def check_room(chat: Chat, max_new_tokens: int) -> None:
    """Raise UsageError if sampled answers leave no room for a prompt."""
    if max_new_tokens >= chat.max_length:
        raise UsageError(f"The model takes {chat.max_length} tokens in all; choose a smaller --max-new-tokens.")


def context_of(model: Any) -> int:
    """Return the context length of a model in tokens."""
    return getattr(model.config.get_text_config(), "max_position_embeddings", None) or 1 << 30


def _from_pretrained(kind: str, name: str, **settings: Any) -> Any:
    """Load a transformers object from a folder, a GGUF file or the hub."""
    disable_cudnn_attention()
    return _files(name).load(kind, **settings)


def _files(name: str) -> ModelFiles:
    if name.startswith("local/"):
        if weights.lora_of(name.removeprefix("local/")) is not None:
            raise UsageError(f"{name} is trained already, as an adapter of other weights; start from local/builtin.")
        return ModelFiles(str(weights.find(name.removeprefix("local/")).resolve()))
    path = Path(name.removeprefix("hf/")).expanduser()
    return ModelFiles(str(path.resolve()) if path.exists() else name.removeprefix("hf/"))


def _unquantized(model: Any, dtype: Any) -> Any:
    """Rebuild a model from a GGUF file without its quantization; transformers could not save it otherwise."""
    config: Any = model.config.__class__.from_dict(_without(model.config.to_dict(), "quantization_config"))
    with _without_initial_weights():
        plain = transformers.AutoModelForCausalLM.from_config(config, dtype=dtype)
    plain.load_state_dict(model.state_dict())
    plain.generation_config = model.generation_config
    return plain


def _without_initial_weights() -> AbstractContextManager[object]:
    """Models made within it have no drawn weights, which take a minute to draw for 1.5 billion and are replaced."""
    return importlib.import_module("transformers.initialization").no_init_weights()


def _without(values: Mapping[str, object], name: str) -> dict[str, object]:
    return {key: value for key, value in values.items() if key != name}
