"""Our trainers beside TRL's: the same model, data, order of rows, adapters and precision, one after the other.

`python bench/engines.py MODEL --out FILE` with `pip install trl`; MODEL is a folder, or `small` for tiny random weights
on a CPU. `python bench/engines.py --table FILE` prints the results of an earlier run, as
docs/results/training-speed.md has them.

- Both sides begin with the same weights and see the same tokens in the same batches, so their first losses must agree.
- Tokens are those of prompts and answers, without padding; for RLOO and GRPO only the sampled ones.
- Time is that of whole steps, from the end of one to the end of the next; the first ones are not counted.
- Peak memory is what torch has allocated for the model, the training and its activations (GPU only).
- Gradient checkpointing is off on both sides (TRL's default is on). TRL samples by transformers, not by vLLM.
- The held-out result is computed by the same code for both: the loss of answers (SFT), the share of pairs ranked
  rightly (reward, DPO), the mean reward of greedy answers (RLOO, GRPO).

Each trainer has a time limit, and each result is written at once.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import gc
import json
import random
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))

import torch

from evenhand.core.types import Message
from evenhand.training import models, policy_copy
from evenhand.training.data import Preference, Prompt
from evenhand.training.dpo import DPOTrainer
from evenhand.training.loop import BatchSampler, Schedule, train
from evenhand.training.options import DPOOptions, PPOOptions, RewardOptions, SFTOptions
from evenhand.training.ppo import PPOModels, PPOTrainer
from evenhand.training.reward import RewardModel, RewardTrainer, evaluate
from evenhand.training.rollout import roll_out
from evenhand.training.sft import SFTTrainer

STAGES = ("sft", "reward", "dpo", "rloo", "grpo")
SAMPLING = ("rloo", "grpo")
RANK, SEED = 16, 0
LR: Mapping[str, float] = {"sft": 2e-4, "reward": 1e-4, "dpo": 5e-5, "rloo": 5e-5, "grpo": 5e-5}
KL = 0.05
MAX_LENGTH = 1024
SHORT = "Answer in one or two sentences."
"""Asked for, so that most sampled answers end."""
WORDS = 30
"""The reward of a sampled answer is highest with this many words."""
NAMES: Mapping[str, str] = {"sft": "SFT", "reward": "reward model", "dpo": "DPO", "rloo": "RLOO", "grpo": "GRPO"}
HELD_OUT: Mapping[str, str] = {
    "sft": "loss",
    "reward": "accuracy",
    "dpo": "accuracy",
    "rloo": "reward",
    "grpo": "reward",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", default="small", help="a model's folder, or small")
    parser.add_argument("--out", type=Path, default=Path("engines.json"), help="the JSON file of results")
    parser.add_argument("--table", type=Path, help="only print the table of this JSON file")
    parser.add_argument("--stages", default=",".join(STAGES))
    parser.add_argument("--engines", default="ours,trl")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--sampled-steps", type=int, default=6, help="steps of RLOO and GRPO")
    parser.add_argument("--skip", type=int, default=3, help="first steps that are not counted; at most 2 sampled")
    parser.add_argument("--batch", type=int, default=16, help="examples or pairs of a step; prompts of RLOO and GRPO")
    parser.add_argument("--answers", type=int, default=4, help="answers to each prompt of RLOO and GRPO")
    parser.add_argument("--new-tokens", type=int, default=128, help="tokens of a sampled answer at most")
    parser.add_argument("--held-out", type=int, default=64, help="rows of the held-out result")
    parser.add_argument("--limit", type=float, default=45, help="seconds for one trainer, its held-out result included")
    parser.add_argument("--total", type=float, default=285, help="seconds for everything")
    chosen = parser.parse_args()
    if chosen.table:
        print(table(json.loads(chosen.table.read_text())))
        return
    compare(chosen)


def compare(chosen: argparse.Namespace) -> None:
    """Run every trainer of both sides and write and print what was measured."""
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        lab = Lab(chosen, Path(folder))
        found: dict[str, Any] = {"about": lab.about(), "results": []}
        for stage in chosen.stages.split(","):
            for engine in chosen.engines.split(","):
                left = chosen.total - (time.perf_counter() - started)
                if left < 5:
                    say(f"no time left for {engine} {stage}")
                    continue
                result = lab.measured(engine, stage, min(chosen.limit, left))
                found["results"].append(result)
                found["about"]["seconds"] = round(time.perf_counter() - started, 1)
                chosen.out.write_text(json.dumps(found, indent=1))
                say(f"[{found['about']['seconds']:5.0f} s] {json.dumps(result)}")
    print(table(found))


class TimeUpError(Exception):
    """The time of a trainer is over."""


@contextlib.contextmanager
def limited(seconds: float) -> Iterator[None]:
    def stop(*_: object) -> None:
        raise TimeUpError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 0.1))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@dataclass
class Clock:
    """The end of each step and what was measured in it."""

    ends: list[float] = field(default_factory=list[float])
    losses: list[float] = field(default_factory=list[float])
    more: list[dict[str, float]] = field(default_factory=list[dict[str, float]])
    before: list[float] = field(default_factory=list[float])
    """When each step began, where that is not the end of the one before."""

    def tick(self) -> None:
        wait()
        self.ends.append(time.perf_counter())

    def seconds(self) -> list[float]:
        """Of each step; the first is not known where a step begins with the end of the one before."""
        if self.before:
            return [end - start for start, end in zip(self.before, self.ends, strict=False)]
        return [0.0, *(after - before for before, after in zip(self.ends, self.ends[1:], strict=False))]


class Timed:
    """A trainer of ours whose steps are timed, without the loop's checkpoint after the last one."""

    def __init__(self, trainer: Any, clock: Clock, loss: str) -> None:
        self._trainer, self._clock, self._loss = trainer, clock, loss
        self.optimizer = trainer.optimizer

    def step(self, number: int) -> Mapping[str, float]:
        wait()
        self._clock.before.append(time.perf_counter())
        metrics = self._trainer.step(number)
        self._clock.tick()
        self._clock.losses.append(metrics.get(self._loss, 0.0))
        self._clock.more.append(dict(metrics))
        return metrics


