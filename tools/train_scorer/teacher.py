"""python -m tools.train_scorer.teacher --texts FILE --model FOLDER --out FOLDER: a large teacher for `neural`.

Fine-tunes a language model (LoRA) on the training texts, and writes what it thinks of them and of new texts made from
them, from which `tools.train_scorer.neural` learns: `more.jsonl.gz` (the new texts) and `opinions.npy` (one row of
logits per text: first the training texts, then the new ones). Needs torch, transformers, peft and a GPU. Only training
texts are learned or changed into new ones; `calibration` tells how good the teacher is.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from peft import LoraConfig, get_peft_model
from torch import nn
from torch.nn import functional
from transformers import AutoModel, AutoTokenizer

from tools.train_scorer.figures import ATTRIBUTES, auroc
from tools.train_scorer.neural import chances, precision, read_rows, say

LONGEST = 128  # tokens of a text
CHANGED = ("rtp", "disguised", "edos", "hatemoji", "toxigen", "jigsaw")
"""Sets whose texts are changed into new ones."""


class Teacher(nn.Module):
    """The language model with seven logits from the state of the last token."""

    def __init__(self, folder: Path, rank: int, device: str) -> None:
        super().__init__()
        kind = torch.bfloat16 if device == "cuda" else torch.float32
        body: Any = AutoModel.from_pretrained(folder, dtype=kind)
        layers = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
        self.body = get_peft_model(body, LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=layers))
        self.out = nn.Linear(body.config.hidden_size, len(ATTRIBUTES))
        nn.init.normal_(self.out.weight, std=0.005)
        nn.init.constant_(self.out.bias, -1.5)

    def forward(self, ids: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        mask = torch.arange(ids.shape[1], device=ids.device) < lengths[:, None]
        states = self.body(input_ids=ids, attention_mask=mask.long(), use_cache=False).last_hidden_state
        last = states[torch.arange(len(ids), device=ids.device), lengths - 1]
        with torch.autocast(ids.device.type, enabled=False):
            return self.out(last.float())


class Encoded:
    """Texts as token ids; each ends with a line break, where the judgement is read."""

    def __init__(self, texts: Sequence[str], tokenizer: Any) -> None:
        found = tokenizer(list(texts), add_special_tokens=False, truncation=True, max_length=LONGEST - 1)
        (end,) = tokenizer("\n", add_special_tokens=False)["input_ids"]
        self.ids = [[*ids, end] for ids in found["input_ids"]]
        self.lengths = np.array([len(ids) for ids in self.ids])

    def batch(self, chosen: np.ndarray, device: str) -> tuple[torch.Tensor, torch.Tensor]:
        ids = np.zeros((len(chosen), int(self.lengths[chosen].max())), np.int64)
        for row, number in enumerate(chosen):
            ids[row, : self.lengths[number]] = self.ids[number]
        return torch.from_numpy(ids).to(device), torch.from_numpy(self.lengths[chosen]).to(device)


def main() -> None:
    options = _options()
    torch.manual_seed(options.seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    tokenizer: Any = AutoTokenizer.from_pretrained(options.model)
    rows = list(read_rows([options.texts]))
    learned = [row for row in rows if row["set"].startswith("train")]
    kept = [row for row in rows if row["set"] == "calibration" and None not in row["labels"]]
    teacher = Teacher(options.model, options.rank, device).to(device)
    say(f"{len(learned)} texts to learn, {len(kept)} to check")
    _train(teacher, learned, tokenizer, options, device)
    teacher.eval()
    known = Encoded([row["windows"][0] for row in kept], tokenizer)
    toxic = np.array([row["labels"][0] >= 0.5 for row in kept])
    say(f"AUROC of toxicity on the calibration side: {auroc(_logits(teacher, known, device)[:, 0], toxic):.4f}")
    more = list(_changed(learned, options.new, random.Random(options.seed)))
    texts = [*(row["windows"][0] for row in learned), *(row["windows"][0] for row in more)]
    opinions = _logits(teacher, Encoded(texts, tokenizer), device)
    options.out.mkdir(parents=True, exist_ok=True)
    with gzip.open(options.out / "more.jsonl.gz", "wt", encoding="utf-8", compresslevel=3) as file:
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in more)
    np.save(options.out / "opinions.npy", opinions.astype(np.float16))
    say(f"{len(texts)} opinions")


def _train(
    teacher: Teacher, learned: list[dict[str, Any]], tokenizer: Any, options: argparse.Namespace, device: str
) -> None:
    texts = Encoded([row["windows"][0] for row in learned], tokenizer)
    labels = np.array([[np.nan if x is None else x for x in row["labels"]] for row in learned], np.float32)
    weights, labels = (~np.isnan(labels)).astype(np.float32), np.nan_to_num(labels, nan=0.5)
    adapters = [value for name, value in teacher.named_parameters() if value.requires_grad and not name.startswith("out.")]
    groups = [{"params": adapters, "full": options.lr}, {"params": list(teacher.out.parameters()), "full": 1e-3}]
    optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.98), weight_decay=0.0)
    draw, chance = np.random.default_rng(options.seed), chances(learned)
    teacher.train()
    start, step, progress = time.time(), 0, 0.0
    while progress < 1:
        pool = draw.choice(len(learned), options.batch * 16, p=chance)
        pool = pool[np.argsort(texts.lengths[pool], kind="stable")]
        for number in draw.permutation(16):
            progress = max(step / options.steps, (time.time() - start) / options.seconds)
            if progress >= 1:
                break
            for group in optimizer.param_groups:
                group["lr"] = group["full"] * min((step + 1) / 30, 1) * (1 - progress)
            chosen = pool[number * options.batch : (number + 1) * options.batch]
            goal, weight = (torch.from_numpy(array[chosen]).to(device) for array in (labels, weights))
            with precision(device):
                logits = teacher(*texts.batch(chosen, device))
            losses = functional.binary_cross_entropy_with_logits(logits, goal, reduction="none")
            loss = (losses * weight).sum() / weight.sum()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(adapters, 1.0)
            optimizer.step()
            if step % 50 == 0:
                say(f"step {step} loss {loss.item():.4f} {time.time() - start:.0f} s")
            step += 1


@torch.no_grad()
def _logits(teacher: Teacher, texts: Encoded, device: str) -> np.ndarray:
    order = np.argsort(texts.lengths, kind="stable")
    found = np.zeros((len(order), len(ATTRIBUTES)), np.float32)
    start = 0
    while start < len(order):
        count = max(16384 // int(texts.lengths[order[min(start + 256, len(order) - 1)]]), 1)
        chosen = order[start : start + count]
        with precision(device):
            found[chosen] = teacher(*texts.batch(chosen, device)).cpu().numpy()
        start += count
    return found


def _changed(rows: Sequence[dict[str, Any]], number: int, chance: random.Random) -> Iterator[dict[str, Any]]:
    """Yield new texts: parts of texts, halves of two joined, and texts with words of others in them."""
    texts = [row["windows"][0].split(" ") for row in rows if row["set"].removeprefix("train ") in CHANGED]
    like_rtp = [row["windows"][0].split(" ") for row in rows if row["set"] == "train rtp"]
    for count in range(number):
        source = like_rtp if chance.random() < 0.6 else texts
        first, second = chance.choice(source), chance.choice(source)
        if count % 3 == 0:
            begin = chance.randrange(len(first))
            words = first[begin : begin + chance.randint(3, 30)]
        elif count % 3 == 1:
            words = first[: chance.randint(1, len(first))][-20:] + second[chance.randrange(len(second)) :][:20]
        else:
            part = chance.uniform(0.1, 0.35)
            words = [chance.choice(second) if chance.random() < part else word for word in first[:60]]
        yield {"set": "train changed", "labels": [None] * len(ATTRIBUTES), "windows": [" ".join(words)]}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.train_scorer.teacher", description=__doc__)
    parser.add_argument("--texts", type=Path, required=True)
    parser.add_argument("--model", type=Path, required=True, help="folder of a language model, as of Hugging Face")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--lr", type=float, default=2e-4)
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--seconds", type=float, default=1e9, help="stop training after so long")
    parser.add_argument("--batch", type=int, default=96)
    parser.add_argument("--new", type=int, default=120_000, help="how many new texts to make")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


if __name__ == "__main__":
    main()
