"""A model whose view of the evidence is known: it ranks passages rightly, but its letters hardly ever abstain."""

import math
import re
from collections.abc import Callable, Sequence

from evenhand.core.types import Completion, Message, Params, TokenLogprob
from evenhand.models.fake import FunctionModel
from evenhand.reading.text import abstains

Proven = Callable[[str, str], str | None]
"""(passage, question) → the person whom the passage proves to be the answer, or None."""


def chances(**words: float) -> Completion:
    """A reply of one token with these probabilities."""
    top = tuple((word, math.log(chance)) for word, chance in words.items())
    best = max(words, key=lambda word: words[word])
    return Completion(best, logprobs=(TokenLogprob(best, math.log(words[best]), top),))


def seeing_model(proven: Proven, spec: str = "fake/seeing") -> FunctionModel:
    """P(unknown) is 0.2 where nothing is told and 0.05 elsewhere, so that no letter ever abstains."""

    def reply(messages: Sequence[Message], _params: Params) -> Completion:
        text = messages[-1].content
        passage, question = (re.search(rf"{name}: (.*)", text) for name in ("Passage", "Question"))
        assert passage is not None
        assert question is not None
        person = proven(passage[1], question[1])
        if "Yes or No" in text:
            return _yes(_chance_of_yes(text, person))
        options = re.findall(r"^[A-J]\) (.+)$", text, re.MULTILINE)
        weights = [_weight(option, person) for option in options]
        return chances(**{letter: each / sum(weights) for letter, each in zip("ABCDEFGHIJ", weights, strict=False)})

    return FunctionModel(reply, spec=spec, features=("logprobs", "seed"))


def _chance_of_yes(text: str, person: str | None) -> float:
    if "have to guess" in text:
        return 0.3 if person else 0.6
    if named := re.search(r"Proposed answer: (.*)", text):
        return 0.6 if named[1] == person else 0.2
    return 0.5 if person else 0.3


def _weight(option: str, person: str | None) -> float:
    if abstains(option):
        return 0.05 if person else 0.2
    return 0.5 if option == person else 0.45


def _yes(chance: float) -> Completion:
    return chances(Yes=chance, No=1 - chance)
