"""Roll-outs, training and the `hf/` engine in tokens per second, next to the limits of the device they run on.

`python bench/training.py MODEL [--answer TOKENS] [--prompt WORDS] [--rows N,N] [--engine N,N]`; meant for a GPU that
does nothing else. MODEL is `hf/NAME` or `local/builtin`, or `random` for random weights in the shape of a 1.5B model,
which needs no files (`small` for a CPU). The engine is measured with `hf/NAME` only.

Two limits are measured first: how fast the device multiplies matrices in bfloat16, and how fast it copies memory. The
bound of a roll-out is the time to read all weights once for each token, and the keys and values of all answers so far.
"Before" is a roll-out by the policy itself, as `plain_roll_out` below has it: adapters apart from the weights, every
answer with a prompt of its own, sampling outside of the CUDA graph, and a wait after every token. "Plain" is the copy
of the policy without Triton kernels, "kernels" is with them, which is the default where they can be used. A token of
training needs four (with adapters) operations for each weight: two forward, and two backward through frozen weights;
kept answers need two more, for the reference.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))

import torch

from evenhand.core.types import Message
from evenhand.models.hf.decoding import decoder
from evenhand.models.hf.tuning import disable_cudnn_attention
from evenhand.training import models, policy_copy
from evenhand.training.chat import Chat, Encoded
from evenhand.training.data import Prompt
from evenhand.training.options import PPOOptions
from evenhand.training.policy_copy import SWITCH, PolicyCopy
from evenhand.training.rollout import Rollout, roll_out
from evenhand.training.sft import SFTTrainer
from evenhand.training.verifiable import VerifiableOptions

STEPS = 12
GROUP = 4
SHAPE: dict[str, Any] = {
    "hidden_size": 1536,
    "intermediate_size": 8960,
    "num_hidden_layers": 28,
    "num_attention_heads": 12,
    "num_key_value_heads": 2,
    "vocab_size": 151936,
    "max_position_embeddings": 32768,
    "tie_word_embeddings": True,
}
SMALL = SHAPE | {"hidden_size": 96, "intermediate_size": 192, "vocab_size": 4000}
"""As many layers, so that a CPU spends its time on calls, as a GPU does."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="hf/NAME, local/builtin, random or small")
    parser.add_argument("--answer", type=int, default=128, help="tokens of an answer")
    parser.add_argument("--prompt", type=int, default=0, help="words that are added to each prompt")
    parser.add_argument("--repeats", type=int, default=9, help="roll-outs whose median is printed")
    parser.add_argument("--rows", type=numbers, default=[64, 256], help="answers rolled out at once")
    parser.add_argument("--engine", type=numbers, default=[128, 400], help="requests to the engine at once")
    parser.add_argument("--train", action="store_true", help="only the steps of `train verifiable`")
    parser.add_argument("--profile", action="store_true", help="only list the kernels of roll-outs by their time")
    chosen = parser.parse_args()
    machine = models.machine()
    disable_cudnn_attention()  # as training does when it loads a model
    policy, chat = load(chosen.model, machine)
    more = " why" * chosen.prompt
    questions = [(Message("user", question(number) + more),) for number in range(max(chosen.rows))]
    if chosen.profile:
        for name in ("plain", "kernels"):
            with decoding_by(name):
                say(f"\n{name}")
                profile(
                    lambda: roll_out(policy, chat, questions[: chosen.rows[0]], machine, max_new_tokens=33), steps=32
                )
        return
    multiplies, copies = limits(machine.device)
    say(f"{machine.device}: {multiplies / 1e12:.1f} TFLOP/s in {machine.dtype}, copies {copies / 1e9:.0f} GB/s")
    if chosen.train:
        trained(policy, chat, machine, multiplies)
        return
    before, after = calls(policy, chat, questions[:4], machine)
    say(f"operations for each next token: {before:,} before, {after:,} after")
    for rows in chosen.rows:
        say(f"\n{rows} answers of up to {chosen.answer} tokens")
        compare(policy, chat, questions[:rows], machine, chosen.answer, copies, chosen.repeats)
    rows = chosen.rows[0]
    say(f"\n{rows} answers, {GROUP} to each prompt")
    grouped = [each for each in questions[: rows // GROUP] for _ in range(GROUP)]
    compare(policy, chat, grouped, machine, chosen.answer, copies, chosen.repeats)
    if chosen.model in ("random", "small"):
        ends = Chat(chat.tokenizer, frozenset(range(1, policy.config.vocab_size, 50)), chat.max_length)
        rows = chosen.rows[-1]
        say(f"\n{rows} answers that end after 50 tokens on average, with one end token in 50")
        compare(policy, ends, questions[:rows], machine, 2 * chosen.answer, copies, chosen.repeats)
    exactness(policy, chat, questions[: chosen.rows[0]], machine)
    trained(policy, chat, machine, multiplies)
    policy = None
    for rows in chosen.engine if chosen.model.startswith("hf/") else ():
        asyncio.run(engine(chosen.model, rows, chosen.answer))


def load(name: str, machine: models.Machine) -> tuple[Any, Chat]:
    """A policy with adapters that change its answers, and its tokenizer."""
    if name not in ("random", "small"):
        options = PPOOptions(model=name, data=Path(), out=Path(), reward="", lora=16)
        policy = models.load_policy(options, machine)
        chat = models.chat_of(options, policy)
    else:
        policy, chat = random_policy(SHAPE if name == "random" else SMALL, machine)
    torch.manual_seed(0)
    for weight in (each for key, each in policy.named_parameters() if "lora_B" in key):
        torch.nn.init.normal_(weight, 0, 3e-3)
    return policy, chat


def random_policy(shape: dict[str, Any], machine: models.Machine) -> tuple[Any, Chat]:
    import transformers
    from tokenizers import Tokenizer, pre_tokenizers
    from tokenizers.models import WordLevel

    torch.manual_seed(0)
    with torch.device(machine.device):
        config = transformers.Qwen2Config(**shape)
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=getattr(torch, machine.dtype))
    raw = Tokenizer(WordLevel({"<unk>": 0, "<end>": 1}, unk_token="<unk>"))
    raw.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=raw, unk_token="<unk>", pad_token="<unk>", eos_token="<end>"
    )
    tokenizer.chat_template = "{% for message in messages %}{{ message.content }} {% endfor %}"
    return models.with_adapters(model.eval(), 16), Chat(tokenizer, frozenset({1}))


