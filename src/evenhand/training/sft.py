"""Supervised fine-tuning: the model learns the low-bias answers, and only those; prompts carry no loss."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

from evenhand.training import data, models, stage
from evenhand.training.chat import Chat, Encoded
from evenhand.training.loop import Observer, Order, nobody, train
from evenhand.training.losses import answer_logprobs
from evenhand.training.models import Machine
from evenhand.training.optimizer import Optimizer, Schedule
from evenhand.training.options import SFTOptions


def train_sft(options: SFTOptions, *, resume: bool = False, observe: Observer = nobody) -> dict[str, Any]:
    """Fine-tune a model and return the record of it; the folder `out` can then be used as hf/OUT."""
    files = data.files(options.data, "sft")
    examples = data.read_examples(files.train)
    held_out = data.read_examples(files.test) if files.test else []
    with stage.begun("sft", options, files.sums(), resume=resume) as run:
        if run.finished:
            return run.record
        model = models.load_policy(options, run.machine)
        chat = models.chat_of(options, model)
        models.arrange(model, options, run.machine)
        work = _Work(options, model, chat, [chat.encode(each.prompt, each.answer) for each in examples], run.machine)
        test = [chat.encode(each.prompt, each.answer) for each in held_out]
        steps = options.total_steps(len(examples))
        ended = train(work, options.out, steps=steps, seed=options.seed, save_every=options.save_every, observe=observe)
        results = {"examples": len(examples), "steps": steps, **run.last("loss", steps)}
        if test:
            results |= {"held_out_examples": len(test), "held_out_loss": work.mean_loss(test)}
        models.save(model, chat, options.out, run.machine, keep_adapter=options.keep_adapter)
        return run.finish(ended, results)


class _Work:
    """The negative log likelihood of answer tokens, averaged over all those of a batch."""

    def __init__(self, options: SFTOptions, model: Any, chat: Chat, rows: Sequence[Encoded], machine: Machine) -> None:
        self._model, self._chat, self._rows, self._machine = model, chat, rows, machine
        self._batch, self._at_once = options.batch, options.micro_batch or options.batch
        self._order = Order(len(rows), options.batch, options.seed)
        schedule = Schedule(options.total_steps(len(rows)))
        self.optimizer = Optimizer([(models.trainable(model), options.rate)], schedule, team=machine.team)

    def step(self, number: int) -> Mapping[str, float]:
        rows = [self._rows[i] for i in self._order.rows(number)]
        tokens = sum(len(row.answer) for row in rows)
        total = 0.0
        for part, weight in self._machine.team.parts(rows, self._at_once):
            loss = self._summed_loss(part) / tokens * weight
            loss.backward()
            total += loss.item()
        (total,) = self._machine.team.summed(total)
        return {"loss": total, "gradient": self.optimizer.update(), "tokens": tokens}

    def mean_loss(self, rows: Sequence[Encoded]) -> float:
        torch: Any = importlib.import_module("torch")
        team = self._machine.team
        with torch.no_grad():
            found = [float(self._summed_loss(part)) * weight for part, weight in team.parts(rows, self._at_once)]
        (total,) = team.summed(sum(found))
        return total / sum(len(row.answer) for row in rows)

    def _summed_loss(self, rows: Sequence[Encoded]) -> Any:
        return -answer_logprobs(self._model, self._chat, rows, self._machine).sum()
