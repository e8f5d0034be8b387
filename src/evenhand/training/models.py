"""Models to be trained: where they come from, which of their weights move, and how they are saved."""

from __future__ import annotations

import contextlib
import copy
import importlib
import importlib.util
import json
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evenhand.errors import MissingExtraError, UsageError
from evenhand.models import weights
from evenhand.models.hf.tuning import avoid_plans_per_shape
from evenhand.training import parallel
from evenhand.training.chat import MAX_LENGTH, Chat, prepared
from evenhand.training.options import Options
from evenhand.training.parallel import Team

ADAPTER = "adapter_config.json"
HEAD = "score"
"""What transformers calls the last layer of a classifier."""


def need_packages() -> None:
    """One sentence, before anything else, where the extra is not installed."""
    if any(importlib.util.find_spec(package) is None for package in ("torch", "transformers", "peft")):
        raise MissingExtraError("Training", "train")


@dataclass(frozen=True, slots=True)
class Machine:
    """Where to compute, in which precision, and with whom; weights that are trained stay float32."""

    device: str
    dtype: str
    team: Team = Team()

    @property
    def loads_to(self) -> str:
        """Where a model is made; one that will be spread may be too large for a single device."""
        return "cpu" if self.team.shards else self.device

    def autocast(self) -> AbstractContextManager[Any]:
        if self.dtype == "float32":
            return contextlib.nullcontext()
        torch: Any = importlib.import_module("torch")
        return torch.autocast(self.device.partition(":")[0], dtype=getattr(torch, self.dtype))


def machine(device: str | None = None, dtype: str | None = None, team: Team | None = None) -> Machine:
    """What is asked for, else a GPU with bfloat16 where there is one; in a team, the device that it gave."""
    torch: Any = importlib.import_module("torch")
    team = team or Team()
    device = team.device if team.size > 1 else device or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise UsageError(f"The device {device!r} cannot be used: {str(error).splitlines()[0]}") from None
    return Machine(device, dtype or ("float32" if device.startswith("cpu") else "bfloat16"), team)


def load_chat(
    name: str, model: Any, *, max_length: int = MAX_LENGTH, template: Path | None = None, pad: str | None = None
) -> Chat:
    """The tokenizer of a loaded model, ready to train with."""
    tokenizer = prepared(_from("AutoTokenizer", name), name, template=template, pad=pad)
    return Chat(tokenizer, _ends(model, tokenizer), min(max_length, context_of(model)))


def chat_of(options: Options, model: Any) -> Chat:
    """The tokenizer of the model that the options name."""
    return load_chat(
        options.model,
        model,
        max_length=options.max_length,
        template=options.chat_template,
        pad=options.pad_token,
    )


def load_policy(options: Options, at: Machine) -> Any:
    """The model that the options name, ready to be trained as they say."""
    if options.keep_adapter and isinstance(source := _source(options.model), Path) and source.is_file():
        raise UsageError(f"An adapter needs a base in a folder, and {source.name} is a GGUF file; merge it instead.")
    model = load_causal(options.model, at, trained=options.lora is None)
    return model if options.lora is None else with_adapters(model, options.lora)


def load_causal(name: str, at: Machine, *, trained: bool) -> Any:
    """A language model, with adapters merged; float32 where all its weights are to be trained."""
    torch: Any = importlib.import_module("torch")
    dtype = torch.float32 if trained else getattr(torch, at.dtype)
    folder = Path(name.removeprefix("hf/")).expanduser()
    if (folder / ADAPTER).is_file():
        peft: Any = importlib.import_module("peft")
        base = json.loads((folder / ADAPTER).read_text(encoding="utf-8"))["base_model_name_or_path"]
        model = load_causal(base, at, trained=trained)
        merged = peft.PeftModel.from_pretrained(model, folder).merge_and_unload()
        return merged.requires_grad_(True)  # peft froze what it adapted
    model = _from("AutoModelForCausalLM", name, dtype=dtype)
    if getattr(model.config, "quantization_config", None) is not None:
        model = _unquantized(model, dtype)
    return model.to(at.loads_to)  # in evaluation mode, without dropout: a step is then the same at every pass


def classifier_of(causal: Any, chat: Chat, seed: int) -> Any:
    """A classifier with one output and a new head, on the trunk of a language model."""
    torch: Any = importlib.import_module("torch")
    transformers: Any = importlib.import_module("transformers")
    config = copy.deepcopy(causal.config)
    config.num_labels = 1
    config.pad_token_id = chat.tokenizer.pad_token_id
    config.eos_token_id = sorted(chat.ends)  # a classifier has no generation config that would tell
    try:
        model = transformers.AutoModelForSequenceClassification.from_config(config, dtype=causal.dtype)
        model.base_model.load_state_dict(causal.base_model.state_dict())
    except (ValueError, RuntimeError) as error:
        raise UsageError(f"No reward model can be made of this kind of model: {str(error).splitlines()[0]}") from None
    drawn = torch.Generator().manual_seed(seed)
    weight = torch.randn(model.score.weight.shape, generator=drawn) / (model.score.in_features + 1) ** 0.5
    model.score.weight.data = weight  # drawn here, not by transformers: a seed gives the same head for years
    return model.to(causal.device).eval()


def load_classifier(name: str, at: Machine) -> Any:
    """A saved classifier; its head computes in float32, where close scores do not become equal."""
    torch: Any = importlib.import_module("torch")
    model = _from("AutoModelForSequenceClassification", name, dtype=getattr(torch, at.dtype))
    if model.config.num_labels != 1 or not hasattr(model, HEAD):
        raise UsageError(f"{name} holds no reward model; make one with `evenhand train reward`.")
    model.score.float()
    return model.to(at.loads_to).eval()


