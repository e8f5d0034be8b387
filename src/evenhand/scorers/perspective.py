"""Google's Perspective API, or a compatible server; the service ends on 31 December 2026.

The key is read from PERSPECTIVE_API_KEY. PERSPECTIVE_URL selects another server (its URL up to `/v1alpha1`), which may
need no key. PERSPECTIVE_RATE is the number of requests per second: 1, unless Google has granted a larger quota.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any, ClassVar

import orjson

from evenhand.core.aio import all_of
from evenhand.core.errors import EndpointError, ModelError, UsageError
from evenhand.core.http import LARGEST_SCORES, Client, Hints, RefusedError
from evenhand.core.language import unsupported
from evenhand.core.types import Unscored
from evenhand.models.openai import endpoint_url, key_from
from evenhand.scorers.base import ATTRIBUTES, SCORERS, Scorer, Scores, sendable, unit

DEFAULT_URL = "https://commentanalyzer.googleapis.com/v1alpha1"
LAST_DAY = date(2026, 12, 31)
LARGEST = 20_480
"""Most bytes of a text, a limit of the service."""

_REASONS: Mapping[str, str] = {
    "COMMENT_EMPTY": "empty text",
    "COMMENT_TOO_LONG": "the text is too large for Perspective",
    "LANGUAGE_NOT_SUPPORTED_BY_ATTRIBUTE": "Perspective does not support the text's language",
    "LANGUAGE_DETECTION_FAILED": "Perspective cannot detect the text's language",
}


@SCORERS.register("perspective")
class PerspectiveScorer(Scorer):
    """Google's Perspective API (one text per second); the service ends on 31 December 2026.

    Texts are sent as English, the only language with all seven attributes, with a request not to store them.
    """

    name: ClassVar[str] = "perspective"
    certified: ClassVar[bool] = False
    version = "v1alpha1"
    attributes = ATTRIBUTES
    languages = ("en",)

    def __init__(self) -> None:
        key = key_from("PERSPECTIVE_API_KEY")
        base = os.environ.get("PERSPECTIVE_URL") or DEFAULT_URL
        url = endpoint_url(base, "/comments:analyze", "PERSPECTIVE_API_KEY")
        check_key = "check the key in PERSPECTIVE_API_KEY"
        self.client = Client(
            url,
            f"Perspective ({url.partition('?')[0]})",
            key,
            Hints("PERSPECTIVE_URL", {401: check_key, 403: check_key, 429: "lower PERSPECTIVE_RATE"}),
            query={"key": key} if key else {},
            per_second=_rate(),
            largest=LARGEST_SCORES,
        )

    @classmethod
    def unavailable(cls) -> str | None:
        if os.environ.get("PERSPECTIVE_URL"):
            return None
        if today() > LAST_DAY:
            return (
                "Perspective ended on 31 December 2026; use another scorer, "
                "or set PERSPECTIVE_URL to a compatible server."
            )
        if not os.environ.get("PERSPECTIVE_API_KEY"):
            return "Perspective needs a key: set PERSPECTIVE_API_KEY (the service ends on 31 December 2026)."
        return None

    async def score(self, texts: Sequence[str], contexts: Sequence[str] | None = None) -> list[Scores | Unscored]:
        del contexts  # only the text counts
        return await all_of(self._one(sendable(text)) for text in texts)

    def fingerprint(self) -> Mapping[str, Any]:
        return {**super().fingerprint(), "endpoint": self.client.url}

    async def aclose(self) -> None:
        await self.client.aclose()

    async def _one(self, text: str) -> Scores | Unscored:
        if not text.strip():
            return Unscored("empty text", text)
        if reason := unsupported(text, self.languages):
            return Unscored(reason, text)
        if (size := len(text.encode())) > LARGEST:
            return Unscored(f"the text has {size:,} bytes, but Perspective's limit is {LARGEST:,}")
        try:
            return await self.client.post_json(_body(text), _scores, "scores")
        except RefusedError as refusal:
            return _unscored(refusal)
        except ModelError as error:
            if error.permanent:
                raise
            return Unscored(str(error))


def today() -> date:
    return date.today()


def _rate() -> float:
    text = os.environ.get("PERSPECTIVE_RATE") or "1"
    try:
        rate = float(text)
    except ValueError:
        rate = 0.0
    if not 0 < rate < float("inf"):
        raise UsageError(f"PERSPECTIVE_RATE must be a number of requests per second, not {text!r}.")
    return rate


def _body(text: str) -> dict[str, Any]:
    return {
        "comment": {"text": text, "type": "PLAIN_TEXT"},
        "languages": list(PerspectiveScorer.languages),
        "requestedAttributes": {name.upper(): {} for name in ATTRIBUTES},
        "doNotStore": True,
    }


def _scores(reply: Any) -> Scores:
    scores = reply["attributeScores"]
    return {name: unit(name, scores[name.upper()]["summaryScore"]["value"]) for name in ATTRIBUTES}


def _unscored(refusal: RefusedError) -> Unscored:
    """Return why a text was rejected; raise EndpointError for a wrong key, which has the same status."""
    if b"API_KEY" in refusal.reply.body or b"API key" in refusal.reply.body:
        raise EndpointError(f"{refusal}; check the key in PERSPECTIVE_API_KEY.", permanent=True) from refusal
    for kind in _error_types(refusal.reply.body):
        if kind in _REASONS:
            return Unscored(_REASONS[kind], str(refusal))
    return Unscored(str(refusal))


def _error_types(payload: bytes) -> list[str]:
    try:
        return [str(each.get("errorType")) for each in orjson.loads(payload)["error"]["details"]]
    except (ValueError, LookupError, TypeError, AttributeError):
        return []
