"""The reward model: the hidden state of an answer's last token → linear head → one number, higher for less bias.

It is a transformers sequence classifier with one output, so other tools can load it. Its loss on pairs is
−log σ(r(low bias) − r(high bias)). All scoring goes through `RewardModel.score`, which applies the chat template
itself, so that a score depends only on the words of a conversation and not on how they were tokenized elsewhere.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

from evenhand.stats.intervals import wilson
from evenhand.training import data, models, stage
from evenhand.training.chat import MAX_LENGTH, Chat, Encoded
from evenhand.training.data import Preference, Prompt
from evenhand.training.loop import BatchSampler, Observer, nobody, train
from evenhand.training.losses import ranking_loss
from evenhand.training.models import Machine
from evenhand.training.optimizer import Optimizer, Schedule
from evenhand.training.options import RewardOptions


def token_values(model: Any, ids: Any, mask: Any, machine: Machine) -> Any:
    """Return the output of the head at every token (float32, rows × width)."""
    classifier = models.unwrapped(model)
    inputs = {"input_ids": ids, "attention_mask": mask, "position_ids": (mask.cumsum(-1) - 1).clamp(min=0)}
    with machine.autocast():
        hidden = classifier.base_model(**inputs, use_cache=False).last_hidden_state
    return classifier.score(hidden.float()).squeeze(-1)


class RewardModel:
    """Scores answers to prompts, `batch` of them in one forward pass."""

    def __init__(self, model: Any, chat: Chat, machine: Machine, batch: int = 32) -> None:
        self.model = model
        self.chat = chat
        self.machine = machine
        self._batch = batch

    @classmethod
    def load(
        cls, folder: str, machine: Machine | None = None, *, max_length: int = MAX_LENGTH, batch: int = 32
    ) -> RewardModel:
        """Load a trained reward model, frozen."""
        machine = machine or models.machine()
        model = models.load_classifier(folder, machine)
        return cls(models.frozen(model), models.load_chat(folder, model, max_length=max_length), machine, batch)

    def score(self, prompts: Sequence[Prompt], answers: Sequence[str]) -> list[float]:
        """Return the reward of each answer to its prompt."""
        torch: Any = importlib.import_module("torch")
        rows = [self.chat.encode(*each) for each in zip(prompts, answers, strict=True)]
        own = [rows[i] for i in self.machine.team.own_rows(len(rows))]
        with torch.no_grad():
            rewards = [float(each) for chunk in stage.chunks(own, self._batch) for each in self.rewards(chunk)]
        (scores,) = self.machine.team.all_gather(len(rows), torch.tensor(rewards, device=self.machine.device))
        return scores.tolist()

    def rewards(self, rows: Sequence[Encoded]) -> Any:
        """Return the output at the last token of each row, with gradients for training."""
        torch: Any = importlib.import_module("torch")
        batch = self.chat.pad(rows, self.machine.device)
        values = token_values(self.model, batch.ids, batch.mask, self.machine)
        return values[torch.arange(len(rows), device=values.device), batch.mask.sum(1) - 1]


def train_reward(options: RewardOptions, *, resume: bool = False, observe: Observer = nobody) -> dict[str, Any]:
    """Train a reward model on pairs and return the training's record."""
    files = data.find_files(options.data, "pairs")
    pairs = data.read_pairs(files.train)
    held_out = data.read_pairs(files.test) if files.test else []
    with stage.training_run("reward", options, files.checksums(), resume=resume) as run:
        if run.finished:
            return run.record
        model, chat = _new_model(options, run.machine)
        models.prepare(model, options, run.machine)
        reward = RewardModel(model, chat, run.machine, options.micro_batch or options.batch)
        trainer = RewardTrainer(options, reward, pairs)
        steps = options.total_steps(len(pairs))
        ended = train(
            trainer, options.out, steps=steps, seed=options.seed, save_every=options.save_every, observe=observe
        )
        results = {"pairs": len(pairs), "steps": steps, **run.first_and_last("loss", steps)}
        results |= {f"held_out_{name}": value for name, value in evaluate(reward, held_out).items()}
        models.save(model, chat, options.out, run.machine)
        return run.finish(ended, results)


def evaluate(reward: RewardModel, pairs: Sequence[Preference]) -> dict[str, Any]:
    """Return the accuracy of a reward model on pairs."""
    if not pairs:
        return {}
    prompts = [pair.prompt for pair in pairs]
    chosen = reward.score(prompts, [pair.chosen for pair in pairs])
    rejected = reward.score(prompts, [pair.rejected for pair in pairs])
    return pair_accuracy(chosen, rejected)


def pair_accuracy(chosen: Sequence[float], rejected: Sequence[float]) -> dict[str, Any]:
    """Return the share of pairs whose chosen answer has the higher reward, with its interval, and the mean margin.

    A tie counts as wrong.
    """
    margins = [better - worse for better, worse in zip(chosen, rejected, strict=True)]
    right = sum(margin > 0 for margin in margins)
    interval = wilson(right, len(margins))
    return {
        "pairs": len(margins),
        "accuracy": right / len(margins),
        "accuracy_low": interval.low,
        "accuracy_high": interval.high,
        "margin": sum(margins) / len(margins),
    }


def _new_model(options: RewardOptions, machine: Machine) -> tuple[Any, Chat]:
    """Make a classifier with a new head from the language model that the options name."""
    causal = models.load_causal(options.model, machine, trained=options.lora is None)
    chat = models.chat_of(options, causal)
    model = models.classifier_of(causal, chat, options.seed)
    return (model if options.lora is None else models.with_adapters(model, options.lora, head=models.HEAD)), chat


class RewardTrainer:
    """Minimizes the ranking loss, averaged over the pairs of a batch."""

    def __init__(self, options: RewardOptions, reward: RewardModel, pairs: Sequence[Preference]) -> None:
        self._reward = reward
        encode = reward.chat.encode
        self._rows = [(encode(pair.prompt, pair.chosen), encode(pair.prompt, pair.rejected)) for pair in pairs]
        self._micro_batch = options.micro_batch or options.batch
        self._sampler = BatchSampler(len(pairs), options.batch, options.seed)
        schedule = Schedule(options.total_steps(len(pairs)))
        self.optimizer = Optimizer([(models.trainable(reward.model), options.lr)], schedule, team=reward.machine.team)

    def step(self, number: int) -> Mapping[str, float]:
        rows = [self._rows[i] for i in self._sampler.rows(number)]
        team = self._reward.machine.team
        loss, right, margin = 0.0, 0, 0.0
        for micro_batch, weight in team.micro_batches(rows, self._micro_batch):
            # One pass for both sides gives them the same padding, and so the same rounding.
            both = self._reward.rewards([row for pair in micro_batch for row in pair]).view(-1, 2)
            share = ranking_loss(both[:, 0], both[:, 1]) * len(micro_batch) / len(rows) * weight
            share.backward()
            margins = (both[:, 0] - both[:, 1]).detach() * weight
            loss, right, margin = loss + share.item(), right + int((margins > 0).sum()), margin + float(margins.sum())
        loss, right, margin = team.all_sum(loss, right, margin)
        metrics = {"loss": loss, "accuracy": right / len(rows), "margin": margin / len(rows)}
        return {**metrics, "grad_norm": self.optimizer.update()}
