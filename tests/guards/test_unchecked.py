"""Text that a client could get without a check: disguised, in another script, too long, or in another field."""

from collections.abc import Callable
from contextlib import aclosing
from typing import Any

import orjson
import pytest

from evenhand.core.errors import PlanError
from evenhand.guards.disguise import has_foreign_words, revealed
from evenhand.guards.guard import Guard
from evenhand.guards.policy import BLOCKED_TEXT, GuardPolicy
from evenhand.guards.types import Guarded
from evenhand.models.reasoning import ThoughtStream
from support.fixtures import Serve
from support.guarding import ASKED, CALLS, KIND, RUDE, TOOLS, calling, guard_of, streamed
from support.server import ChatServer, Reply, chat, completion, reply_with
from support.stardtox import Rule
from support.thinkers import MENTIONS

BODY = {"messages": ASKED}
FOREIGN = "Хлеб пекут из муки и воды."


def shifted(first: int, text: str) -> str:
    """The letters of a text as those of an alphabet that starts elsewhere in Unicode."""
    return "".join(chr(first + ord(each) - ord("A")) if each.isalpha() else each for each in text.upper())


DISGUISES: dict[str, Callable[[str], str]] = {
    "entities": lambda text: "".join(f"&#{ord(each)};" for each in text),
    "entities of entities": lambda text: "".join(f"&amp;#{ord(each)};" for each in text),
    "entities of entities of entities of entities": lambda text: "".join(
        f"&amp;amp;amp;#{ord(each)};" for each in text
    ),
    "entities, ten times": lambda text: "".join(f"&#38;{'amp;#x26;' * 4}amp;#{ord(each)};" for each in text),
    "hexadecimal entities": lambda text: "".join(f"&#x{ord(each):x};" for each in text),
    "circled": lambda text: shifted(0x24B6, text),
    "squared": lambda text: shifted(0x1F130, text),
    "white on black": lambda text: shifted(0x1F170, text),
    "flags": lambda text: shifted(0x1F1E6, text),
    "tags": lambda text: "".join(chr(0xE0000 + ord(each)) for each in text),
    "full width": lambda text: "".join(chr(ord(each) + 0xFEE0) if each.isalpha() else each for each in text),
    "bold": lambda text: shifted(0x1D400, text),
    "zero width": "\u200b".join,
    "soft hyphens": "\u00ad".join,
    "struck out": lambda text: "".join(f"{each}\u0336" for each in text),
    "Cyrillic look-alikes": lambda text: text.translate(str.maketrans("aeiopcyxs", "аеіорсухѕ")),
    "Greek look-alikes": lambda text: text.translate(str.maketrans("aiotu", "αιοτυ")),
    "right to left": lambda text: f"\u202e{text[::-1]}\u202c",
}


async def test_an_insult_is_found_between_pages_of_harmless_text(serve: Serve):
    page = "The committee met on Tuesday to talk about the library and the new roof of the school. " * 200
    text = f"{page}You are a stupid worthless idiot and everybody hates you. {page}"
    server = await serve(answer=lambda _: chat(text))
    async with guard_of(server, method="default", action="block") as guard:
        found = await answered(guard, stream=False)

    assert found.action == "blocked"


@pytest.mark.parametrize("disguise", DISGUISES.values(), ids=DISGUISES.keys())
@pytest.mark.parametrize("stream", [True, False])
async def test_disguised_text_is_checked(serve: Serve, disguise: Callable[[str], str], stream: bool):
    text = f"{KIND} {disguise(RUDE)}"
    server = await serve(answer=lambda body: streamed(text) if body.get("stream") else chat(text))
    async with guard_of(server, method="default", action="block") as guard:
        guard._scorers["builtin"] = plain_scorer()  # pyright: ignore[reportPrivateUsage]
        found = await answered(guard, stream=stream)

    assert found.action == "blocked"
    assert disguise(RUDE) not in found.text
    assert found.before[0].score == 1


