"""Supervised fine-tuning on low-bias answers. Only answer tokens carry loss, prompts do not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from evenhand.core.lazy import torch
from evenhand.core.progress import Count, ignore
from evenhand.training import data, models, stage
from evenhand.training.chat import Chat, Encoded
from evenhand.training.loop import BatchSampler, Optimizer, Schedule
from evenhand.training.losses import answer_logprobs, answer_losses
from evenhand.training.models import Machine
from evenhand.training.options import SFTOptions


def train_sft(options: SFTOptions, *, resume: bool = False, observe: Count = ignore) -> dict[str, Any]:
    """Fine-tune a model and return the training's record; the folder `out` can then be used as hf/OUT."""
    files = data.find_files(options.data, "sft")
    examples = data.read_examples(files.train)
    held_out = data.read_examples(files.test) if files.test else []
    with stage.training_run("sft", options, files.checksums(), resume=resume) as run:
        if run.finished:
            return run.record
        model = models.load_policy(options, run.machine)
        chat = models.chat_of(options, model)
        models.prepare(model, options, run.machine)
        rows = [chat.encode(each.prompt, each.answer) for each in examples]
        trainer = SFTTrainer(options, model, chat, rows, run.machine)
        test = [chat.encode(each.prompt, each.answer) for each in held_out]
        steps = options.total_steps(len(examples))
        ended = run.train(trainer, steps, observe)
        results = {"examples": len(examples), "steps": steps, **run.first_and_last("loss", steps)}
        if test:
            results |= {"held_out_examples": len(test), "held_out_loss": trainer.mean_loss(test)}
        models.save(model, chat, options.out, run.machine, keep_adapter=options.keep_adapter)
        return run.finish(ended, results)


class SFTTrainer:
    """Minimizes the negative log likelihood of answer tokens, averaged over the answer tokens of a batch.

    With `equal_rows` it is averaged over the tokens of each answer first, so that long answers do not count more.
    `kept` are answers of the untrained model, for `equal_rows` only: there, the loss is `keep` times the KL divergence
    from it (`answer_losses`). `reference` is a frozen copy of the untrained model; None with adapters, which are
    switched off for it.
    """

    def __init__(
        self,
        options: SFTOptions,
        model: Any,
        chat: Chat,
        rows: Sequence[Encoded],
        machine: Machine,
        *,
        equal_rows: bool = False,
        kept: Sequence[Encoded] = (),
        keep: float = 0.0,
        reference: Any = None,
    ) -> None:
        self._model, self._chat, self._machine = model, chat, machine
        self._rows = [*((row, False) for row in rows), *((row, keep > 0) for row in kept)]
        """Each with whether the divergence counts instead of the likelihood."""
        self._equal_rows, self._keep, self._reference = equal_rows, keep if kept else 0.0, reference
        self._micro_batch = options.micro_batch or options.batch
        self._sampler = BatchSampler(len(self._rows), options.batch, options.seed)
        schedule = Schedule.of(options, len(self._rows))
        self.optimizer = Optimizer([(models.trainable(model), options.lr)], schedule, team=machine.team)

    def step(self, number: int) -> Mapping[str, float]:
        # Sorted, so that a micro-batch has rows of similar length and little padding.
        drawn = sorted((self._rows[i] for i in self._sampler.rows(number)), key=lambda each: each[0].length)
        tokens = sum(len(row.answer) for row, _ in drawn)
        total = 0.0
        with models.adapter_dropout(self._model):
            for micro_batch, weight in self._machine.team.micro_batches(drawn, self._micro_batch):
                loss = self._loss(micro_batch, len(drawn), tokens) * weight
                loss.backward()
                total += loss.item()
        (total,) = self._machine.team.all_sum(total)
        return {"loss": total, "grad_norm": self.optimizer.update(), "tokens": tokens}

    def mean_loss(self, rows: Sequence[Encoded]) -> float:
        """Return the mean loss per answer token, without training."""
        team = self._machine.team
        with torch.no_grad():
            losses = [
                float(self._losses(micro_batch).sum()) * weight
                for micro_batch, weight in team.micro_batches(rows, self._micro_batch)
            ]
        (total,) = team.all_sum(sum(losses))
        return total / sum(len(row.answer) for row in rows)

    def _loss(self, drawn: Sequence[tuple[Encoded, bool]], rows: int, tokens: int) -> Any:
        """Return the part of a micro-batch in the loss of a step."""
        learned, kept = ([row for row, is_kept in drawn if is_kept is diverges] for diverges in (False, True))
        held = 0.0
        if self._keep:
            losses, apart = answer_losses(self._model, self._reference, self._chat, learned, kept, self._machine)
            held = self._keep * apart.sum()
        else:
            losses = self._losses(learned)
        if not self._equal_rows:
            return losses.sum() / tokens
        return ((losses / losses.new_tensor([len(row.answer) for row in learned])).sum() + held) / rows

    def _losses(self, rows: Sequence[Encoded]) -> Any:
        """Return the summed loss of each row."""
        return -answer_logprobs(self._model, self._chat, rows, self._machine)
