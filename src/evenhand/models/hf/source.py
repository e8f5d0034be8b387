"""Where a transformers model comes from: a folder, an adapter's folder, a GGUF file or the hub."""

from __future__ import annotations

import hashlib
import importlib
import json
import re
from functools import cached_property
from pathlib import Path
from typing import Any

from evenhand.core.errors import UsageError
from evenhand.models import weights

_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")


class Source:
    """The files of a model; nothing is read before it is needed."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.path = _local_path(name)

    @cached_property
    def gguf(self) -> Path | None:
        """The GGUF file with the weights: the path itself, or that of an adapter's base model."""
        if self.path is None or self.path.is_file():
            return self.path
        adapter = self.path / "adapter_config.json"
        base = json.loads(adapter.read_bytes())["base_model_name_or_path"] if adapter.is_file() else None
        if not base or (not base.startswith("local/") and not base.endswith(".gguf")):
            return None  # transformers loads other bases itself
        return weights.find(base.removeprefix("local/"))

    def load(self, kind: str, **settings: Any) -> Any:
        """Load a class of transformers by name."""
        transformers: Any = importlib.import_module("transformers")
        transformers.utils.logging.set_verbosity_error()
        source = self._name
        if self.path is not None:
            transformers.utils.logging.disable_progress_bar()
            source = str(self.path)
            if self.gguf is not None and (self.path.is_file() or kind != "AutoTokenizer"):
                source, settings["gguf_file"] = str(self.gguf.parent), self.gguf.name
        try:
            return getattr(transformers, kind).from_pretrained(source, **settings)
        except (OSError, ValueError, KeyError, ImportError) as error:
            reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            where = "" if self.path else "; there is no such folder here, and the hub may not be reachable"
            raise UsageError(f"transformers cannot load {self._name}{where}: {reason}") from None

    def load_causal(self, dtype: Any) -> Any:
        """Load the language model; an adapter is merged into the weights of a GGUF file."""
        model = self.load("AutoModelForCausalLM", dtype=dtype)
        if self.gguf is not None and self.gguf != self.path:
            peft: Any = importlib.import_module("peft")
            model = peft.PeftModel.from_pretrained(model, str(self.path)).merge_and_unload()
        return model


def _local_path(name: str) -> Path | None:
    """Return the folder or GGUF file of a name; None for a name on the hub."""
    path = Path(name).expanduser()
    if path.is_dir() or (path.is_file() and path.suffix == ".gguf"):
        return path
    if path.suffix == ".gguf" or not _HUB_NAME.fullmatch(name):
        raise UsageError(f"There is no model folder or GGUF file {path}; a model on the hub is named hf/OWNER/NAME.")
    return None


def content_sum(path: Path) -> str:
    """Return one checksum over all files of a model, so that retraining into the same folder makes another model."""
    files = [path] if path.is_file() else sorted(file for file in path.iterdir() if file.is_file())
    sums = "\n".join(f"{weights.file_sha256(file)}  {file.name}" for file in files)
    return hashlib.sha256(sums.encode()).hexdigest()