@pytest.mark.parametrize("policy", ["revise", "flag", "block"])
@pytest.mark.parametrize(
    "more", ["", " VGhhbmsgeW91IGZvciB0aGUgbG92ZWx5IGZsb3dlcnMu"], ids=["alone", "with encoded English"]
)
async def test_an_answer_in_another_language_is_never_passed(serve: Serve, policy: Any, more: str):
    text = f"Ich finde, dass wir heute Abend noch einmal über das Haus und den Garten sprechen sollten.{more}"
    server = await serve(answer=lambda body: chat(text))
    async with guard_of(server, method="default", action=policy) as guard:
        found = await guard.respond(BODY)

    assert found.text == (BLOCKED_TEXT if policy == "block" else text)
    assert found.action == ("blocked" if policy == "block" else "unchecked")
    assert found.why == ("toxicity could not be checked: language de is not supported",)


ENGLISH = (
    "To bake bread at home, mix the flour with water and salt, knead it for ten minutes, and let it rest under cloth. "
    "Then heat the oven, shape a loaf, and bake it for forty minutes on a stone.\n\n"
)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    "more",
    [
        "Por cierto, el vecino de la casa grande es un hombre muy malo y nadie lo quiere.",
        "Übrigens ist der Nachbar im großen Haus ein ganz gemeiner Mensch, den niemand mag.",
        "Vo\u200bici ce que je pense de la maison et du jardin de mon voisin.",
    ],
    ids=["es", "de", "fr, with an invisible sign"],
)
async def test_a_sentence_in_another_language_is_not_passed_beside_english(serve: Serve, more: str, stream: bool):
    text = 4 * ENGLISH + more
    server = await serve(answer=lambda body: streamed(text) if body.get("stream") else chat(text))
    async with guard_of(server, method="default", action="block") as guard:
        found = await answered(guard, stream=stream)

    assert found.action == "blocked"
    assert "is not supported" in found.why[0]


async def test_names_quotes_and_terms_of_other_languages_pass(serve: Serve):
    text = (
        "The Länder of Germany have their own parliaments, and Baden-Württemberg is one of them. The café Les Deux "
        "Magots in Saint-Germain-des-Prés was dear to Simone de Beauvoir. Coq au vin takes two hours, and a crème "
        "brûlée one. She said 'c'est la vie' and went home to San José de los Remates."
    )
    server = await serve(chat(text))
    async with guard_of(server, method="default", action="block") as guard:
        assert (await guard(ASKED)).action == "passed"


@pytest.mark.parametrize("stream", [True, False])
async def test_unchecked_text_is_withheld_where_failing_text_is(serve: Serve, stream: bool):
    text = "Ich finde, dass wir heute Abend noch einmal über das Haus und den Garten sprechen sollten."
    server = await serve(answer=lambda body: streamed(text) if body.get("stream") else chat(text))
    async with guard_of(server, on_unrevised="block") as guard:
        found = await answered(guard, stream=stream)

    assert (found.action, text in found.text) == ("blocked", False)


async def test_a_stream_withholds_what_fails_also_where_the_whole_answer_is_needed(serve: Serve):
    text = f'{{"answer": "{RUDE}"}}'
    body = {**BODY, "response_format": {"type": "json_object"}}
    server = await serve(answer=lambda asked: streamed(text) if asked.get("stream") else chat(text))
    async with guard_of(server) as guard:
        whole, streamed_one = [await answered(guard, body, stream=stream) for stream in (False, True)]

    assert (whole.action, RUDE in whole.text) == ("unrevised", True)
    assert (streamed_one.action, RUDE in str(streamed_one.message)) == ("blocked", False)


def plain_scorer() -> Rule:
    """Knows one word in plain letters, and reads no other script."""
    scorer = Rule(lambda text: 1.0 if "stupid" in text.lower() else 0.0)
    scorer.latin_only = True
    return scorer


async def answered(guard: Guard, body: dict[str, Any] | None = None, *, stream: bool) -> Guarded:
    if not stream:
        return await guard.respond(body or BODY)
    async with aclosing(guard.stream(body or BODY)) as segments:
        found = [segment async for segment in segments]
    assert found[-1].final is not None
    return found[-1].final


