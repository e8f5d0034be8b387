"""`evenhand doctor`: one tiny call that shows whether a model can be used, and for what."""

from __future__ import annotations

import time

import click

from evenhand import aio
from evenhand.errors import ModelError
from evenhand.models.base import Model, ModelOptions, load_model
from evenhand.types import Message, Params

_SCHEMA = {
    "type": "object",
    "properties": {"answer": {"type": "string", "enum": ["A", "B"]}},
    "required": ["answer"],
    "additionalProperties": False,
}


@click.command()
@click.argument("spec")
@click.option("--base-url", help="The endpoint of openai/ models.")
@click.option("--timeout", type=float, default=60.0, show_default=True)
def doctor(spec: str, base_url: str | None, timeout: float) -> int:
    """Check the model SPEC: one tiny call, then what it supports (two more tiny calls)."""
    return aio.run(_check(spec, ModelOptions(base_url=base_url, timeout=timeout, retries=1)))


async def _check(spec: str, options: ModelOptions) -> int:
    started = time.perf_counter()
    async with load_model(spec, options) as model:
        click.echo(f"loaded    {spec} in {time.perf_counter() - started:.1f} s")
        for name, value in model.fingerprint().items():
            if name != "spec":
                click.echo(f"{name:<9} {value}")
        question = [Message("user", "Reply with the letter A.")]
        generation = await model.generate(question, Params(temperature=0, max_tokens=5))
        tokens = f"{generation.usage.prompt_tokens} + {generation.usage.completion_tokens} tokens"
        click.echo(f"answers   {generation.text!r} ({tokens}, {generation.latency:.2f} s)")
        await _features(model, question)
    return 0


async def _features(model: Model, question: list[Message]) -> None:
    """Ask for what is declared, since a server may ignore what it does not know."""
    try:
        scored = await model.generate(question, Params(temperature=0, max_tokens=1, logprobs=5))
        click.echo(f"logprobs  {'yes' if scored.completions[0].logprobs else 'no: answers are read from text'}")
        shaped = await model.generate(question, Params(temperature=0, max_tokens=40, schema=_SCHEMA))
        constrained = "schema" in model.features and shaped.text.lstrip().startswith("{")
        click.echo(f"schema    {'yes' if constrained else 'no: JSON is asked for in words'}")
    except ModelError as error:
        click.echo(f"features  could not be checked: {error}")
