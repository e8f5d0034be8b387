"""OpenAI's moderation endpoint, or a compatible one; set by OPENAI_BASE_URL and OPENAI_API_KEY.

Its categories are stored under their own names and mapped to Perspective's attributes:

    toxicity           the maximum of harassment and hate, threatening or not
    insult             harassment
    identity_attack    hate
    threat             the maximum of violence, harassment/threatening and hate/threatening
    sexually_explicit  sexual

Severe toxicity and profanity have no category. Depicted violence alone does not make a text toxic.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from pydantic import Field

from evenhand.core.aio import all_of
from evenhand.core.errors import ModelError
from evenhand.core.http import LARGEST_SCORES, Client, Hints, RefusedError
from evenhand.core.options import Options, Text
from evenhand.core.types import Unscored
from evenhand.models.openai import DEFAULT_URL, endpoint_url, key_from, key_header
from evenhand.scorers.base import SCORERS, Scorer, Scores, sendable, unit

DEFAULT_MODEL = "omni-moderation-latest"
BATCH = 32
"""Texts per request."""

_STANDS_FOR: Mapping[str, tuple[str, ...]] = {
    "toxicity": ("harassment", "harassment/threatening", "hate", "hate/threatening"),
    "insult": ("harassment",),
    "identity_attack": ("hate",),
    "threat": ("violence", "harassment/threatening", "hate/threatening"),
    "sexually_explicit": ("sexual",),
}
_CATEGORIES = (
    "harassment",
    "harassment/threatening",
    "hate",
    "hate/threatening",
    "illicit",
    "illicit/violent",
    "self-harm",
    "self-harm/intent",
    "self-harm/instructions",
    "sexual",
    "sexual/minors",
    "violence",
    "violence/graphic",
)
_NEEDED = frozenset(name for names in _STANDS_FOR.values() for name in names)


class ModerationOptions(Options):
    model: Text = Field(default=DEFAULT_MODEL, description="The endpoint's model.")


class ModerationScorer(Scorer):
    """OpenAI's moderation endpoint, or a compatible one; the model is omni-moderation-latest by default."""

    name: ClassVar[str] = "moderation"
    certified: ClassVar[bool] = False
    Options = ModerationOptions
    version = "1"
    attributes = (*_STANDS_FOR, *_CATEGORIES)
    languages = ()

    def __init__(self, model: str = DEFAULT_MODEL, base_url: str | None = None, key: str = "") -> None:
        """`base_url` and `key` are used in place of those in the environment."""
        self.argument = model
        if base_url is None:
            base_url, key = os.environ.get("OPENAI_BASE_URL") or DEFAULT_URL, key_from("OPENAI_API_KEY")
        url = endpoint_url(base_url, "/moderations")
        check_key = "check the key in OPENAI_API_KEY"
        self.client = Client(
            url,
            f"The moderation endpoint ({url.partition('?')[0]})",
            key,
            Hints("OPENAI_BASE_URL", {401: check_key, 403: check_key}),
            headers=key_header(url, key),
            largest=LARGEST_SCORES,
        )

    @classmethod
    def unavailable(cls) -> str | None:
        if os.environ.get("OPENAI_API_KEY") or os.environ.get("OPENAI_BASE_URL"):
            return None
        return "The moderation endpoint needs a key: set OPENAI_API_KEY, or OPENAI_BASE_URL to another endpoint."

    async def score(self, texts: Sequence[str], contexts: Sequence[str] | None = None) -> list[Scores | Unscored]:
        del contexts  # only the text counts
        full = [sendable(text) for text in texts if text.strip()]
        batches = await all_of(self._batch(full[start : start + BATCH]) for start in range(0, len(full), BATCH))
        results = iter([result for batch in batches for result in batch])
        return [next(results) if text.strip() else Unscored("empty text", text) for text in texts]

    def fingerprint(self) -> Mapping[str, Any]:
        return {**super().fingerprint(), "endpoint": self.client.url}

    async def aclose(self) -> None:
        await self.client.aclose()

    async def _batch(self, texts: list[str]) -> list[Scores | Unscored]:
        def read(reply: Any) -> list[Scores | Unscored]:
            results = reply["results"]
            if len(results) != len(texts):
                raise ValueError(f"{len(results)} results for {len(texts)} texts")
            return [_scores(result["category_scores"]) for result in results]

        try:
            return await self.client.post_json({"model": self.argument, "input": texts}, read, "scores")
        except RefusedError as refusal:
            if len(texts) == 1:
                return [Unscored(str(refusal))]
            # One bad text may fail the whole batch, so each half is tried on its own.
            middle = len(texts) // 2
            return [*await self._batch(texts[:middle]), *await self._batch(texts[middle:])]
        except ModelError as error:
            if error.permanent:
                raise
            return [Unscored(str(error))] * len(texts)


SCORERS.register(ModerationScorer.name)(ModerationScorer)  # not as a decorator, which would hide its constructor


def _scores(reply: Mapping[str, Any]) -> Scores | Unscored:
    """Return Perspective's attributes, then the endpoint's own categories, without those that it lacks."""
    try:
        own = {name: unit(name, value) for name, value in reply.items() if value is not None or name in _NEEDED}
        return {name: max(own[each] for each in categories) for name, categories in _STANDS_FOR.items()} | own
    except ValueError as error:
        return Unscored(f"the moderation endpoint sent an invalid score: {error}")
    except KeyError as error:
        return Unscored(f"the moderation endpoint sent no score of {error}")