@pytest.mark.parametrize(
    "text",
    ["Café, naïve, Ångström – “quoted” … 10 €", "👩\u200d🚀 ❤\ufe0f", "Tom & Jerry", "x < y && z", "", "42"],
)
def test_what_is_not_disguised_stays(text: str):
    assert revealed(text) == text
    assert not has_foreign_words(text)


@pytest.mark.parametrize(
    ("text", "foreign"),
    [
        ("The resistor has 10 kΩ, and ΔT is small.", False),
        ("The set ℝ and the angle α.", False),
        ("The word λόγος is Greek.", True),
        ("The angles α β γ, and then х = 2.", False),
        ("He said т ы и д и о т to me.", True),
        ("你 是 个 白 痴", True),
        ("He said ты.", True),
        ("idiѡt", True),
        ("Straße, łódź, Þór", False),
        ("¯\\_(ツ)_/¯", False),
    ],
)
def test_words_of_other_scripts(text: str, foreign: bool):
    assert has_foreign_words(text) is foreign


MIXED = f"{KIND} {KIND} {FOREIGN}"
"""Mostly English, so that the scorer gives it a score."""


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("action", "unchecked", "ends"),
    [
        ("block", None, "blocked"),
        ("flag", None, "unchecked"),
        ("revise", None, "unchecked"),
        ("block", "flag", "unchecked"),
        ("block", "pass", "unchecked"),
        ("revise", "block", "blocked"),
        ("flag", "block", "blocked"),
    ],
)
async def test_the_policy_says_what_becomes_of_unchecked_text(
    serve: Serve, action: str, unchecked: str | None, ends: str, stream: bool
):
    server = await serve(answer=lambda body: streamed(MIXED) if body.get("stream") else chat(MIXED))
    async with guard_of(server, method="default", action=action, unchecked=unchecked) as guard:
        found = await answered(guard, stream=stream)

    assert found.action == ends
    assert (FOREIGN in found.text) is (ends == "unchecked")
    assert any("script" in check.problem or "language ru" in check.problem for check in found.before)
    assert bool(found.why) is (unchecked != "pass")


async def test_a_streamed_answer_is_asked_for_again_unless_unchecked_text_may_pass(serve: Serve):
    server = await serve(streamed(MIXED), streamed(KIND))
    async with guard_of(server) as guard:
        revised = await answered(guard, stream=True)
    assert FOREIGN not in revised.text
    assert (revised.action, len(server.requests)) == ("revised", 2)

    server = await serve(streamed(MIXED), streamed(KIND))
    async with guard_of(server, unchecked="pass") as guard:
        passed = await answered(guard, stream=True)
    assert (passed.text, passed.action, len(server.requests)) == (MIXED, "unchecked", 1)


async def test_text_that_fails_and_cannot_be_checked_fails(serve: Serve):
    server = await serve(chat(f"{RUDE} {RUDE} {FOREIGN}"))
    async with guard_of(server, method="default", action="block", unchecked="pass") as guard:
        assert (await guard(ASKED)).action == "blocked"


async def test_a_text_is_checked_to_its_end(serve: Serve):
    server = await serve(chat(f"{KIND} " * 2_500 + RUDE))
    async with guard_of(server, method="default", action="block") as guard:
        assert (await guard(ASKED)).action == "blocked"


@pytest.mark.parametrize(
    "escaped",
    ["".join(f"\\u{ord(each):04x}" for each in RUDE), RUDE.replace(" ", "\\n"), RUDE.replace(" ", "\\t")],
    ids=["letters", "lines", "tabs"],
)
async def test_words_behind_json_escapes_are_checked(serve: Serve, escaped: str):
    server = await serve(chat(f'{{"answer": "{escaped}"}}'))
    async with guard_of(server, method="default", action="block") as guard:
        found = await guard(ASKED, response_format={"type": "json_object"})

    assert found.action == "blocked"


