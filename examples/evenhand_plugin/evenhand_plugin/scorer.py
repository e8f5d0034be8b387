"""A scorer: the share of capital letters."""

from collections.abc import Sequence

from evenhand import SCORERS, Scorer, Unscored


@SCORERS.register("shouting")
class Shouting(Scorer):
    """The share of letters that are capitals; no model is asked."""

    name = "shouting"
    version = "1"
    attributes = ("shouting",)

    async def score(
        self, texts: Sequence[str], contexts: Sequence[str] | None = None
    ) -> list[dict[str, float] | Unscored]:
        return [_share(text) for text in texts]


def _share(text: str) -> dict[str, float] | Unscored:
    letters = [each for each in text if each.isalpha()]
    if not letters:
        return Unscored("there are no letters", text)
    return {"shouting": sum(each.isupper() for each in letters) / len(letters)}
