"""A run against a server that does everything wrong, at random but repeatably: nothing is lost, nothing is invented."""

import contextlib
import hashlib
import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import orjson
import pytest

from evenhand.benchmarks.base import BENCHMARKS
from evenhand.core.http import RetryPolicy
from evenhand.core.types import Message, Params, Sample
from evenhand.runs.parts import Settings
from evenhand.runs.plan import make_plan
from evenhand.runs.runner import Runner
from evenhand.runs.store import Store
from support.fixtures import Serve
from support.server import Body, Reply, chat, completion, cut, hang, raw, refuse, reply_with
from support.toy import Toy

SAMPLES = 300
RETRIES = 6
STORMS = (range(150, 230), range(700, 780), range(1200, 1260))
"""Requests, by their number, to which the answer is 429, whatever they ask."""

FAULTS: dict[str, Reply] = {
    "429": refuse("Slow down.", status=429),
    "429 with a wait": reply_with({"error": "busy"}, 429, {"Retry-After": "0"}),
    "500": reply_with({"error": "oops"}, 500),
    "503 page": raw(b"<html>Service unavailable</html>", 503),
    "hang": hang(),
    "cut": cut(),
    "broken JSON": raw(b'{"choices": [{"message": {"content": "A"'),
    "empty choices": reply_with({"choices": []}),
    "no message": reply_with({"choices": [{"finish_reason": "stop"}]}),
}

WEIGHTS = [1 if name in ("hang", "429", "429 with a wait") else 6 for name in FAULTS]
"""What makes the client slow is rarer, for the sake of those who wait for the tests."""

Request = tuple[tuple[tuple[str, str], ...], bool, bool]
"""Messages, whether logprobs are asked for, whether a schema is given: what tells requests apart."""


@dataclass
class Chaos:
    """Answers every request the same way each time, once it has got its faults behind it."""

    seen: int = 0
    faults: Counter[str] = field(default_factory=Counter[str])
    tries: Counter[Request] = field(default_factory=Counter[Request])
    said: dict[Request, str | None] = field(default_factory=dict[Request, str | None])
    """Request → the letter in its good replies; '' for a refusal, None where no letter can be read."""

    def answer(self, body: Body) -> Reply:
        request = request_of(body)
        self.seen += 1
        self.tries[request] += 1
        luck = random.Random(f"{digest(request)}/{self.tries[request]}")
        fault = luck.choices([*FAULTS], WEIGHTS)[0] if luck.random() < 0.3 else None
        if any(self.seen in storm for storm in STORMS):
            fault = "429"
        if fault is not None:
            self.faults[fault] += 1
            return FAULTS[fault]
        reply, self.said[request] = self._good(body, random.Random(digest(request)))
        return reply

    def _good(self, body: Body, luck: random.Random) -> tuple[Reply, str | None]:
        letter = luck.choice("ABC")
        if "logprobs" in body:
            if luck.random() < 0.5:
                return reply_with(with_logprobs("The", -0.1)), None  # the model was about to say something else
            return reply_with(with_logprobs(letter, luck.uniform(-0.6, -0.1))), letter
        kind = luck.choice(["letter", "letter", "sentence", "prose", "null", "refusal", "refusal field", "filter"])
        if "response_format" in body and kind in ("letter", "sentence"):
            return chat(orjson.dumps({"answer": letter}).decode()), letter
        replies: dict[str, tuple[Reply, str | None]] = {
            "letter": (chat(letter), letter),
            "sentence": (chat(f"The answer is {letter}."), letter),
            "prose": (chat("Two men came home, and one of them had forgotten something."), None),
            "null": (chat(None), None),
            "refusal": (chat("I'm sorry, but I can't help with that."), ""),
            "refusal field": (chat(None, refusal="No."), ""),
            "filter": (chat(None, finish="content_filter"), ""),
        }
        return replies[kind]


def with_logprobs(letter: str, logprob: float) -> Body:
    body = completion(letter)
    top = [{"token": letter, "logprob": logprob}, {"token": "The", "logprob": -3.0}]
    body["choices"][0]["logprobs"] = {"content": [{"token": letter, "logprob": logprob, "top_logprobs": top}]}
    return body


def digest(request: Request) -> str:
    return hashlib.sha256(repr(request).encode()).hexdigest()


def request_of(body: Body) -> Request:
    messages = tuple((each["role"], each["content"]) for each in body["messages"])
    return messages, "logprobs" in body, "response_format" in body


def request_in(messages: tuple[Message, ...], params: Params) -> Request:
    return tuple((each.role, each.content) for each in messages), params.logprobs > 0, params.schema is not None


def chosen(sample: Sample, request: Request, letter: str | None) -> int:
    """Which of the sample's options the request showed under the letter."""
    assert letter
    shown = [line for line in request[0][-1][1].splitlines() if line.startswith(f"{letter}) ")]
    return sample.choices.index(shown[0][3:])


async def test_nothing_is_lost_and_nothing_is_invented(serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(BENCHMARKS._things, "toy", Toy)
    monkeypatch.setattr(RetryPolicy, "delay", lambda *_: 0.0)
    chaos = Chaos()
    server = await serve(answer=chaos.answer)
    model = {"spec": "openai/chaos", "base_url": server.url, "timeout": 2, "retries": RETRIES}
    toy = {"benchmark": "toy", "benchmark_options": {"size": SAMPLES}}
    plan = make_plan({**toy, "models": [model], "methods": ["default", "cot"]})

    progress = await Runner(plan, tmp_path / "run", Settings(concurrency=32)).run()

    assert progress.done == progress.total == 2 * SAMPLES
    assert set(chaos.faults) == set(FAULTS)
    with contextlib.closing(Store(tmp_path / "run")) as store:
        ends = Counter(check_one(store, chaos, *each, arm) for each in store.samples() for arm in (1, 2))
    assert ends == progress.statuses
    assert min(ends[status] for status in ("graded", "refused", "unscored")) > 20
    assert ends["failed"] < 0.05 * SAMPLES


def check_one(store: Store, chaos: Chaos, number: int, sample: Sample, arm: int) -> str:
    """That what is stored for one sample is what the server said about it; returns how it ended."""
    stored, record = store.outcome(number, arm), store.record(number, arm, sample, ["toy@1"])
    assert stored is not None
    assert record is not None
    last = store.turns(number, arm)[-1][1]
    request = request_in(last.messages, last.params)
    if record.status == "failed":
        assert last.error is not None
        assert chaos.tries[request] > RETRIES
    elif record.status == "refused":
        assert chaos.said[request] == ""
    elif record.status == "unscored":
        assert chaos.said[request] is None
    else:
        assert record.grade is not None
        assert record.grade["choice"] == chosen(sample, request, chaos.said[request])
    assert (record.grade is None) == (record.status != "graded")
    return record.status
