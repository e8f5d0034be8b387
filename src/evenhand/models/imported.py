"""A model whose answers another tool has collected: `imported/NAME` names them, and cannot be asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from evenhand.core.errors import UsageError
from evenhand.core.types import Generation, Message, Params
from evenhand.models.base import PROVIDERS, Model, ModelOptions

_ABOUT = ("file", "sha256", "format", "tokens")


@PROVIDERS.register("imported")
class ImportedModel(Model):
    """Answers from a file; `file`, `sha256`, `format` and `tokens` say from which."""

    free = True
    fixed = True
    takes = frozenset(_ABOUT)

    def __init__(self, name: str, options: ModelOptions) -> None:
        self.spec = f"imported/{name}"
        self._about = {key: str(options.extra.get(key, "")) for key in _ABOUT}

    async def generate(self, messages: Sequence[Message], params: Params) -> Generation:
        del messages, params
        raise UsageError(f"The answers of {self.spec} were imported, so it cannot be asked; name a model to call.")

    def fingerprint(self) -> Mapping[str, Any]:
        return {"spec": self.spec, **self._about}

    def caveats(self) -> Sequence[str]:
        about = self._about
        return [
            f"The answers of {self.spec} were imported from {about['file']} ({about['format']}, SHA-256 "
            f"{about['sha256'][:16]}…): Evenhand did not ask the model, and no calls were recorded"
        ]

    def notes(self) -> Sequence[str]:
        tokens = self._about["tokens"]
        return [f"The file of {self.spec} reports {int(tokens):,} tokens"] if tokens.isdigit() and int(tokens) else []
