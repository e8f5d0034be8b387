"""The scorer `cascade`: `neural` reads what `builtin` finds suspicious, and nothing else.

Most texts are clean, and `builtin` takes a hundredth of the time. A text keeps its scores if they are low for the text
and for what it answers. Such scores are below every limit, so only `neural` can flag a text. It misses what `neural`
alone would find in words that look harmless; docs/results/scorer-card.md says how much.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from evenhand.core.types import Unscored
from evenhand.scorers.base import ATTRIBUTES, SCORERS, Scorer, Scores
from evenhand.scorers.builtin import BuiltinScorer
from evenhand.scorers.neural import LONGEST, NeuralScorer

SUSPICIOUS = 0.3
"""The score of `builtin` from which `neural` reads a text."""
_LOOKED_AT = ("toxicity", "identity_attack")


@SCORERS.register("cascade")
class CascadeScorer(Scorer):
    """`neural` for what `builtin` finds suspicious: fewer false alarms and misses than `builtin` alone."""

    name: ClassVar[str] = "cascade"
    attributes = ATTRIBUTES
    latin_only = True
    reads_beginnings: ClassVar[bool] = NeuralScorer.reads_beginnings

    def __init__(self) -> None:
        self._quick, self._exact = BuiltinScorer(), NeuralScorer()
        self.version = f"{self._quick.version}-{self._exact.version}"
        self.limits = {
            name: {percent: max(limit, SUSPICIOUS) for percent, limit in self._exact.limits[name].items()}
            for name in _LOOKED_AT
        }

    @classmethod
    def unavailable(cls) -> str | None:
        return NeuralScorer.unavailable()

    async def score(self, texts: Sequence[str], contexts: Sequence[str] | None = None) -> list[Scores | Unscored]:
        found = await self._quick.score(texts)
        before = await self._suspicious(contexts or ())
        read = [
            place
            for place, scores in enumerate(found)
            if _is_suspicious(scores) or (contexts is not None and contexts[place] in before)
        ]
        if read:
            asked = None if contexts is None else [contexts[place] for place in read]
            exact = await self._exact.score([texts[place] for place in read], asked)
            for place, scores in zip(read, exact, strict=True):
                found[place] = scores if isinstance(scores, Unscored) else {name: scores[name] for name in ATTRIBUTES}
        return found

    async def _suspicious(self, contexts: Iterable[str]) -> set[str]:
        """Return the contexts that are suspicious themselves: harm may be in the words that answer them."""
        given = [each for each in dict.fromkeys(contexts) if each.strip()]
        scores = await self._quick.score([" ".join(each.split()[-LONGEST:]) for each in given]) if given else []
        return {each for each, said in zip(given, scores, strict=True) if _is_suspicious(said)}

    def fingerprint(self) -> Mapping[str, Any]:
        parts = {each.name: each.fingerprint() for each in (self._quick, self._exact)}
        return {**super().fingerprint(), **parts, "suspicious": SUSPICIOUS}


def _is_suspicious(scores: Scores | Unscored) -> bool:
    """Whether a score is high; what `builtin` cannot read, such as emoji, is suspicious, too."""
    return isinstance(scores, Unscored) or any(scores[name] >= SUSPICIOUS for name in _LOOKED_AT)
