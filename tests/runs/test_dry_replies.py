"""What the stand-in of a dry run replies: as long as it may be, since replies come back in later prompts."""

import orjson
import pytest

from evenhand.asking.reply import object_schema
from evenhand.core.types import Message, Params
from evenhand.models.base import estimate_tokens
from evenhand.runs.dry import _reply

SCORE = {"type": "integer", "minimum": 0, "maximum": 10}
TEXT = {"type": "string"}
ASKED = [Message("user", "Judge it.")]


@pytest.mark.parametrize("texts", [1, 2])
def test_reasons_take_all_the_tokens_that_a_reply_may(texts: int):
    schema = object_schema(score=SCORE, **{f"why{number}": TEXT for number in range(texts)})
    reply = _reply(ASKED, Params(max_tokens=200, schema=schema)).text

    assert orjson.loads(reply)["score"] == 0
    assert estimate_tokens(reply) == pytest.approx(250, abs=25)  # a little more than it may


def test_what_is_listed_or_limited_stays_short():
    schema = object_schema(groups={"type": "array", "items": TEXT, "minItems": 2}, label={**TEXT, "maxLength": 9})

    assert orjson.loads(_reply(ASKED, Params(max_tokens=200, schema=schema)).text) == {
        "groups": ["text", "text"],
        "label": "text text",
    }
