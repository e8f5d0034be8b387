"""The paths of the API, Azure's forms of them, and what is said of a path that is not served. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches

ANSWERED = ("/v1/chat/completions", "/v1/responses", "/v1/messages", "/v1/completions", "/v1/embeddings")
"""Paths whose requests go to the model of a route."""
SERVED = (*ANSWERED, "/v1/models", "/v1/moderations", "/v1alpha1/comments:analyze")
_CALLS = "|".join(each.removeprefix("/v1") for each in ANSWERED)
_AZURE = re.compile(rf"/openai(?:/v1|/deployments/.+?)?({_CALLS}|/models)")
_LONGEST = 100


def endpoint_of(path: str) -> str:
    """Translate an Azure-style path to the path under /v1; return any other path unchanged."""
    azure = _AZURE.fullmatch(path)
    return f"/v1{azure[1]}" if azure else path


def not_served(path: str) -> str:
    """Return the message for an unknown path: how to change the base URL, or the nearest path, and all paths."""
    shown = f"{path[:_LONGEST]} is not served."
    if f"/v1{path}" in SERVED:
        return f"{shown} Add /v1 to the base URL."
    if path.removeprefix("/v1") in SERVED:
        return f"{shown} The base URL has /v1 twice."
    if path.startswith("/v1/responses/"):
        return f"{shown} Responses are not stored, so they cannot be fetched, continued or deleted."
    near = get_close_matches(path[:_LONGEST], SERVED, n=1, cutoff=0.8)
    return " ".join([shown, *(f"Did you mean {each}?" for each in near), f"This server has {', '.join(SERVED)}."])


def wrong_method(method: str, path: str, accepted: Iterable[str]) -> str:
    return f"{path[:_LONGEST]} accepts {', '.join(sorted(accepted))} requests only, not {method}."