class TestTools:
    @pytest.mark.parametrize("stream", [True, False])
    @pytest.mark.parametrize(("action", "ends"), [("block", "blocked"), ("flag", "flagged"), ("revise", "unrevised")])
    async def test_texts_in_arguments_are_checked(self, serve: Serve, action: str, ends: str, stream: bool):
        server = await serve(answer=replying(called(to=["a"], body={"text": RUDE})))
        async with guard_of(server, method="default", action=action) as guard:
            found = await answered(guard, {**BODY, "tools": TOOLS}, stream=stream)

        assert found.action == ends
        assert (RUDE in str(found.message)) is (action != "block")

    @pytest.mark.parametrize("stream", [True, False])
    async def test_they_pass_where_the_policy_says_so_and_are_marked(self, serve: Serve, stream: bool):
        server = await serve(answer=replying(called(text=RUDE)))
        async with guard_of(server, method="default", action="block", tool_arguments="pass") as guard:
            found = await answered(guard, {**BODY, "tools": TOOLS}, stream=stream)

        assert (found.action, found.notes["tools"]) == ("unchecked", "tool calls are not checked")
        assert found.message["tool_calls"] == called(text=RUDE)

    @pytest.mark.parametrize(
        "call",
        [
            {"id": "c1", "type": "function", "function": {"name": RUDE, "arguments": "{}"}},
            {"id": RUDE, "type": "function", "function": {"name": "look_up", "arguments": "{}"}},
            {"id": "c1", "type": "function", "function": {"name": "look_up", "arguments": f"no JSON: {RUDE}"}},
            {"id": "c1", "type": "function", "function": {"name": "look_up", "arguments": {"text": RUDE}}},
            {"id": "c1", "type": "function", "function": {"name": "look_up", "arguments": f'{{"{RUDE}": 1}}'}},
            {"id": "c1", "type": "custom", "custom": {"name": "look_up", "input": RUDE}},
        ],
        ids=["name", "id", "no JSON", "an object", "a key", "a custom tool"],
    )
    async def test_every_part_of_a_call_is_checked(self, serve: Serve, call: dict[str, Any]):
        server = await serve(reply_with(completion(None, finish="tool_calls", tool_calls=[call])))
        async with guard_of(server, method="default", action="block") as guard:
            found = await guard(ASKED, tools=TOOLS)

        assert (found.text, found.action) == (BLOCKED_TEXT, "blocked")

    async def test_calls_beside_words_are_checked(self, serve: Serve):
        server = await serve(reply_with(completion(KIND, finish="tool_calls", tool_calls=called(text=RUDE))))
        async with guard_of(server, action="block") as guard:
            assert (await guard(ASKED, tools=TOOLS)).action == "blocked"

    async def test_calls_of_a_revision_are_left_out(self, serve: Serve):
        again = reply_with(completion(KIND, finish="tool_calls", tool_calls=called(text=RUDE)))
        server = await serve(chat(RUDE), again)
        async with guard_of(server, action="block") as guard:
            found = await guard(ASKED, tools=TOOLS)

        assert found.message == {"role": "assistant", "content": KIND}

    async def test_a_streamed_call_that_fails_is_asked_for_again_in_words(self, serve: Serve):
        calls = replying(called(text=RUDE))
        server = await serve(answer=lambda asked: streamed(KIND) if "faults" in str(asked) else calls(asked))
        async with guard_of(server) as guard:
            found = await answered(guard, {**BODY, "tools": TOOLS}, stream=True)

        assert (found.text, found.action) == (KIND, "revised")
        assert "tool_calls" not in found.message
        assert server.bodies[1]["tool_choice"] == "none"

    async def test_harmless_arguments_pass(self, serve: Serve):
        calls = called(city="Paris", days=3)
        server = await serve(reply_with(completion(None, finish="tool_calls", tool_calls=calls)))
        async with guard_of(server, action="block") as guard:
            found = await guard(ASKED, tools=TOOLS)

        assert (found.action, found.message["tool_calls"]) == ("passed", calls)


def called(**arguments: Any) -> list[dict[str, Any]]:
    return [{**CALLS[0], "function": {"name": "look_up", "arguments": orjson.dumps(arguments).decode()}}]


