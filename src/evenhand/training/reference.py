"""The reference: the policy as it was before training, frozen; a copy of it or, with adapters, the same model."""

from __future__ import annotations

import contextlib
import copy
from contextlib import AbstractContextManager
from typing import Any

from evenhand.training import models


def reference_of(actor: Any, lora: int | None) -> Any:
    """What has to be kept of an actor that is about to be trained; None: it can be had by its adapters off."""
    return models.frozen(copy.deepcopy(actor)) if lora is None else None


def as_reference(actor: Any, reference: Any) -> tuple[Any, AbstractContextManager[Any]]:
    """The model that is the reference, and what must be entered while it computes."""
    if reference is None:
        return actor, actor.disable_adapter()
    return reference, contextlib.nullcontext()