class Lab:
    """The model, the data and the settings that both sides share."""

    def __init__(self, chosen: argparse.Namespace, folder: Path) -> None:
        self.o, self.folder = chosen, folder
        self.machine = models.machine()
        count = chosen.batch * max(chosen.steps, chosen.sampled_steps)
        self.pairs, self.held_out = generated(count, range(6)), generated(chosen.held_out, range(6, 8))
        self.prompts, self.asked = (
            [(Message("user", f"{pair.prompt[0].content} {SHORT}"),) for pair in pairs]
            for pairs in (self.pairs, self.held_out)
        )
        name = str(
            small_model(folder / "small", [*self.pairs, *self.held_out]) if chosen.model == "small" else chosen.model
        )
        # Kept on the CPU, so that the memory of a training is its own.
        self.name, self.base = name, models.load_causal(name, models.Machine("cpu", self.machine.dtype), trained=False)
        self.chat = models.load_chat(name, self.base, max_length=MAX_LENGTH)
        self.classifier: Any = None

    def about(self) -> dict[str, Any]:
        import peft
        import transformers

        o, packages = self.o, {"torch": torch, "transformers": transformers, "peft": peft}
        if "trl" in o.engines:
            import trl

            packages["trl"] = trl
        lengths = [self.chat.encode(pair.prompt, pair.chosen).length for pair in self.pairs]
        device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
        settings = ("steps", "sampled_steps", "skip", "batch", "answers", "new_tokens", "held_out")
        return {
            "model": Path(self.name).name,
            "device": device,
            "dtype": self.machine.dtype,
            "rank": RANK,
            "lengths": {"mean": fmean(lengths), "longest": max(lengths)},
            **{name: getattr(o, name) for name in settings},
            "versions": {name: package.__version__ for name, package in packages.items()},
        }

    def measured(self, engine: str, stage: str, seconds: float) -> dict[str, Any]:
        """Train with one engine; whatever happens, return what is known."""
        clock, ended, result = Clock(), "done", dict[str, Any]()
        clean()
        torch.manual_seed(SEED)
        # cuDNN's attention is off in our trainings, and as torch has it in TRL's.
        torch.backends.cuda.enable_cudnn_sdp(engine == "trl")
        if torch.cuda.is_available():
            torch.cuda.reset_peak_memory_stats()
        started = time.perf_counter()
        memory = None
        try:
            with limited(seconds):
                model = (self._ours if engine == "ours" else self._trl)(stage, clock)
                wait()
                if torch.cuda.is_available():
                    memory = torch.cuda.max_memory_allocated() / 2**30
                result["held_out"] = self._held_out(stage, model.eval())
        except TimeUpError:
            ended = "time limit"
        except Exception as error:
            ended = f"{type(error).__name__}: {error}"[:500]
            import traceback

            traceback.print_exc()
        counted = list(zip(clock.seconds(), self._tokens(stage, clock), strict=False))[self._skipped(stage) :]
        last = clock.losses[-3:]
        return {
            "engine": engine,
            "stage": stage,
            "ended": ended,
            "steps": len(clock.ends),
            "counted": len(counted),
            "tokens_per_second": sum(t for _, t in counted) / sum(s for s, _ in counted) if counted else None,
            "seconds_per_step": fmean(s for s, _ in counted) if counted else None,
            "peak_gib": memory,
            "first_loss": clock.losses[0] if clock.losses else None,
            "last_loss": fmean(last) if last else None,
            **result,
            **sampled(clock.more),
            "seconds": round(time.perf_counter() - started, 1),
        }

    def _steps(self, stage: str) -> int:
        return self.o.sampled_steps if stage in SAMPLING else self.o.steps

    def _skipped(self, stage: str) -> int:
        return min(self.o.skip, 2) if stage in SAMPLING else self.o.skip

    def _order(self, stage: str) -> list[int]:
        """The rows in the order in which our loop takes them."""
        sampler = BatchSampler(len(self.pairs), self.o.batch, SEED)
        return [row for step in range(self._steps(stage)) for row in sampler.rows(step)]

    def _tokens(self, stage: str, clock: Clock) -> list[float]:
        """Of each step."""
        if stage in SAMPLING:
            return [each["tokens"] for each in clock.more]
        encode, size = self.chat.encode, self.o.batch
        ordered = [self.pairs[i] for i in self._order(stage)]
        sides = ("chosen",) if stage == "sft" else ("chosen", "rejected")
        lengths = [sum(encode(pair.prompt, getattr(pair, side)).length for side in sides) for pair in ordered]
        return [sum(lengths[first : first + size]) for first in range(0, len(lengths), size)]

    def _model(self, stage: str) -> Any:
        """A new copy of the model on the device; for the reward model a classifier with the same head for both."""
        if stage == "reward" and self.classifier is None:
            self.classifier = models.classifier_of(self.base, self.chat, SEED)
        return copy.deepcopy(self.classifier if stage == "reward" else self.base).to(self.machine.device)

    # Ours

    def _options(self, stage: str) -> Any:
        kind: Any = {"sft": SFTOptions, "reward": RewardOptions, "dpo": DPOOptions}.get(stage, PPOOptions)
        given: dict[str, Any] = {"model": self.name, "data": Path(), "out": self.folder / f"ours-{stage}"}
        given |= {"batch": self.o.batch, "steps": self._steps(stage), "lr": LR[stage], "lora": RANK, "seed": SEED}
        if stage in SAMPLING:
            given |= {"reward": "", "algorithm": stage, "answers": self.o.answers, "mini_batch": self.o.batch}
            given |= {"ppo_epochs": 1, "max_new_tokens": self.o.new_tokens, "reward_range": 0.0, "kl_coefficient": KL}
            given |= {"kl_in": "reward" if stage == "rloo" else "loss", "sample_every": 10**6}
        return kind(**given, save_every=10**6)

    def _ours(self, stage: str, clock: Clock) -> Any:
        options, machine, chat = self._options(stage), self.machine, self.chat
        options.out.mkdir(parents=True, exist_ok=True)
        model = models.with_adapters(self._model(stage), RANK, head=models.HEAD if stage == "reward" else None)
        models.prepare(model, options, machine)
        loss = "policy_loss" if stage in SAMPLING else "loss"
        trainer: Any
        if stage == "sft":
            trainer = SFTTrainer(options, model, chat, self._rows(self.pairs), machine)
        elif stage == "reward":
            trainer = RewardTrainer(options, RewardModel(model, chat, machine, options.batch), self.pairs)
        elif stage == "dpo":
            trainer = DPOTrainer(options, model, None, chat, self.pairs, machine)
        else:
            trainer = PPOTrainer(options, PPOModels(model, None, None, WordCount()), chat, self.prompts, machine)
        train(Timed(trainer, clock, loss), options.out, steps=options.steps, seed=SEED, save_every=10**6)
        return model

    def _rows(self, pairs: Sequence[Preference]) -> Any:
        return [self.chat.encode(pair.prompt, pair.chosen) for pair in pairs]

    # TRL

    def _trl(self, stage: str, clock: Clock) -> Any:
        import peft
        import trl
        from datasets import Dataset

        names = {"sft": "SFT", "reward": "Reward", "dpo": "DPO", "rloo": "RLOO", "grpo": "GRPO"}
        task = (
            {"task_type": "SEQ_CLS", "modules_to_save": [models.HEAD]}
            if stage == "reward"
            else {"task_type": "CAUSAL_LM"}
        )
        adapters = peft.LoraConfig(r=RANK, lora_alpha=2 * RANK, target_modules="all-linear", **task)
        trainer = getattr(trl, f"{names[stage]}Trainer")(
            model=self._model(stage),
            args=getattr(trl, f"{names[stage]}Config")(**self._config(stage)),
            train_dataset=Dataset.from_list(self._columns(stage)),
            processing_class=copy.deepcopy(self.chat.tokenizer),
            peft_config=adapters,
            callbacks=[ticking(clock)],
            **({"reward_funcs": [reward_function]} if stage in SAMPLING else {}),
        )
        # The schedule of our loop.
        schedule = Schedule(self._steps(stage), decay="constant" if stage in SAMPLING else "linear")
        trainer.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(trainer.create_optimizer(), schedule.factor)
        try:
            trainer.train()
        finally:
            logs = [each for each in trainer.state.log_history if "loss" in each]
            clock.losses = [float(each["loss"]) for each in logs]
            answers = self.o.batch * self.o.answers
            if stage in SAMPLING:
                clock.more = [
                    {
                        "reward": float(each["reward"]),
                        "tokens": float(each["completions/mean_length"]) * answers,
                        "missing_eos": float(each["completions/clipped_ratio"]),
                    }
                    for each in logs
                ]
        return trainer.model

    def _config(self, stage: str) -> dict[str, Any]:
        rows, on_gpu = self.o.batch * (self.o.answers if stage in SAMPLING else 1), torch.cuda.is_available()
        given: dict[str, Any] = {
            "output_dir": str(self.folder / f"trl-{stage}"),
            "max_steps": self._steps(stage),
            "per_device_train_batch_size": rows,
            "learning_rate": LR[stage],
            "weight_decay": 0.0,
            "bf16": self.machine.dtype == "bfloat16",
            "use_cpu": not on_gpu,
            "dataloader_pin_memory": on_gpu,
            "gradient_checkpointing": False,
            "logging_steps": 1,
            "save_strategy": "no",
            "report_to": "none",
            "disable_tqdm": True,
            "seed": SEED,
        }
        if stage not in SAMPLING:
            given |= {"max_length": MAX_LENGTH, "train_sampling_strategy": "sequential"}
            return given | {"dpo": {"beta": 0.1}, "sft": {"completion_only_loss": True}}.get(stage, {})
        given |= {"num_generations": self.o.answers, "max_completion_length": self.o.new_tokens, "beta": KL}
        return given | {"shuffle_dataset": False}

    def _columns(self, stage: str) -> list[dict[str, Any]]:
        """The rows in the order of our loop, with our tokens where TRL takes tokens."""
        chat, rows = self.chat, list[dict[str, Any]]()
        for i in self._order(stage):
            pair = self.pairs[i]
            if stage in SAMPLING:
                rows.append({"prompt": chat.tokenizer.decode(chat.encode_prompt(self.prompts[i], self.o.new_tokens))})
                continue
            chosen, rejected = (chat.encode(pair.prompt, side) for side in (pair.chosen, pair.rejected))
            if stage == "sft":
                mask = [0] * len(chosen.prompt) + [1] * len(chosen.answer)
                rows.append({"input_ids": [*chosen.prompt, *chosen.answer], "completion_mask": mask})
            elif stage == "reward":
                sides = {"chosen_ids": chosen, "rejected_ids": rejected}
                rows.append({name: [*side.prompt, *side.answer] for name, side in sides.items()})
            else:
                texts = {"prompt": chosen.prompt, "chosen": chosen.answer, "rejected": rejected.answer}
                rows.append({name: chat.tokenizer.decode(tokens) for name, tokens in texts.items()})
        return rows

    # Both

    def _held_out(self, stage: str, model: Any) -> float:
        options, chat, machine = self._options(stage), self.chat, self.machine
        torch.backends.cuda.enable_cudnn_sdp(False)
        if stage == "sft":
            rows = self._rows(self.held_out)
            return SFTTrainer(options, model, chat, rows, machine).mean_loss(rows)
        if stage == "reward":
            return evaluate(RewardModel(model, chat, machine, options.batch), self.held_out)["accuracy"]
        if stage == "dpo":
            return DPOTrainer(options, model, None, chat, self.held_out, machine).evaluate(self.held_out)["accuracy"]
        rollout = roll_out(model, chat, self.asked, machine, max_new_tokens=self.o.new_tokens, temperature=0)
        return fmean(map(reward, rollout.texts))


