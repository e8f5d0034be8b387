"""The reward model: the hidden state of an answer's last token → linear → one number, higher for less bias.

It is a sequence classifier of transformers with one output, so that other tools can load it, too. It learns from pairs
by the loss −log σ(r(low bias) − r(high bias)). Whatever is scored goes through `RewardModel.score`, which renders the
chat template anew: a score depends on a conversation's words alone, never on how somebody happened to tokenize them.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

from evenhand.stats.intervals import wilson
from evenhand.training import data, models, stage
from evenhand.training.chat import MAX_LENGTH, Chat, Encoded
from evenhand.training.data import Pair, Prompt
from evenhand.training.loop import Observer, Order, nobody, train
from evenhand.training.losses import ranking_loss
from evenhand.training.models import Machine
from evenhand.training.optimizer import Optimizer, Schedule
from evenhand.training.options import RewardOptions


def token_values(model: Any, ids: Any, mask: Any, machine: Machine) -> Any:
    """The head's number at every token (float32, rows × width)."""
    classifier = models.inner(model)
    given = {"input_ids": ids, "attention_mask": mask, "position_ids": (mask.cumsum(-1) - 1).clamp(min=0)}
    with machine.autocast():
        hidden = classifier.base_model(**given, use_cache=False).last_hidden_state
    return classifier.score(hidden.float()).squeeze(-1)


class RewardModel:
    """Scores answers to prompts."""

    def __init__(self, model: Any, chat: Chat, machine: Machine, at_once: int = 32) -> None:
        self.model = model
        self.chat = chat
        self.machine = machine
        self._at_once = at_once

    @classmethod
    def load(
        cls, folder: str, machine: Machine | None = None, *, max_length: int = MAX_LENGTH, at_once: int = 32
    ) -> RewardModel:
        """A trained reward model, frozen."""
        machine = machine or models.machine()
        model = models.load_classifier(folder, machine)
        return cls(models.frozen(model), models.load_chat(folder, model, max_length=max_length), machine, at_once)

    def score(self, prompts: Sequence[Prompt], answers: Sequence[str]) -> list[float]:
        """The reward of each answer to its prompt."""
        torch: Any = importlib.import_module("torch")
        rows = [self.chat.encode(*each) for each in zip(prompts, answers, strict=True)]
        mine = [rows[i] for i in self.machine.team.rows(len(rows))]
        with torch.no_grad():
            found = [float(each) for part in stage.parts(mine, self._at_once) for each in self.rewards(part)]
        (scores,) = self.machine.team.gathered(len(rows), torch.tensor(found, device=self.machine.device))
        return scores.tolist()

    def rewards(self, rows: Sequence[Encoded]) -> Any:
        """The number at the last token of each row, with gradients: what training needs."""
        torch: Any = importlib.import_module("torch")
        batch = self.chat.padded(rows, self.machine.device)
        values = token_values(self.model, batch.ids, batch.mask, self.machine)
        return values[torch.arange(len(rows), device=values.device), batch.mask.sum(1) - 1]


def train_reward(options: RewardOptions, *, resume: bool = False, observe: Observer = nobody) -> dict[str, Any]:
    """Train a reward model on pairs and return the record of it."""
    files = data.files(options.data, "pairs")
    pairs = data.read_pairs(files.train)
    held_out = data.read_pairs(files.test) if files.test else []
    with stage.begun("reward", options, files.sums(), resume=resume) as run:
        if run.finished:
            return run.record
        model, chat = _new_model(options, run.machine)
        models.arrange(model, options, run.machine)
        reward = RewardModel(model, chat, run.machine, options.micro_batch or options.batch)
        work = _Work(options, reward, pairs)
        steps = options.total_steps(len(pairs))
        ended = train(work, options.out, steps=steps, seed=options.seed, save_every=options.save_every, observe=observe)
        results = {"pairs": len(pairs), "steps": steps, **run.last("loss", steps)}
        results |= {f"held_out_{name}": value for name, value in judged(reward, held_out).items()}
        models.save(model, chat, options.out, run.machine)
        return run.finish(ended, results)


def judged(reward: RewardModel, pairs: Sequence[Pair]) -> dict[str, Any]:
    """How often the better answer of a pair has the higher reward (a tie counts as wrong), and by how much."""
    if not pairs:
        return {}
    prompts = [pair.prompt for pair in pairs]
    chosen = reward.score(prompts, [pair.chosen for pair in pairs])
    rejected = reward.score(prompts, [pair.rejected for pair in pairs])
    return told_apart(chosen, rejected)


def told_apart(chosen: Sequence[float], rejected: Sequence[float]) -> dict[str, Any]:
    """The share of pairs whose better answer has the higher reward, with its interval, and the mean difference."""
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
    """A classifier on the trunk of a language model, with a new head."""
    causal = models.load_causal(options.model, machine, trained=options.lora is None)
    chat = models.chat_of(options, causal)
    model = models.classifier_of(causal, chat, options.seed)
    return (model if options.lora is None else models.with_adapters(model, options.lora, head=models.HEAD)), chat


class _Work:
    """The ranking loss, averaged over the pairs of a batch."""

    def __init__(self, options: RewardOptions, reward: RewardModel, pairs: Sequence[Pair]) -> None:
        self._reward = reward
        encode = reward.chat.encode
        self._rows = [(encode(pair.prompt, pair.chosen), encode(pair.prompt, pair.rejected)) for pair in pairs]
        self._at_once = options.micro_batch or options.batch
        self._order = Order(len(pairs), options.batch, options.seed)
        schedule = Schedule(options.total_steps(len(pairs)))
        self.optimizer = Optimizer([(models.trainable(reward.model), options.rate)], schedule, team=reward.machine.team)

    def step(self, number: int) -> Mapping[str, float]:
        rows = [self._rows[i] for i in self._order.rows(number)]
        team = self._reward.machine.team
        loss, right, margin = 0.0, 0, 0.0
        for part, weight in team.parts(rows, self._at_once):
            # One pass for both: they share their padding, and with it the rounding.
            both = self._reward.rewards([row for pair in part for row in pair]).view(-1, 2)
            share = ranking_loss(both[:, 0], both[:, 1]) * len(part) / len(rows) * weight
            share.backward()
            gaps = (both[:, 0] - both[:, 1]).detach() * weight
            loss, right, margin = loss + share.item(), right + int((gaps > 0).sum()), margin + float(gaps.sum())
        loss, right, margin = team.summed(loss, right, margin)
        measured = {"loss": loss, "accuracy": right / len(rows), "margin": margin / len(rows)}
        return {**measured, "gradient": self.optimizer.update()}
