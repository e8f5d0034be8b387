"""Trains with TRL on the files beside this one: `config.yaml` names the algorithm, the model and TRL's settings.

`evenhand train export` copies this file as `train.py`. It needs TRL, torch and transformers, not Evenhand. `score` is
the reward of answers by a reward model of Evenhand, for any other trainer too: the text that is scored is rendered by
the reward model's own chat template, as it was in its training.
"""

from __future__ import annotations

import importlib
import threading
from functools import cache
from pathlib import Path
from typing import Any, cast

HERE = Path(__file__).resolve().parent
_BATCH = 16
_loading = threading.Lock()


def main() -> None:
    """Train, and save the model."""
    datasets, trl = (importlib.import_module(name) for name in ("datasets", "trl"))
    about = _about()
    rows: Any = datasets.load_dataset("json", data_files=str(HERE / "train.jsonl"), split="train")
    name = {"grpo": "GRPO", "rloo": "RLOO", "dpo": "DPO"}[about["algorithm"]]
    options: dict[str, Any] = {"reward_funcs": reward} if name != "DPO" else {}
    config: Any = getattr(trl, f"{name}Config")(**about["config"])
    trainer: Any = getattr(trl, f"{name}Trainer")(model=about["model"], args=config, train_dataset=rows, **options)
    trainer.train()
    trainer.save_model(about["config"]["output_dir"])


def reward(prompts: list[Any], completions: list[Any], **_: object) -> list[float]:
    """As TRL asks: prompts are lists of messages, completions lists with one message."""
    return score(prompts, [each[0]["content"] for each in completions])


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


def _about() -> dict[str, Any]:
    return importlib.import_module("yaml").safe_load((HERE / "config.yaml").read_text(encoding="utf-8"))


def _loaded() -> tuple[Any, Any, set[int], int]:
    with _loading:
        return _load()


@cache
def _load() -> tuple[Any, Any, set[int], int]:
    torch: Any = importlib.import_module("torch")
    transformers: Any = importlib.import_module("transformers")
    about = _about()["reward"]
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


if __name__ == "__main__":
    main()