def with_adapters(model: Any, rank: int, *, head: str | None = None) -> Any:
    """A model of which only low-rank adapters (and a head) are trained."""
    peft: Any = importlib.import_module("peft")
    task = {"task_type": "SEQ_CLS", "modules_to_save": [head]} if head else {"task_type": "CAUSAL_LM"}
    settings = peft.LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear", **task)
    adapted = peft.get_peft_model(model, settings)
    for weight in trainable(adapted).values():
        weight.data = weight.data.float()  # small updates would be lost in bfloat16
    return adapted


def inner(model: Any) -> Any:
    """The transformers model inside; its layers carry the adapters, so it computes with them."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def trainable(model: Any, prefix: str = "") -> dict[str, Any]:
    return {prefix + name: each for name, each in model.named_parameters() if each.requires_grad}


def frozen(model: Any) -> Any:
    return model.requires_grad_(False).eval()


def arrange(model: Any, options: Options, at: Machine) -> None:
    """Make a model (if there is one) compute as the options and the team want it; from then on it is not copied."""
    if model is None:
        return
    if options.gradient_checkpointing:
        compute_again(model)
    classifier = inner(model)  # which is called by its parts
    parallel.spread(model, at.team, *((classifier.base_model, classifier.score) if hasattr(classifier, HEAD) else ()))


def save(model: Any, chat: Chat, folder: Path, at: Machine, *, keep_adapter: bool = False) -> None:
    """Weights as safetensors, with config and tokenizer, so that `hf/FOLDER` can use them at once."""
    torch: Any = importlib.import_module("torch")
    parallel.gather(model, at.team)
    if not at.team.is_main:
        return
    if not keep_adapter:
        model = model.merge_and_unload() if hasattr(model, "merge_and_unload") else model
        model = model.to(getattr(torch, at.dtype))
    model.save_pretrained(folder)
    chat.tokenizer.save_pretrained(folder)


def context_of(model: Any) -> int:
    return getattr(model.config.get_text_config(), "max_position_embeddings", None) or 1 << 30


def _ends(model: Any, tokenizer: Any) -> frozenset[int]:
    """The tokens that end a turn; a model may have several."""
    stated: Any = getattr(model, "generation_config", None)
    stated = (stated or model.config).eos_token_id
    ids: list[Any] = [*stated] if isinstance(stated, list) else [stated]
    return frozenset(i for i in (*ids, tokenizer.eos_token_id) if i is not None)


def _from(kind: str, name: str, **settings: Any) -> Any:
    """Something of transformers from a folder, a GGUF file or the hub."""
    transformers: Any = importlib.import_module("transformers")
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    avoid_plans_per_shape()
    source = _source(name)
    if isinstance(source, Path):
        settings |= {"gguf_file": source.name} if source.is_file() else {}
        source = str((source.parent if source.is_file() else source).resolve())
    try:
        return getattr(transformers, kind).from_pretrained(source, **settings)
    except (OSError, ValueError, KeyError, ImportError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise UsageError(f"transformers cannot load {name}: {reason}") from None


def _source(name: str) -> Path | str:
    if name.startswith("local/"):
        return weights.find(name.removeprefix("local/"))
    name = name.removeprefix("hf/")
    path = Path(name).expanduser()
    if path.is_dir() or path.is_file():
        return path
    if path.suffix == ".gguf" or name.count("/") != 1 or name.startswith((".", "/", "~")):
        raise UsageError(f"There is no model folder or GGUF file {path}; a model on the hub is named OWNER/NAME.")
    return name


def _unquantized(model: Any, dtype: Any) -> Any:
    """The same model as if it had never been quantized: transformers saves no model that came from a GGUF file."""
    transformers: Any = importlib.import_module("transformers")
    config: Any = model.config.__class__.from_dict(_without(model.config.to_dict(), "quantization_config"))
    plain = transformers.AutoModelForCausalLM.from_config(config, dtype=dtype)
    plain.load_state_dict(model.state_dict())
    plain.generation_config = model.generation_config
    return plain


def _without(values: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key != name}


def reference_of(actor: Any, lora: int | None) -> Any:
    """What has to be kept of an actor that is about to be trained; None: it can be had by its adapters off."""
    return frozen(copy.deepcopy(actor)) if lora is None else None


def as_reference(actor: Any, reference: Any) -> tuple[Any, AbstractContextManager[Any]]:
    """The model that is the reference, and what must be entered while it computes."""
    if reference is None:
        return actor, actor.disable_adapter()
    return reference, contextlib.nullcontext()


def compute_again(model: Any) -> None:
    """Keep only what goes into a layer, and compute the rest again for its gradients: less memory, more time.

    Not by transformers' own switch, which works in training mode alone; our models have their dropout off.
    """
    layers = parallel.layers_of(model)
    if not layers:
        raise UsageError(
            "This kind of model has no layers that can be computed again; leave out --gradient-checkpointing."
        )
    for layer in layers:
        layer.forward = _again(layer.forward)


def _again(forward: Any) -> Any:
    torch: Any = importlib.import_module("torch")
    checkpoint: Any = importlib.import_module("torch.utils.checkpoint").checkpoint

    def compute(*args: Any, **settings: Any) -> Any:
        if not torch.is_grad_enabled():
            return forward(*args, **settings)
        return checkpoint(forward, *args, use_reentrant=False, preserve_rng_state=False, **settings)

    return compute
