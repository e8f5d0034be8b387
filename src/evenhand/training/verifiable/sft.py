"""Fine-tuning on the right answers, mixed with the model's own answers to general prompts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evenhand.core.progress import Announce
from evenhand.training import models, stage
from evenhand.training.chat import Encoded
from evenhand.training.loop import train
from evenhand.training.options import SFTOptions
from evenhand.training.sft import SFTTrainer
from evenhand.training.verifiable import general
from evenhand.training.verifiable.evaluation import FOLDER, answer_questions
from evenhand.training.verifiable.questions import Questions, check_spelling, prompt_of

if TYPE_CHECKING:
    from evenhand.training.verifiable import VerifiableOptions

_GENERAL_BATCH = 128


def train_sft(
    whole: VerifiableOptions, options: SFTOptions, questions: Questions, *, resume: bool, announce: Announce
) -> dict[str, Any]:
    """Fine-tune the model and answer the held-out questions before and after; return the stage's record."""
    with stage.training_run("verifiable-sft", options, questions.checksums, resume=resume) as run:
        if run.finished:
            return run.record
        model = models.load_policy(options, run.machine)
        chat = models.chat_of(options, model)
        models.check_room(chat, whole.max_new_tokens)
        check_spelling(questions.train, chat, options.model)
        models.prepare(model, options, run.machine)

        def evaluate(name: str) -> None:
            path, observe = whole.out / FOLDER / f"{name}.jsonl", announce(f"held-out questions: {name}")
            answer_questions(model, chat, run.machine, questions.dev, path, whole.max_new_tokens, observe)

        evaluate("before")
        rows: list[Encoded] = [chat.encode(prompt_of(row), row.answer) for row in questions.train]
        count = round(len(rows) * whole.general / (1 - whole.general))
        if count:
            rows += general.own_answers(
                model, chat, run.machine, whole.out / general.FILE, count=count, seed=options.seed,
                max_new_tokens=whole.max_new_tokens, batch=_GENERAL_BATCH, observe=announce("general answers"),
            )  # fmt: skip
        trainer = SFTTrainer(options, model, chat, rows, run.machine, equal_rows=True)
        steps = options.total_steps(len(rows))
        observe = announce("sft")
        ended = train(
            trainer, options.out, steps=steps, seed=options.seed, save_every=options.save_every, observe=observe
        )
        evaluate("sft")
        models.save(model, chat, options.out, run.machine, keep_adapter=options.keep_adapter)
        about = {"questions": len(questions.train), "general_answers": len(rows) - len(questions.train), "steps": steps}
        return run.finish(ended, about | run.first_and_last("loss", steps))
