"""Rewards of answers by a reward model of Evenhand, for OpenRLHF, verl and TRL.

Needs torch and transformers only, so that it works in the environments of these. `reward.json` beside it names the
reward model, a folder with a sequence classifier. The text that is scored is rendered by the reward model's own chat
template, as it was in its training.
"""

from __future__ import annotations

import importlib
import json
import threading
from functools import cache
from pathlib import Path
from typing import Any, cast

_BATCH = 16
_loading = threading.Lock()


def reward(prompts: list[Any], completions: list[Any], **_: Any) -> list[float]:
    """For TRL: prompts are lists of messages, completions lists with one message."""
    return score(prompts, [each[0]["content"] for each in completions])


def compute_score(data_source: str, solution_str: str, ground_truth: str, extra_info: Any = None, **_: Any) -> float:
    """For verl: the prompt's messages are in `extra_info`, as JSON."""
    del data_source, ground_truth
    return score([json.loads(extra_info["messages"])], [solution_str])[0]


def reward_func(queries: list[str], prompts: list[str], labels: list[str], **_: Any) -> dict[str, Any]:
    """For OpenRLHF: a query is prompt and answer as the policy's template renders them; a label is messages as JSON."""
    torch: Any = importlib.import_module("torch")
    answers = [_answer(query, prompt) for query, prompt in zip(queries, prompts, strict=True)]
    rewards = torch.tensor(score([json.loads(label) for label in labels], answers))
    return {"rewards": rewards, "scores": rewards, "extra_logs": {}}


def score(prompts: list[Any], answers: list[str]) -> list[float]:
    """The reward of each answer: the mean of the model's heads, minus their standard deviation if there are several."""
    torch: Any = importlib.import_module("torch")
    tokenizer, model, ends, longest = _loaded()
    rows = [_tokens(tokenizer, ends, longest, *each) for each in zip(prompts, answers, strict=True)]
    found: list[float] = []
    for start in range(0, len(rows), _BATCH):
        chunk = rows[start : start + _BATCH]
        width = max(map(len, chunk))
        ids = torch.tensor([row + [tokenizer.pad_token_id] * (width - len(row)) for row in chunk], device=model.device)
        mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in chunk], device=model.device)
        with torch.no_grad():
            hidden = model.base_model(input_ids=ids, attention_mask=mask, use_cache=False).last_hidden_state
            last = hidden[torch.arange(len(chunk)), mask.sum(1) - 1]
            heads = model.score(last.float())
        values = heads.mean(1) - heads.std(1) if heads.shape[1] > 1 else heads[:, 0]
        found += values.tolist()
    return found


def _loaded() -> tuple[Any, Any, set[int], int]:
    with _loading:
        return _load(str(Path(__file__).with_name("reward.json")))


@cache
def _load(settings: str) -> tuple[Any, Any, set[int], int]:
    torch: Any = importlib.import_module("torch")
    transformers: Any = importlib.import_module("transformers")
    about = json.loads(Path(settings).read_text(encoding="utf-8"))
    gpu = torch.cuda.is_available()
    tokenizer: Any = transformers.AutoTokenizer.from_pretrained(about["model"])
    model: Any = transformers.AutoModelForSequenceClassification.from_pretrained(about["model"])
    model.to(torch.bfloat16 if gpu else torch.float32)
    model.score.float()
    stated: Any = model.config.eos_token_id
    ends: set[int] = {tokenizer.eos_token_id}
    ends.update(cast("list[int]", stated) if isinstance(stated, list) else filter(None, [stated]))
    return tokenizer, model.to("cuda" if gpu else "cpu").eval(), ends, about["max_length"]


def _tokens(tokenizer: Any, ends: set[int], longest: int, prompt: list[Any], answer: str) -> list[int]:
    """Prompt and answer, up to the end of the answer's turn; too long ones are cut on the left."""

    def rendered(messages: list[Any], *, begun: bool) -> str:
        return tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=begun)

    opening = rendered(prompt, begun=True)
    whole = rendered([*prompt, {"role": "assistant", "content": answer}], begun=False)
    ids: list[list[int]] = [
        tokenizer(text, add_special_tokens=False)["input_ids"] for text in (opening, whole[len(opening) :])
    ]
    last = max((place for place, token in enumerate(ids[1]) if token in ends), default=None)
    reply = [*ids[1], tokenizer.eos_token_id] if last is None else ids[1][: last + 1]
    return [*ids[0], *reply][-longest:]


def _answer(query: str, prompt: str) -> str:
    """The answer in a query, without the end of its turn."""
    text = query[len(prompt) :] if query.startswith(prompt) else query.rpartition(prompt[-40:])[2]
    tokenizer, _, ends, _ = _loaded()
    for token in sorted(tokenizer.convert_ids_to_tokens(sorted(ends))):
        text = text.partition(token)[0]
    return text.strip()