def compare(
    policy: Any,
    chat: Chat,
    prompts: Sequence[Prompt],
    machine: models.Machine,
    answer: int,
    copies: float,
    repeats: int,
) -> None:
    """Print how long roll-outs take before and after, and what reading the memory alone would take."""
    settings: Any = (policy, chat, prompts, machine)

    def measured(roll: Callable[..., Rollout]) -> tuple[float, Rollout]:
        torch.manual_seed(1)
        return timed(lambda: roll(*settings, max_new_tokens=answer))

    def told(name: str, seconds: float, rollout: Rollout) -> str:
        steps, tokens = rollout.answer.shape[1], int(rollout.answer.sum())
        bound = read_bytes(policy, rollout, machine) / copies
        return (
            f"{name:8} {tokens / seconds:8,.0f} tokens/s, {1000 * seconds / steps:6.2f} ms for each next token; bound "
            f"{1000 * bound / steps:.2f} ms ({seconds / bound:.2f} x)"
        )

    forget()
    before, rollout = measured(plain_roll_out)
    say(told("before", before, rollout))
    exact = decoded(PolicyCopy(policy, models.Machine(machine.device, "float32")), rollout)
    for name in ("plain", "kernels"):
        with decoding_by(name):
            copy = PolicyCopy(policy, machine)
            if name == "kernels" and not copy.next_token.uses_kernels:
                say("kernels  cannot be used here")
                continue
            error = float((decoded(copy, rollout) - exact).abs().mean())
            del copy
            first, _ = measured(roll_out)
            repeated = [measured(roll_out) for _ in range(repeats)]
            seconds, found = statistics.median(each for each, _ in repeated), repeated[0][1]
            say(
                f"{told(name, seconds, found)}; {before / seconds:.1f} x as fast as before; "
                f"the first took {first:.1f} s; mean error of a log probability {error:.5f}"
            )


@contextmanager
def decoding_by(name: str) -> Iterator[None]:
    """Decode by the plain code or by the kernels, with new copies of policies."""
    forget()
    os.environ[SWITCH] = "0" if name == "plain" else "1"
    yield
    del os.environ[SWITCH]
    forget()


def decoded(copy: PolicyCopy, rollout: Rollout) -> Any:
    """Return the log probabilities of a decoded token (answers × vocabulary)."""
    ids, mask = rollout.ids[:, :-8], rollout.mask[:, :-8]
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    with torch.no_grad():
        found = copy(input_ids=ids, attention_mask=mask, position_ids=positions)
        limits = {"max_length": 32768, "max_new_tokens": 8}
        step = decoder(copy, found.past_key_values, mask, positions, **limits, use_graphs=False)
        return step.next(rollout.ids[:, -8:-7]).log_softmax(-1)


