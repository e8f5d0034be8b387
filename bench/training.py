"""Roll-outs, training and the `hf/` engine in tokens per second, next to the limits of the device they run on.

`python bench/training.py hf/MODEL [--answer TOKENS] [--rows N,N] [--engine N,N]`; meant for a GPU that does nothing
else. Two limits are measured first: how fast the device multiplies matrices in bfloat16, and how fast it reads its
memory. A token of a roll-out needs all weights to be read once for the whole batch; a token of training needs four
(with adapters) operations for each weight: two forward, and two backward through frozen weights.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))

import torch

from evenhand.models.base import ModelOptions, load_model
from evenhand.models.hf import decoding
from evenhand.training import models
from evenhand.training.options import PPOOptions
from evenhand.training.rollout import Rollout, logprobs_and_entropies, roll_out
from evenhand.types import Message, Params

TRAINED_AT_ONCE = 16
STEPS = 48
supported = decoding.supports_static_cache


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--answer", type=int, default=128, help="tokens of an answer")
    parser.add_argument("--rows", type=numbers, default=[64, 256], help="answers rolled out at once")
    parser.add_argument("--engine", type=numbers, default=[128, 400], help="requests to the engine at once")
    chosen = parser.parse_args()
    machine = models.machine()
    multiplies, reads = limits(machine.device)
    say(f"{machine.device}: {multiplies / 1e12:.1f} TFLOP/s in {machine.dtype}, reads {reads / 1e9:.0f} GB/s")
    options = PPOOptions(model=chosen.model, data=Path(), out=Path(), reward="", lora=16)
    policy = models.load_policy(options, machine)
    chat = models.chat_of(options, policy)
    weights = sum(each.numel() for each in policy.parameters())
    size = sum(each.nbytes for each in policy.parameters())
    prompts = [(Message("user", question(number)),) for number in range(max(*chosen.rows, TRAINED_AT_ONCE))]

    def rolled(rows: int, max_new_tokens: int) -> Rollout:
        return roll_out(policy, chat, prompts[:rows], machine, max_new_tokens=max_new_tokens)

    if machine.device.startswith("cuda"):
        for cudnn, graphs in ((True, False), (False, False), (False, True)):  # the last is how Evenhand has it
            torch.backends.cuda.enable_cudnn_sdp(cudnn)
            decoding.supports_static_cache = supported if graphs else never
            rolled(4, 4)
            seconds, _ = timed(lambda: rolled(chosen.rows[0], STEPS))
            how = f"attention by cuDNN {'on' if cudnn else 'off'}, CUDA graphs {'on' if graphs else 'off'}"
            say(f"{how}: {1000 * seconds / STEPS:.1f} ms for each next token")
    for rows in chosen.rows:
        seconds, found = timed(lambda rows=rows: rolled(rows, chosen.answer))
        tokens, steps = int(found.answer.sum()), found.answer.shape[1]
        limit = rows * reads / size
        say(
            f"roll-out of {rows} answers: {tokens / seconds:,.0f} tokens/s, {1000 * seconds / steps:.1f} ms for each "
            f"next token; reading the weights takes {1000 * size / reads:.2f} ms "
            f"({100 * tokens / seconds / limit:.1f} %)"
        )
    seconds, tokens = trained(policy, rolled(TRAINED_AT_ONCE, chosen.answer), machine)
    done = 4 * weights * tokens / seconds
    say(f"training of adapters: {tokens / seconds:,.0f} tokens/s, {100 * done / multiplies:.0f} % of all operations")
    policy = None
    for rows in chosen.engine:
        asyncio.run(engine(chosen.model, rows, chosen.answer))


def never(*_: Any) -> bool:
    return False


def limits(device: str) -> tuple[float, float]:
    """Operations and bytes per second."""
    on_gpu = device.startswith("cuda")
    width = 8192 if on_gpu else 1024
    left = torch.randn(width, width, device=device, dtype=torch.bfloat16)
    block = torch.empty(1 << (30 if on_gpu else 26), device=device)

    def best(work: Callable[[], Any]) -> float:
        return min(timed(work)[0] for _ in range(10))

    # A copy reads and writes each byte.
    return 2 * width**3 / best(lambda: left @ left), 2 * block.nbytes / best(block.clone)


def trained(policy: Any, rollout: Rollout, machine: models.Machine) -> tuple[float, int]:
    """Seconds and tokens of updates with the same answers."""

    def update() -> None:
        logprobs, _ = logprobs_and_entropies(policy, rollout, machine)
        (-(logprobs * rollout.answer).sum() / rollout.answer.sum()).backward()

    update()
    seconds, _ = timed(lambda: [update() for _ in range(5)])
    return seconds, 5 * int(rollout.mask.sum())


async def engine(spec: str, rows: int, answer: int) -> None:
    """Requests with prompts as long as a judge's, answered greedily."""
    rubric = "Judge the essay by its clarity, its evidence and its care. " * 40
    async with load_model(spec, ModelOptions(extra={"batch": rows})) as model:
        await model.generate([Message("user", "Hello")], Params(max_tokens=4))
        started = time.perf_counter()
        asked = [[Message("user", rubric + question(number))] for number in range(rows)]
        found = await asyncio.gather(*(model.generate(each, Params(max_tokens=answer)) for each in asked))
        seconds = time.perf_counter() - started
    read, written = (
        sum(getattr(each.usage, name) for each in found) for name in ("prompt_tokens", "completion_tokens")
    )
    rate = f"{written / seconds:,.0f} tokens/s"
    say(f"engine, {rows} requests: {read:,} tokens read, {written:,} written in {seconds:.1f} s: {rate}")


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    wait = torch.cuda.synchronize if torch.cuda.is_available() else (lambda: None)
    wait()
    started = time.perf_counter()
    found = work()
    wait()
    return time.perf_counter() - started, found


def question(number: int) -> str:
    return f"Should people of {number + 18} years work less than others? Say what you think, and why."


def numbers(text: str) -> list[int]:
    return [int(each) for each in text.split(",")]


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    main()
