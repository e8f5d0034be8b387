"""Reinforcement learning with a verifiable reward: the policy's answers to questions are graded exactly.

The algorithm is that of `ppo`, without a critic (RLOO by default), and the reward model is a grader.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from evenhand.core.progress import Announce
from evenhand.training import models, stage
from evenhand.training.chat import Chat
from evenhand.training.models import Machine
from evenhand.training.options import PPOOptions
from evenhand.training.ppo import PPOTrainer
from evenhand.training.ppo.loaded import PPOModels
from evenhand.training.verifiable.evaluation import FOLDER, Grader, answer_questions
from evenhand.training.verifiable.questions import Questions, prompt_of

if TYPE_CHECKING:
    from evenhand.training.verifiable import VerifiableOptions


def train_rl(
    whole: VerifiableOptions, options: PPOOptions, questions: Questions, *, resume: bool, announce: Announce
) -> dict[str, Any]:
    """Go on with the fine-tuned model and answer the held-out questions after it; return the stage's record."""
    with stage.training_run("verifiable-rl", options, questions.checksums, resume=resume) as run:
        if run.finished:
            return run.record
        actor, chat = load_actor(options, run.machine)
        reference = models.frozen_reference(actor, None) if options.lora is None else None
        for model in (actor, reference):
            models.prepare(model, options, run.machine)
        prompts = list(dict.fromkeys(prompt_of(row) for row in questions.rl))
        held_out = [prompt_of(row) for row in questions.dev]
        loaded = PPOModels(actor, reference, None, Grader([*questions.rl, *questions.dev]))
        trainer = PPOTrainer(options, loaded, chat, prompts, run.machine, held_out, partial(load_actor, options))
        ended, results = trainer.train(run, resume=resume, observe=announce("rl"))
        path, observe = whole.out / FOLDER / "rl.jsonl", announce("held-out questions: rl")
        answer_questions(actor, chat, run.machine, questions.dev, path, whole.max_new_tokens, observe)
        models.save(actor, chat, options.out, run.machine, keep_adapter=options.keep_adapter)
        return run.finish(ended, results)


def load_actor(options: PPOOptions, machine: Machine) -> tuple[Any, Chat]:
    """Load the fine-tuned model, or its adapter, to go on training it."""
    full = options.lora is None
    actor = models.load_policy(options, machine) if full else models.load_adapted(options.model, machine)
    return actor, models.chat_of(options, actor)