def read_bytes(policy: Any, rollout: Rollout, machine: models.Machine) -> float:
    """What a roll-out must read at least: for each step all weights, and the cache of the answers that still run."""
    size = getattr(torch, machine.dtype).itemsize
    weights = size * sum(each.numel() for name, each in policy.named_parameters() if "lora" not in name)
    config = policy.config
    token = 2 * size * config.num_hidden_layers * config.num_key_value_heads
    token *= config.hidden_size // config.num_attention_heads
    steps = rollout.answer.shape[1]
    prompt = rollout.mask[:, :-steps].sum(1, keepdim=True)
    cached = ((prompt + rollout.answer.cumsum(1)) * rollout.answer).sum()
    return weights * steps + token * float(cached)


def exactness(policy: Any, chat: Chat, prompts: Sequence[Prompt], machine: models.Machine) -> None:
    """Print how far log probabilities of the next token are from those in float32, for the policy and for its copy."""
    rollout = roll_out(policy, chat, prompts, machine, max_new_tokens=16)
    inputs = {"input_ids": rollout.ids, "attention_mask": rollout.mask}
    inputs["position_ids"] = (rollout.mask.cumsum(-1) - 1).clamp(min=0)
    with torch.no_grad():
        exact = PolicyCopy(policy, models.Machine(machine.device, "float32"))(**inputs).logits[:, -1].log_softmax(-1)
        copied = PolicyCopy(policy, machine)(**inputs).logits[:, -1].float().log_softmax(-1)
        with machine.autocast():
            own = policy(**inputs, logits_to_keep=1).logits[:, -1].float().log_softmax(-1)
    errors = [f"{(each - exact).abs().mean():.4f}" for each in (own, copied)]
    say(f"\nmean error of a log probability: policy {errors[0]}, copy {errors[1]}")


def plain_roll_out(
    policy: Any, chat: Chat, prompts: Sequence[Prompt], machine: models.Machine, *, max_new_tokens: int
) -> Rollout:
    """Roll out with the policy itself, one token at a time."""
    rows = [chat.encode_prompt(prompt, max_new_tokens) for prompt in prompts]
    width, pad = max(map(len, rows)), chat.tokenizer.pad_token_id
    ids = torch.tensor([[pad] * (width - len(row)) + list(row) for row in rows], device=machine.device)
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows], device=machine.device)
    eos_ids = torch.tensor(sorted(chat.eos_ids), device=machine.device)
    running = torch.ones(len(rows), dtype=torch.bool, device=machine.device)
    answer: list[Any] = []
    with torch.no_grad(), machine.autocast():
        positions = (mask.cumsum(-1) - 1).clamp(min=0)
        prefill = policy(input_ids=ids, attention_mask=mask, position_ids=positions, use_cache=True, logits_to_keep=1)
        logits = prefill.logits[:, -1].float()
        limits = {"max_length": chat.max_length, "max_new_tokens": max_new_tokens}
        decode = decoder(policy, prefill.past_key_values, mask, positions, **limits)
        while True:
            token = torch.multinomial(logits.softmax(-1), 1).masked_fill(~running[:, None], pad)
            answer.append(running.clone())
            ids, mask = torch.cat([ids, token], 1), torch.cat([mask, running[:, None].long()], 1)
            running = running & ~torch.isin(token[:, 0], eos_ids)
            if len(answer) == max_new_tokens or not bool(running.any()):
                break
            logits = decode.next(token)
    kept = torch.stack(answer, 1).float()
    texts = [chat.text(row[:n]) for row, n in zip(ids[:, width:].tolist(), kept.sum(1).long().tolist(), strict=True)]
    return Rollout(ids, mask, kept, texts, [not each for each in running.tolist()], torch.zeros_like(kept))


def calls(policy: Any, chat: Chat, prompts: Sequence[Prompt], machine: models.Machine) -> tuple[int, int]:
    """How many operations a next token takes before and after; a GPU takes a kernel or more for each.

    Counted on the CPU's side: views are left out, and so are the steps that a CUDA graph repeats.
    """
    from torch.utils._python_dispatch import TorchDispatchMode

    class Counter(TorchDispatchMode):
        count = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            found = func(*args, **(kwargs or {}))
            memory = isinstance(found, torch.Tensor) and found.numel() > 0
            own = {each.untyped_storage().data_ptr() for each in args if isinstance(each, torch.Tensor)}
            in_place = func._schema.is_mutable
            self.count += bool(memory and (in_place or found.untyped_storage().data_ptr() not in own))
            return found

    def counted(roll: Callable[..., Rollout]) -> int:
        counts: list[int] = []
        for tokens in (2, 3):  # with two tokens, one step follows the prompt; with three, two of them
            forget()
            with Counter() as counter:
                roll(policy, chat, prompts, machine, max_new_tokens=tokens)
            counts.append(counter.count)
        return counts[1] - counts[0]

    return counted(plain_roll_out), counted(roll_out)


