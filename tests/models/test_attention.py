"""Reading the attention of a transformers model: a tiny random one, made here."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evenhand.core.errors import UsageError
from evenhand.core.types import Message
from evenhand.models.hf.attention import AttentiveModel, _words, load_attentive
from support.tiny import TEMPLATE, make_model

QUESTION = [Message("user", "cat dog tree sun moon river cat")]


def test_words_begin_with_a_blank_or_a_line_and_special_tokens_stand_alone():
    pieces = [
        ("<s>", True),
        ("Un", False),
        ("fair", False),
        (" jud", False),
        ("ge", False),
        (".\n", False),
        ("So", False),
    ]
    read = [("".join(text for text, _ in pieces[: i + 1]), special) for i, (_, special) in enumerate(pieces)]

    assert _words(read) == ([0, 1, 3, 6], ("<s>", "Unfair", " judge.\n", "So"))


def test_a_character_of_several_tokens_is_not_torn():
    read = [("a", False), ("a \ufffd", False), ("a \ufffd", False), ("a é", False), ("a éb", False)]

    assert _words(read) == ([0, 1], ("a", " éb"))


@pytest.mark.parametrize("spec", ["local/builtin", "openai/gpt-4o-mini", "fake/A"])
def test_only_hf_models_show_their_attention(spec: str):
    with pytest.raises(UsageError, match="hf/ models only"):
        load_attentive(spec)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AttentiveModel]:
    pytest.importorskip("torch", reason="needs pip install 'evenhand[hf]'")
    pytest.importorskip("transformers", reason="needs pip install 'evenhand[hf]'")
    folder = tmp_path_factory.mktemp("tiny")
    make_model(folder)
    model = load_attentive(f"hf/{folder}")
    yield model
    asyncio.run(model.aclose())


def test_it_is_the_last_row_of_what_transformers_itself_gives(model: AttentiveModel):
    torch: Any = pytest.importorskip("torch")
    found = model.attention(QUESTION)

    ids = torch.tensor([model._encode(QUESTION)])
    with torch.inference_mode():
        own = model.model(input_ids=ids, output_attentions=True).attentions
    assert len(found.layers) == len(own) == 2
    for shares, layer in zip(found.layers, own, strict=True):
        assert shares == pytest.approx(layer[0, :, -1].mean(0).tolist(), abs=1e-6)
        assert sum(shares) == pytest.approx(1, abs=1e-5)
    assert "".join(found.words).split() == TEMPLATE_WORDS


TEMPLATE_WORDS = ["<user>", *QUESTION[0].content.split(), "<end>", "<assistant>"]


def test_a_part_of_the_prompt_gets_its_share(model: AttentiveModel):
    found = model.attention(QUESTION)

    share = found.on("dog tree")
    assert share == pytest.approx(sum(found.mean[2:4]), abs=1e-6)


def test_a_prompt_that_is_too_long_is_refused(model: AttentiveModel):
    with pytest.raises(UsageError, match="103 tokens, but"):
        model.attention([Message("user", "cat " * 100)])


def test_a_base_model_is_asked_without_a_template(tmp_path: Path):
    pytest.importorskip("torch", reason="needs pip install 'evenhand[hf]'")
    assert TEMPLATE
    make_model(tmp_path, template=None)

    with pytest.raises(UsageError, match="no chat template"):
        load_attentive(f"hf/{tmp_path}").attention(QUESTION)
