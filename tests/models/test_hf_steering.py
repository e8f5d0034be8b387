"""Steered generation on the tiny random model, against the formula computed by hand."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from evenhand.core.errors import ModelError
from evenhand.core.types import Message, Params, Steering
from evenhand.models.base import ModelOptions
from evenhand.models.hf import HFModel
from support.tiny import make_model

torch: Any = pytest.importorskip("torch", reason="needs pip install 'evenhand[hf]'")

PLAIN = [Message("user", "cat dog")]
TOXIC = tuple((Message("user", f"{words} cat dog"),) for words in ("sun moon", "tree", "river river tree w3"))
STEERING = Steering(TOXIC, decay=20.0, epsilon=0.05)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    make_model(folder)
    return folder


@pytest.fixture
async def model(folder: Path) -> AsyncIterator[HFModel]:
    async with HFModel(str(folder), ModelOptions(extra={"batch": 8})) as model:
        yield model


def by_hand(model: HFModel, tokens: list[int], steering: Steering) -> Any:
    """The next-token distribution after `tokens`, from whole prompts without a cache."""
    prompts = [model._encode(messages) + tokens for messages in (PLAIN, *steering.against)]
    p, *others = [model.next_token_logits([prompt])[0].double().softmax(-1) for prompt in prompts]
    q = torch.stack(others).max(0).values
    weight = torch.tensor([max(2.718281828459045 ** (-steering.decay * max(0.0, d)), steering.epsilon) for d in q - p])
    return p * weight / (p * weight).sum()


async def test_every_token_follows_the_formula(model: HFModel) -> None:
    params = Params(temperature=0, max_tokens=6, logprobs=40, steering=STEERING)
    (completion,) = (await model.generate(PLAIN, params)).completions
    assert completion.logprobs is not None
    tokens: list[int] = []
    for step in completion.logprobs:
        expected = by_hand(model, tokens, STEERING)
        said = dict(step.top)
        for token, probability in enumerate(expected.tolist()):
            if token > 4:  # words; the first five are special
                assert said[model._text([token])] == pytest.approx(float(torch.tensor(probability).log()), abs=1e-3)
        tokens.append(int(expected.argmax()))
        assert model._text(tokens[-1:]) == step.token


async def test_steering_changes_the_text_and_without_decay_it_does_not(model: HFModel) -> None:
    def params(steering: Steering | None) -> Params:
        return Params(temperature=1, top_p=0.9, seed=7, max_tokens=12, n=3, steering=steering)

    plain = await model.generate(PLAIN, params(None))
    idle = await model.generate(PLAIN, params(Steering(TOXIC, decay=0.0, epsilon=0.01)))
    steered = await model.generate(PLAIN, params(STEERING))
    assert [each.text for each in idle.completions] == [each.text for each in plain.completions]
    assert [each.text for each in steered.completions] != [each.text for each in plain.completions]


async def test_a_steered_row_is_the_same_alone_and_among_others(model: HFModel) -> None:
    requests = [
        (PLAIN, Params(temperature=1, top_p=0.9, seed=1, max_tokens=9, steering=STEERING)),
        ([Message("user", "moon")], Params(temperature=1, seed=2, max_tokens=5)),
        (PLAIN, Params(max_tokens=4)),
        (PLAIN, Params(temperature=1, seed=3, max_tokens=12, steering=Steering(TOXIC[:1], 50.0, 0.01))),
        ([Message("user", "river tree sun")], Params(temperature=0.7, top_p=0.5, seed=4, max_tokens=12)),
    ]
    alone = [(await model.generate(*request)).text for request in requests]
    together = await asyncio.gather(*(model.generate(*request) for request in requests))
    assert [generation.text for generation in together] == alone


async def test_a_row_wider_than_the_batch_is_computed_all_the_same(folder: Path) -> None:
    params = Params(temperature=1, seed=1, max_tokens=4, n=2, steering=STEERING)
    async with HFModel(str(folder), ModelOptions(extra={"batch": 2})) as narrow:
        generation = await narrow.generate(PLAIN, params)
    async with HFModel(str(folder), ModelOptions(extra={"batch": 8})) as wide:
        assert (await wide.generate(PLAIN, params)).completions == generation.completions


async def test_the_tokens_of_all_copies_are_counted(model: HFModel) -> None:
    generation = await model.generate(PLAIN, Params(max_tokens=2, steering=STEERING))
    assert generation.usage.prompt_tokens == sum(len(model._encode(each)) for each in (PLAIN, *TOXIC))


async def test_a_copy_beyond_the_context_fails(model: HFModel) -> None:
    long = Steering(((Message("user", "cat " * 70),),), 50.0, 0.01)
    with pytest.raises(ModelError, match="73 tokens"):
        await model.generate(PLAIN, Params(max_tokens=2, steering=long))