def forget() -> None:
    """Drop copies that are kept between roll-outs, so that the next roll-out is a first one."""
    policy_copy.kept_copies.clear()


def profile(work: Callable[[], Any], steps: int) -> None:
    """Print the operations of some work by their time and, on a GPU, how long it waits between kernels."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as profiled

    on_gpu = torch.cuda.is_available()
    for _ in range(2):
        work()
    with profiled(activities=[ProfilerActivity.CUDA if on_gpu else ProfilerActivity.CPU]) as found:
        seconds, _ = timed(work)
    by = "self_cuda_time_total" if on_gpu else "self_cpu_time_total"
    say(found.key_averages().table(sort_by=by, row_limit=30, max_name_column_width=90))
    kernels = sorted((e.time_range.start, e.time_range.end) for e in found.events() if "CUDA" in str(e.device_type))
    if kernels:
        busy = sum(end - start for start, end in kernels)
        gaps = [max(0.0, after[0] - before[1]) for before, after in pairwise(kernels)]
        short = [gap for gap in gaps if gap < 20]
        say(
            f"{len(kernels) / steps:.0f} kernels a step, {busy / steps / 1000:.2f} ms of work in "
            f"{1000 * seconds / steps:.2f} ms; between kernels {sum(gaps) / steps / 1000:.2f} ms, of which "
            f"{sum(short) / steps / 1000:.2f} ms in gaps below 20 us (mean {sum(short) / max(1, len(short)):.2f} us)"
        )


def limits(device: str) -> tuple[float, float]:
    """Operations and bytes per second."""
    on_gpu = device.startswith("cuda")
    width = 8192 if on_gpu else 256
    left = torch.randn(width, width, device=device, dtype=torch.bfloat16)
    block = torch.empty(1 << (30 if on_gpu else 24), device=device)

    def best(work: Callable[[], Any]) -> float:
        return min(timed(work)[0] for _ in range(10))

    # A copy reads and writes each byte.
    return 2 * width**3 / best(lambda: left @ left), 2 * block.nbytes / best(block.clone)


def trained(policy: Any, chat: Chat, machine: models.Machine, multiplies: float) -> None:
    """Print how fast `train verifiable` trains adapters, with random tokens, as many as its rows have."""
    rng = random.Random(0)

    def row(prompt: float, answer: float) -> Encoded:
        ids = [rng.randrange(2, policy.config.vocab_size) for _ in range(round(prompt) + round(answer))]
        return Encoded(tuple(ids[: round(prompt)]), tuple(ids[round(prompt) :]))

    whole = VerifiableOptions(model="", out=Path())
    count, every = whole.sft_options().batch * (STEPS + 2), 1 - whole.general
    learned = [row(rng.lognormvariate(4.8, 0.5), rng.choice((2, 2, 25))) for _ in range(round(count * every))]
    kept = [row(rng.uniform(40, 80), min(320, rng.lognormvariate(4.5, 1) + 1)) for _ in range(count - len(learned))]
    models.prepare(policy, whole.sft_options(), machine)
    settings: Any = {"equal_rows": True, "kept": kept, "keep": whole.keep}
    trainer = SFTTrainer(whole.sft_options(), policy, chat, learned, machine, **settings)
    for number in range(2):
        trainer.step(number)
    if machine.device.startswith("cuda"):
        torch.cuda.reset_peak_memory_stats()
    seconds = timed(lambda: [trainer.step(2 + number) for number in range(STEPS)])[0] / STEPS
    question = seconds / (whole.sft_options().batch * every)
    tokens, held = (sum(each.length for each in rows) / (STEPS + 2) for rows in ((*learned, *kept), kept))
    weights = sum(each.numel() for each in policy.parameters())
    share = weights * (4 * tokens + 2 * held) / seconds / multiplies
    peak = torch.cuda.max_memory_allocated() / 2**30 if machine.device.startswith("cuda") else float("nan")
    say(
        f"\ntrain verifiable: {seconds:.3f} s a step, {1000 * question:.1f} ms a question, "
        f"{tokens / seconds:,.0f} tokens/s, {100 * share:.0f} % of all operations, peak {peak:.1f} GiB"
    )


async def engine(spec: str, rows: int, answer: int) -> None:
    """Requests with prompts as long as a judge's, answered greedily."""
    from evenhand.core.types import Params
    from evenhand.models.base import ModelOptions
    from evenhand.models.load import load_model

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