def replying(calls: list[dict[str, Any]]) -> Callable[[dict[str, Any]], Reply]:
    """The calls, whole or in two pieces."""
    whole = calls[0]["function"]["arguments"]
    pieces = [
        {"index": 0, **calls[0], "function": {"name": "look_up", "arguments": whole[:12]}},
        {"index": 0, "function": {"arguments": whole[12:]}},
    ]
    split = streamed(calls=pieces, finish="tool_calls")
    body = completion(None, finish="tool_calls", tool_calls=calls)
    return lambda asked: split if asked.get("stream") else reply_with(body)


REFUSED = [None, KIND]


@pytest.mark.parametrize("text", REFUSED)
async def test_a_refusal_beside_words_is_checked(serve: Serve, text: str | None):
    server = await serve(reply_with(completion(text, refusal=RUDE)))
    async with guard_of(server, action="block") as guard:
        found = await guard(ASKED)

    assert found.action == "blocked"
    assert RUDE not in str(found.message)


class TestThoughts:
    @pytest.mark.parametrize(
        ("text", "answer"),
        [
            (f"<think>{RUDE}</think>\n\n{KIND}", KIND),
            (f"\n<THINKING>{RUDE}</THINKING>{KIND}", KIND),
            (f"[THINK]{RUDE}[/THINK]{KIND}", KIND),
            (f"◁think▷{RUDE}◁/think▷{KIND}", KIND),
            (f"<think>{RUDE}</think><think>{RUDE}</think>{KIND}", KIND),
            (f"<|channel|>analysis<|message|>{RUDE}<|end|><|start|>assistant<|channel|>final<|message|>{KIND}", KIND),
            (f"analysis{RUDE}assistantfinal{KIND}", KIND),
            (f"<think>{RUDE}", ""),
            (KIND, KIND),
            ("analysis of bread", "analysis of bread"),
            ("<b>bold</b>", "<b>bold</b>"),
            ("<", "<"),
            ("1 < 2", "1 < 2"),
        ],
    )
    @pytest.mark.parametrize("size", [1, 3, 1000])
    def test_they_are_removed_from_pieces_of_any_size(self, text: str, answer: str, size: int):
        stream = ThoughtStream()

        found = [stream.feed(text[start : start + size]) for start in range(0, len(text), size)]

        assert "".join(found) + stream.rest() == answer

    async def test_a_streamed_answer_comes_without_them(self, serve: Serve):
        server = await serve(streamed("<thi", f"nk>{RUDE}</th", f"ink>\n\n{KIND}"))
        async with guard_of(server, action="block") as guard:
            found = await answered(guard, stream=True)

        assert (found.text, found.action, found.first) == (KIND, "passed", KIND)

    @pytest.mark.parametrize("text", MENTIONS)
    @pytest.mark.parametrize("stream", [False, True])
    async def test_an_answer_that_mentions_a_tag_stays_whole(self, serve: Serve, text: str, stream: bool):
        async with guard_of(await serve(streamed(text) if stream else chat(text)), action="flag") as guard:
            found = await answered(guard, stream=stream)

        assert (found.text, found.action) == (text, "passed")

    async def test_a_thought_without_an_end_leaves_no_answer(self, serve: Serve):
        server = await serve(streamed("<think>", RUDE, finish="length"))
        async with guard_of(server, action="block") as guard:
            found = await answered(guard, stream=True)

        assert (found.text, found.finish) == ("", "length")


@pytest.mark.parametrize("fields", [{"unchecked": "hide"}, {"tool_arguments": "maybe"}])
def test_a_policy_with_other_words_is_refused(fields: dict[str, Any]):
    with pytest.raises(PlanError, match="pass"):
        GuardPolicy(**fields)


async def test_calls_with_empty_arguments_need_no_judge(serve: Serve):
    server: ChatServer = await serve(calling())
    async with guard_of(server, method="default", action="block", evaluators=("bias",)) as guard:
        found = await guard(ASKED, tools=TOOLS)

    assert (found.action, len(server.requests)) == ("passed", 1)
