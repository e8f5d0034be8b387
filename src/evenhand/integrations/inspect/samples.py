"""Samples as Inspect has them and back, and a method's outcome in Inspect's state of a sample."""

from __future__ import annotations

import string
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import orjson
from inspect_ai.dataset import Sample as InspectSample
from inspect_ai.model import ChatMessage, ChatMessageAssistant, ChatMessageSystem, ChatMessageUser, ModelOutput
from inspect_ai.solver import TaskState

from evenhand.core.errors import EvenhandError, UsageError
from evenhand.core.types import Answer, Cut, Message, Outcome, Refusal, Result, Sample, Snapshot, Unscored
from evenhand.models.request import to_json
from evenhand.runs.store import outcome_json, sample_from

KEY = "evenhand"
"""Where a sample's metadata has what Inspect has no field for, and its store the outcome."""
_RESULTS = {"Answer": Answer, "Refusal": Refusal, "Unscored": Unscored, "Cut": Cut}
_OWN = ("id", "metadata")
"""Fields that an Inspect sample has too."""


@contextmanager
def plain_errors() -> Generator[None]:
    """Our errors as those of Inspect that are shown without a traceback."""
    from inspect_ai._util.error import PrerequisiteError

    try:
        yield
    except EvenhandError as error:
        raise PrerequisiteError(str(error)) from error


def inspect_sample(sample: Sample, benchmark: str, options: Mapping[str, Any]) -> InspectSample:
    """The sample in Inspect's form; its metadata names the benchmark, for the grade."""
    plain = plain_values(sample)
    rest = {name: value for name, value in plain.items() if name not in _OWN}
    return InspectSample(
        input=input_of(sample),
        choices=list(sample.choices) or None,
        target=target_of(sample),
        id=sample.id,
        metadata={**plain["metadata"], KEY: {"benchmark": benchmark, "options": dict(options), "sample": rest}},
    )


def input_of(sample: Sample) -> str | list[ChatMessage]:
    if sample.messages:
        return [chat_message(each) for each in sample.messages]
    return "\n\n".join(filter(None, (sample.context, sample.prompt)))


def target_of(sample: Sample) -> str | list[str]:
    """The target as Inspect's scorers want it: the letter of a choice, texts, or JSON."""
    target = sample.target
    if sample.kind == "choice" and isinstance(target, int) and 0 <= target < len(string.ascii_uppercase):
        return string.ascii_uppercase[target]
    if isinstance(target, str):
        return target
    if isinstance(target, Sequence) and all(isinstance(each, str) for each in target):  # pyright: ignore[reportUnknownVariableType]
        return list(target)  # pyright: ignore[reportUnknownArgumentType]
    return "" if target is None else orjson.dumps(target).decode()


def chat_message(message: Message) -> ChatMessage:
    kinds = {"system": ChatMessageSystem, "user": ChatMessageUser, "assistant": ChatMessageAssistant}
    return kinds[message.role](content=message.content)


def own_sample(sample_id: str, metadata: Mapping[str, Any]) -> Sample | None:
    """Our sample behind a sample of one of our tasks; None for one of another task."""
    about = metadata.get(KEY)
    if about is None:
        return None
    fields = {name: value for name, value in metadata.items() if name != KEY}
    return sample_from({**about["sample"], "id": sample_id, "metadata": fields})


def sample_of(state: TaskState) -> Sample:
    """The sample to solve. One of another task is a question with choices, or a conversation."""
    sample_id = str(state.sample_id)
    if (own := own_sample(sample_id, state.metadata)) is not None:
        return own
    choices = tuple(choice.value for choice in state.choices)
    if choices:
        return Sample(sample_id, "choice", state.input_text, choices=choices, metadata=state.metadata)
    messages = tuple(_message(each) for each in state.messages)
    return Sample(sample_id, "chat", state.input_text, metadata=state.metadata, messages=messages)


def _message(message: ChatMessage) -> Message:
    content = message.content
    if message.role == "tool" or (not isinstance(content, str) and any(part.type != "text" for part in content)):
        raise UsageError("Methods of Evenhand take conversations of text alone, without tools and images.")
    return Message(message.role, message.text)


def keep_outcome(state: TaskState, sample: Sample, outcome: Outcome) -> None:
    """Store the outcome, and show its result as Inspect's scorers and its viewer expect it."""
    state.store.set(KEY, plain_values(outcome_json(outcome)))
    result = outcome.result
    text = result.raw if isinstance(result, Unscored) else result.text
    state.output = ModelOutput.from_content(str(state.model), text, stop_reason=stop_reason(result))
    state.messages.append(ChatMessageAssistant(content=text))
    if isinstance(result, Answer) and result.choice is not None and sample.kind == "choice":
        for number in range(len(state.choices)):
            state.choices.mark_choice(number, number == result.choice)


def stop_reason(result: Result) -> Literal["stop", "content_filter", "max_tokens"]:
    kinds = {"Refusal": "content_filter", "Cut": "max_tokens"}
    return kinds.get(type(result).__name__, "stop")  # pyright: ignore[reportReturnType]


def outcome_of(state: TaskState, sample: Sample) -> Outcome | None:
    """What a solver left in the state, ours or any other; None if it left nothing."""
    stored = state.store.get(KEY)
    if stored is not None:
        return Outcome(
            result_from(stored["result"]),
            stored["stop"],
            tuple(
                Snapshot(each["iteration"], result_from(each["result"]), each["notes"]) for each in stored["snapshots"]
            ),
            stored["notes"],
        )
    text = state.output.completion
    if state.output.choices and state.output.stop_reason == "content_filter":
        return Outcome(Refusal(text))
    marked = [number for number, choice in enumerate(state.choices) if choice.correct]
    if sample.kind == "choice" and len(marked) == 1:
        return Outcome(Answer(sample.choices[marked[0]], marked[0]))
    if not text:
        return None
    if sample.kind == "choice":
        return Outcome(Unscored("the answer names no option", text))
    return Outcome(Answer(text))


def result_from(value: Mapping[str, Any]) -> Result:
    return _RESULTS[value["type"]](**value["value"])


def plain_values(value: Any) -> Any:
    return orjson.loads(to_json(value))