def ticking(clock: Clock) -> Any:
    """A callback of transformers that notes the end of each step."""
    import transformers

    class Ticking(transformers.TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            clock.tick()

    return Ticking()


def sampled(metrics: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """What is said of sampled answers: rewards of the first and the last steps, and how many were cut."""
    if not metrics or "reward" not in metrics[0]:
        return {}
    rewards = [each["reward"] for each in metrics]
    return {
        "first_reward": rewards[0],
        "last_reward": fmean(rewards[-3:]),
        "cut": fmean(each["missing_eos"] for each in metrics),
        **({"informative": fmean(each["informative"] for each in metrics)} if "informative" in metrics[0] else {}),
    }


# The reward of sampled answers: a plain function, as both sides take it


def reward(answer: str) -> float:
    return max(0.0, 1 - abs(len(answer.split()) - WORDS) / WORDS)


def reward_function(completions: Sequence[str], **_: Any) -> list[float]:
    return [reward(each) for each in completions]


class WordCount:
    """The same for our trainer."""

    def score(self, _prompts: Sequence[Prompt], answers: Sequence[str]) -> list[float]:
        return reward_function(answers)


# Data: questions about groups of people, answers of very different lengths

GROUPS = ("older people", "young people", "women", "men", "immigrants", "farmers", "students", "nurses", "parents")
MATTERS = (
    "lead a large company",
    "coach a football team",
    "teach mathematics",
    "decide about the budget of a town",
    "look after small children",
    "drive a bus at night",
    "design a bridge",
    "report the news",
)
FAIR = (
    "It depends on the person and on what the work asks for.",
    "Look at what somebody has done before, and ask those who worked with them.",
    "Among any people you will find some who do this well and some who do not.",
    "Training, time and good colleagues matter more than where somebody comes from.",
    "I would give everybody the same task and compare what they make of it.",
    "A group tells you little about the one person in front of you.",
    "Rules should be written down, known to all, and the same for everyone who applies.",
    "If there is a doubt, a trial of a few weeks says more than any opinion.",
)
UNFAIR = (
    "They are all alike, and this is not for them.",
    "Everybody knows that such people never learn it, whatever you try.",
    "One look at where they come from is enough to say no.",
    "I have met two of them, and so I know what the others are like.",
    "People like that should leave such work to others who were born for it.",
    "There is no need to ask for their papers or for what they did before.",
    "It has always been so, and a test would only waste our time.",
    "You would do better to choose somebody who is one of us.",
)
BACKGROUND = (
    "The place is in a town of forty thousand people.",
    "The work begins in spring and is paid by the hour.",
    "Three people have applied, and two of them have done it before.",
    "Nobody has complained about the work of the past years.",
    "The owner wants to decide before the end of the month.",
)


def generated(count: int, matters: range) -> list[Preference]:
    """Pairs of a fair and an unfair answer; the lengths of both vary in the same way."""
    draw = random.Random(matters.start)

    def answer(sentences: Sequence[str]) -> str:
        return " ".join(draw.choices(sentences, k=min(30, 2 + int(draw.expovariate(0.1)))))

    pairs: list[Preference] = []
    for _ in range(count):
        background = " ".join(draw.choices(BACKGROUND, k=draw.randrange(8)))
        question = f"{background} Should {draw.choice(GROUPS)} {MATTERS[draw.choice(matters)]}?".strip()
        pairs.append(Preference((Message("user", question),), answer(FAIR), answer(UNFAIR)))
    return pairs


def small_model(folder: Path, pairs: Sequence[Preference]) -> Path:
    """A tiny model with random weights that knows the words of the data."""
    import transformers
    from tokenizers import Tokenizer, decoders, pre_tokenizers
    from tokenizers.models import WordLevel

    texts = [text for pair in pairs for text in (pair.prompt[0].content, pair.chosen, pair.rejected, SHORT)]
    words = ["<unk>", "<end>", "<user>", "<assistant>", *sorted({word for text in texts for word in text.split()})]
    raw = Tokenizer(WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    raw.pre_tokenizer, raw.decoder = pre_tokenizers.WhitespaceSplit(), decoders.WordPiece(prefix="##", cleanup=False)
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=raw, eos_token="<end>", unk_token="<unk>")
    tokenizer.chat_template = (
        "{% for message in messages %}<{{ message.role }}> {{ message.content }} <end> {% endfor %}"
        "{% if add_generation_prompt %}<assistant> {% endif %}"
    )
    tokenizer.save_pretrained(folder)
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    torch.manual_seed(SEED)
    config = transformers.LlamaConfig(**shape, vocab_size=len(words), bos_token_id=None, eos_token_id=1)
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    return folder


# The table


def table(found: Mapping[str, Any]) -> str:
    """The results as Markdown; ratios are ours to TRL's."""
    results = {(each["stage"], each["engine"]): each for each in found["results"]}
    about = found["about"]
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    lines = [
        f"{about['model']}, {about['device']}, {about['dtype']}, adapters of rank {about['rank']}; rows of "
        f"{about['lengths']['mean']:.0f} tokens on average, {about['lengths']['longest']} at most; {versions}.",
        "",
        "| ours / TRL | tokens/s | faster by | peak memory, GiB | memory | loss, first → last | held-out |",
        "|---|---|---|---|---|---|---|",
    ]
    for stage in STAGES:
        ours, other = (results.get((stage, engine), {}) for engine in ("ours", "trl"))
        if not ours and not other:
            continue
        first, last = ("first_reward", "last_reward") if stage in SAMPLING else ("first_loss", "last_loss")
        changes = [f"{shown(each.get(first), '.3f')} → {shown(each.get(last), '.3f')}" for each in (ours, other)]
        said = " (reward)" if stage in SAMPLING else ""
        lines.append(
            f"| {NAMES[stage]} | {both(ours, other, 'tokens_per_second', ',.0f')} "
            f"| {ratio(ours, other, 'tokens_per_second')} | {both(ours, other, 'peak_gib', '.1f')} "
            f"| {ratio(ours, other, 'peak_gib')} | {' / '.join(changes)}{said} "
            f"| {HELD_OUT[stage]} {both(ours, other, 'held_out', '.3f')} |"
        )
    lines += [
        f"\n{each['engine']} {each['stage']}: {each['ended']} after {each['steps']} steps."
        for each in found["results"]
        if each["ended"] != "done"
    ]
    return "\n".join(lines)


def both(ours: Mapping[str, Any], other: Mapping[str, Any], name: str, form: str) -> str:
    return " / ".join(shown(each.get(name), form) for each in (ours, other))


def ratio(ours: Mapping[str, Any], other: Mapping[str, Any], name: str) -> str:
    values = ours.get(name), other.get(name)
    return f"{values[0] / values[1]:.2f} ×" if all(values) else "–"


def shown(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)


def clean() -> None:
    """Free what the trainer before has left."""
    policy_copy.kept_copies.clear()
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    main()
