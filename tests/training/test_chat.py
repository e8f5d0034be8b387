"""How conversations become tokens: what is masked, what is cut, how an answer ends, what pads."""

from pathlib import Path
from typing import Any

import pytest

from evenhand.core.errors import DataError, UsageError
from evenhand.core.types import Message
from evenhand.training.chat import Chat, prepare_tokenizer, truncated
from support.tiny import TEMPLATE, make_model

torch: Any = pytest.importorskip("torch", reason="needs pip install 'evenhand[train]'")
transformers: Any = pytest.importorskip("transformers", reason="needs pip install 'evenhand[train]'")

QUESTION = (Message("user", "cat dog"),)


def tokenizer(folder: Path, template: str | None = TEMPLATE) -> Any:
    make_model(folder, template=template)
    return transformers.AutoTokenizer.from_pretrained(folder)


@pytest.fixture(scope="module")
def chat(tmp_path_factory: pytest.TempPathFactory) -> Chat:
    return Chat(prepare_tokenizer(tokenizer(tmp_path_factory.mktemp("tiny")), "tiny"), frozenset({1}))


def words(chat: Chat, tokens: tuple[int, ...]) -> list[str]:
    return chat.tokenizer.convert_ids_to_tokens(tokens)


def test_an_answer_is_what_the_template_adds_up_to_its_end(chat: Chat):
    encoded = chat.encode(QUESTION, "sun moon")

    assert words(chat, encoded.prompt) == ["<user>", "cat", "dog", "<end>", "<assistant>"]
    assert words(chat, encoded.answer) == ["sun", "moon", "<end>"]
    assert chat.text(encoded.answer) == "sun moon"


def test_what_a_template_adds_after_the_end_is_left_out(tmp_path: Path):
    trailing = TEMPLATE.replace("<end> {% endfor %}", "<end> w0 {% endfor %}")
    chat = Chat(prepare_tokenizer(tokenizer(tmp_path, trailing), "tiny"), frozenset({1}))

    assert words(chat, chat.encode(QUESTION, "sun").answer) == ["sun", "<end>"]


def test_a_template_without_an_end_gets_one(tmp_path: Path):
    endless = TEMPLATE.replace("<end> {% endfor %}", "{% endfor %}")
    chat = Chat(prepare_tokenizer(tokenizer(tmp_path, endless), "tiny"), frozenset({1}))

    assert words(chat, chat.encode(QUESTION, "sun").answer) == ["sun", "<end>"]


@pytest.mark.parametrize(
    ("longest", "prompt", "answer"),
    [(6, (1, 2, 3), (4, 5)), (5, (1, 2, 3), (4, 5)), (4, (2, 3), (4, 5)), (2, (), (4, 5)), (1, (), (5,))],
)
def test_it_is_cut_from_the_left_and_never_at_the_end(longest: int, prompt: tuple[int, ...], answer: tuple[int, ...]):
    cut = truncated((1, 2, 3), (4, 5), longest)

    assert (cut.prompt, cut.answer) == (prompt, answer)


def test_an_opening_leaves_room_for_the_answer(chat: Chat):
    short = Chat(chat.tokenizer, chat.eos_ids, max_length=7)

    assert words(chat, short.encode_prompt(QUESTION, 4)) == ["dog", "<end>", "<assistant>"]


def test_rows_share_lines_and_only_answers_are_learned(chat: Chat):
    rows = [truncated((5,), (6, 1), 9), truncated((5, 7), (8, 9, 1), 9), truncated((4,), (1,), 9)]

    packed = chat.pack(rows, "cpu")

    assert packed.ids.tolist() == [[5, 7, 8, 9, 1], [5, 6, 1, 4, 1]]
    assert packed.positions.tolist() == [[0, 1, 2, 3, 4], [0, 1, 2, 0, 1]]
    assert packed.next.tolist() == [6, 1, 8, 9, 1, 1]
    assert packed.at.tolist() == [5, 6, 1, 2, 3, 8]
    assert packed.row.tolist() == [0, 0, 1, 1, 1, 2]
    assert packed.last.tolist() == [7, 4, 9]


def test_what_is_left_of_a_line_is_padded(chat: Chat):
    packed = chat.pack([truncated((5,), (6, 1), 9), truncated((5, 7), (8, 9, 1), 9)], "cpu")

    assert packed.ids.tolist() == [[5, 7, 8, 9, 1], [5, 6, 1, 0, 0]]
    assert packed.positions.tolist() == [[0, 1, 2, 3, 4], [0, 1, 2, 0, 1]]


def test_what_pads_never_ends_a_turn(chat: Chat):
    assert chat.tokenizer.pad_token == "<unk>"
    assert chat.tokenizer.pad_token_id != chat.tokenizer.eos_token_id


def test_a_padding_token_can_be_named(tmp_path: Path):
    assert prepare_tokenizer(tokenizer(tmp_path), "tiny", pad="w7").pad_token == "w7"
    for wrong in ("<end>", "absent"):
        with pytest.raises(UsageError, match="cannot pad tiny"):
            prepare_tokenizer(tokenizer(tmp_path), "tiny", pad=wrong)


def test_no_padding_token_is_one_sentence(tmp_path: Path):
    bare = tokenizer(tmp_path)
    bare.unk_token = None
    bare.pad_token = "<end>"
    with pytest.raises(UsageError, match=r"no padding token.*--pad-token"):
        prepare_tokenizer(bare, "tiny")


def test_no_chat_template_is_one_sentence(tmp_path: Path):
    with pytest.raises(UsageError, match=r"no chat template.*--chat-template FILE"):
        prepare_tokenizer(tokenizer(tmp_path, None), "tiny")


def test_a_template_can_be_given(tmp_path: Path):
    base = tokenizer(tmp_path, None)
    (tmp_path / "chat.jinja").write_text(TEMPLATE)

    assert prepare_tokenizer(base, "tiny", template=tmp_path / "chat.jinja").chat_template == TEMPLATE
    with pytest.raises(DataError, match="cannot be read"):
        prepare_tokenizer(base, "tiny", template=tmp_path / "absent.jinja")


def test_a_template_that_hides_where_answers_begin_is_refused(tmp_path: Path):
    odd = "{% if add_generation_prompt %}w1 {% endif %}" + TEMPLATE
    chat = Chat(prepare_tokenizer(tokenizer(tmp_path, odd), "tiny"), frozenset({1}))

    with pytest.raises(UsageError, match="cannot be separated"):
        chat.encode(QUESTION, "sun")


def test_what_a_template_refuses_is_one_sentence(chat: Chat):
    with pytest.raises(UsageError, match="one system"):
        chat.encode([*QUESTION, Message("system", "tree")], "sun")
