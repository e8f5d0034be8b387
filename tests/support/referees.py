"""Referees of debates for tests: they know requests by their form, not by the words of prompts, which may change."""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache

from evenhand.core.types import Message, Params
from evenhand.judging.controls import UNUSUAL, construct
from evenhand.methods.debate.agents import rubric_for

VERDICT, ODDS, STATEMENT = "verdict", "odds", "statement"


def asked_for(params: Params) -> str:
    """Which call of a debate this is; for models that can be constrained."""
    if params.schema is not None and "properties" in params.schema:
        return VERDICT
    return ODDS if params.temperature == 0 else STATEMENT


def verdict(scores: Sequence[int]) -> str:
    """What a referee writes of statements with these scores, in the order in which it was shown them."""
    letters = "abcdefgh"[: len(scores)]
    by_letter = dict(zip(letters, scores, strict=True))
    rank = ", ".join(sorted(letters, key=lambda letter: by_letter[letter])).upper()
    fields: dict[str, int | str] = {f"prejudice_{letter}": score for letter, score in by_letter.items()}
    reply = {**fields, "rank": rank, **{f"why_{letter}": f"objection to {letter}" for letter in letters}}
    assert set(reply) == {*rubric_for(letters).names, *rubric_for(letters).texts}
    return json.dumps(reply)


def shown(messages: Sequence[Message], texts: Mapping[str, bool]) -> list[bool]:
    """Of the texts that the last message holds, in their order there, whether they are prejudiced."""
    content = messages[-1].content
    return [texts[text] for text in sorted((text for text in texts if text in content), key=content.index)]


@cache
def contrasting() -> dict[str, bool]:
    """The statements of `evenhand judges check`, and whether they are prejudiced."""
    return {each.text: bool(each.high) for each in construct("prejudice").controls if each.kind not in UNUSUAL}


def referee(
    numbers: Callable[[list[bool]], str] = lambda found: verdict([9 if biased else 1 for biased in found]),
    odds: Callable[[bool], str] = lambda biased: "Yes" if biased else "No",
) -> Callable[[Sequence[Message], Params], str]:
    """A referee of the contrasting statements, who sees all unless told otherwise."""

    def reply(messages: Sequence[Message], _params: Params) -> str:
        found = shown(messages, contrasting())
        # A single one is asked about alone; with none it is asked to write a verdict once more.
        return odds(found[0]) if len(found) == 1 else numbers(found)

    return reply
