"""python -m tools.train_scorer.neural --texts FILE --base FOLDER --out FOLDER: fine-tune MiniLM-L6 into `neural`.

Needs torch, tokenizers and safetensors, but not evenhand, so that it runs where there is a GPU. FILE is what
`tools.train_scorer.neural_texts` wrote; the base folder holds the model's *.safetensors and tokenizer.json. It writes
the layers (`layers.npz`) and every figure (`metrics.json`). Word vectors stay those of the base.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import nn
from torch.nn import functional

from tools.train_scorer.figures import ATTRIBUTES, auroc, figures

VERSION = "1"
SHARPNESS = 4.0  # of the pooling over windows
LONGEST = 128  # tokens of a window
MASK, LAST_SPECIAL = 103, 998  # of the tokenizer
SHARES = {  # how often the texts of a set are drawn
    "rtp": 40, "disguised": 4, "edos": 8, "hatemoji": 7, "toxigen": 3, "jigsaw": 11, "people neutral": 7,
    "people odd": 1, "people grave": 2.5, "people unkind": 3, "people threatening": 1, "people kind": 0.3,
    "people denied": 2, "quoted": 4, "shared": 2, "short": 1, "everyday": 1.5, "names": 1, "strings": 0.7,
    "clean": 7, "embedded": 3, "more odd": 5, "more unkind": 1.5, "more denied": 1.5,
    "more quoted": 3, "more shared": 1.5, "more everyday": 2, "more calm": 5,
}  # fmt: skip


class Bert(nn.Module):
    """The encoder, with seven logits from the mean and the maximum over its last states."""

    def __init__(self, base: dict[str, torch.Tensor], layers: int) -> None:
        super().__init__()
        table = base["embeddings.word_embeddings.weight"]
        self.words = nn.Embedding(*table.shape)
        self.places = nn.Embedding(*base["embeddings.position_embeddings.weight"].shape)
        self.norm = nn.LayerNorm(table.shape[1], eps=1e-12)
        self.layers = nn.ModuleList(Layer(table.shape[1]) for _ in range(layers))
        self.out = nn.Linear(2 * table.shape[1], len(ATTRIBUTES))
        # The type embedding is a constant for single texts.
        self.words.weight.data.copy_(table)
        self.places.weight.data.copy_(
            base["embeddings.position_embeddings.weight"] + base["embeddings.token_type_embeddings.weight"][0]
        )
        _fill(self.norm, base, "embeddings.LayerNorm")
        for number, layer in enumerate(self.layers):
            for mine in NAMES:
                module = layer.get_submodule(mine)
                module.weight.data.copy_(base[f"encoder.layer.{number}.{NAMES[mine]}.weight"])
                module.bias.data.copy_(base[f"encoder.layer.{number}.{NAMES[mine]}.bias"])
        nn.init.normal_(self.out.weight, std=0.01)
        nn.init.constant_(self.out.bias, -1.5)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.words(ids) + self.places.weight[: ids.shape[1]])
        x = functional.dropout(x, 0.1, self.training)
        for layer in self.layers:
            x = layer(x, mask)
        x = x.float()
        real = mask[..., None]
        mean = (x * real).sum(1) / real.sum(1)
        return self.out.float()(
            functional.dropout(torch.cat([mean, x.masked_fill(~real, -1e4).amax(1)], 1), 0.1, self.training)
        )


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
RANGE_TEXTS = 640


class Layer(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.query, self.key, self.value, self.merge = (nn.Linear(size, size) for _ in range(4))
        self.up, self.down = nn.Linear(size, 4 * size), nn.Linear(4 * size, size)
        self.norm, self.last = nn.LayerNorm(size, eps=1e-12), nn.LayerNorm(size, eps=1e-12)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        heads = lambda y: y.unflatten(-1, (12, -1)).transpose(1, 2)  # noqa: E731
        seen = functional.scaled_dot_product_attention(
            heads(self.query(x)), heads(self.key(x)), heads(self.value(x)), mask[:, None, None]
        )
        drop = lambda y: functional.dropout(y, 0.1, self.training)  # noqa: E731
        x = self.norm(x + drop(self.merge(seen.transpose(1, 2).flatten(2))))
        return self.last(x + drop(self.down(functional.gelu(self.up(x)))))


def _fill(module: nn.Module, base: dict[str, torch.Tensor], name: str) -> None:
    module.weight.data.copy_(base[f"{name}.weight"])
    module.bias.data.copy_(base[f"{name}.bias"])


class Texts:
    """Texts as token ids, in batches of similar length."""

    def __init__(self, rows: list[dict[str, Any]], tokenizer: Tokenizer) -> None:
        self.rows = rows
        self.owner = np.array([number for number, row in enumerate(rows) for _ in row["windows"]])
        encoded = tokenizer.encode_batch([window for row in rows for window in row["windows"]])
        self.ids = [each.ids for each in encoded]
        self.lengths = np.array([len(ids) for ids in self.ids])
        self.labels = np.array([[np.nan if x is None else x for x in row["labels"]] for row in rows], np.float32)

    def batch(self, chosen: np.ndarray, device: str) -> tuple[torch.Tensor, torch.Tensor]:
        longest = -(-int(self.lengths[chosen].max()) // 8) * 8
        ids = np.zeros((len(chosen), longest), np.int64)
        for row, number in enumerate(chosen):
            ids[row, : self.lengths[number]] = self.ids[number]
        tensor = torch.from_numpy(ids).to(device, non_blocking=True)
        return tensor, tensor != 0


def main() -> None:
    options = _options()
    torch.manual_seed(options.seed)
    torch.set_float32_matmul_precision("high")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    base: dict[str, torch.Tensor] = {}
    for path in sorted(options.base.glob("*.safetensors")):
        base.update({name: tensor.float() for name, tensor in load_file(path).items() if tensor.is_floating_point()})
    learned, measured = _read(options)
    say(f"{len(learned.rows)} texts to learn, {len(measured.rows)} to measure")
    model = Bert(base, options.layers).to(device)
    if options.start:
        _start(model, options.start, options.keep)
    options.out.mkdir(parents=True, exist_ok=True)
    if options.steps:
        _train(model, learned, options, device)
    model.eval()
    layers = {**packed(model), **ranges(model, learned, device)}
    logits, slopes = scored(model, measured, device)
    save({**layers, **calibrated(model, slopes)}, options.out / "layers.npz")
    if options.quick:
        return
    metrics: dict[str, Any] = {"development": development(measured, logits)}
    say(f"{options.out.name} {json.dumps(metrics)}")
    metrics |= figures(measured.rows, 1 / (1 + np.exp(-pooled(logits, measured.owner, SHARPNESS))))
    metrics["pooling"] = {str(each): _by_length(measured, logits, each) for each in (1.0, 2.0, 4.0, math.inf)}
    (options.out / "metrics.json").write_text(json.dumps(metrics, indent=1))


def development(texts: Texts, logits: np.ndarray) -> dict[str, float]:
    """What to choose among networks by: figures on texts that are neither learned nor reported."""
    toxicity = pooled(logits, texts.owner, SHARPNESS)[:, 0]
    sets = np.array([row["set"] for row in texts.rows])
    rtp = (sets == "calibration") & ~np.isnan(texts.labels[:, -1])
    label = texts.labels[:, 0] >= 0.5
    groups: dict[str, list[bool]] = defaultdict(list)
    for row, score in zip(texts.rows, toxicity, strict=True):
        if row["set"] == "design odd":
            groups[row["group"]].append(bool(score >= 0))
    found = {"rtp auroc": auroc(toxicity[rtp], label[rtp])}
    if groups:
        rates = [float(np.mean(alarms)) for alarms in groups.values()]
        attacks = sets == "design attacks"
        found |= {"odd": float(np.mean(rates)), "odd, highest group": max(rates)}
        found["attacks"] = float((toxicity[attacks] >= 0).mean())
    if (emoji := sets == "hatemoji validation").any():
        found["hatemoji auroc"] = auroc(toxicity[emoji], label[emoji])
    return {name: round(value, 4) for name, value in found.items()}


def _start(model: Bert, path: Path, keep: float) -> None:
    """Set the weights to those of an earlier training, moved a little way back to the base."""
    with np.load(path, allow_pickle=False) as file:
        names = [name for name in file if name != "about" and not name.endswith(".range")]
        stored = {name: torch.from_numpy(file[name]).float() for name in names}
    for name in [name for name in stored if name.endswith(".scale")]:
        stored[name.replace(".scale", ".weight")] *= stored.pop(name)[:, None]
    with torch.no_grad():
        for name, value in stored.items():
            goal = model.get_parameter(name if name.startswith("out.") else f"layers.{name}")
            goal.lerp_(value.to(goal), 1.0 if name.startswith("out.") else keep)


def _read(options: argparse.Namespace) -> tuple[Texts, Texts]:
    """The texts to learn and those to measure."""
    tokenizer = Tokenizer.from_file(str(options.base / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(LONGEST)
    rows = list(read_rows(options.texts))
    learned = [row for row in rows if row["set"].startswith("train")]
    sets = ("calibration",) if options.quick else {row["set"] for row in rows if not row["set"].startswith("train")}
    measured = [row for row in rows if row["set"] in sets]
    return Texts(learned, tokenizer), Texts(measured, tokenizer)


def read_rows(paths: Sequence[Path]) -> Iterator[dict[str, Any]]:
    for path in paths:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            yield from map(json.loads, file)


def _train(model: Bert, learned: Texts, options: argparse.Namespace, device: str) -> None:
    """AdamW with a falling rate; the model ends as the moving average of its weights."""
    known = ~np.isnan(learned.labels)
    targets, weights = np.where(known, learned.labels, 0.5), known.astype(np.float32)
    groups = _parameters(model, options)
    optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.98), weight_decay=0.01, fused=device == "cuda")
    live = [value for value in model.parameters() if value.requires_grad]
    average = [value.detach().clone() for value in live]
    start = time.time()
    model.train()
    for step, chosen in enumerate(_batches(learned, options)):
        if step == options.steps:
            break
        for group in optimizer.param_groups:
            group["lr"] = group["full"] * min(step / 100, 1) * (1 - step / options.steps)
        ids, mask = learned.batch(chosen, device)
        hidden = (torch.rand(ids.shape, device=device) < options.masked) & (ids > LAST_SPECIAL)
        goal, weight = (torch.from_numpy(array[chosen]).to(device) for array in (targets, weights))
        logits = model(ids.masked_fill(hidden, MASK), mask)
        losses = functional.binary_cross_entropy_with_logits(logits, goal, reduction="none")
        loss = (losses * weight).sum() / weight.sum()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(live, 1.0)
        optimizer.step()
        with torch.no_grad():
            torch._foreach_lerp_(average, live, 1 - min(0.999, (step + 1) / (step + 21)))
        if step % 200 == 0:
            say(f"step {step} loss {loss.item():.4f} {time.time() - start:.0f} s")
    with torch.no_grad():
        for value, mean in zip(live, average, strict=True):
            value.copy_(mean)


def _batches(learned: Texts, options: argparse.Namespace) -> Iterator[np.ndarray]:
    """Batches of texts of similar length, drawn by the shares of their sets."""
    random = np.random.default_rng(options.seed)
    chance = chances(learned.rows)
    while True:
        pool = random.choice(len(chance), options.batch * 16, p=chance)
        pool = pool[np.argsort(learned.lengths[pool] + random.random(len(pool)), kind="stable")]
        for number in random.permutation(16):
            yield pool[number * options.batch : (number + 1) * options.batch]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--texts", type=Path, required=True, nargs="+")
    parser.add_argument("--base", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--layers", type=int, default=4, help="layers that are kept, from the bottom")
    parser.add_argument("--lr", type=float, default=2e-4)
    parser.add_argument("--steps", type=int, default=6000)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--masked", type=float, default=0.03, help="share of tokens that are hidden in training")
    parser.add_argument("--quick", action="store_true", help="write the layers only, no figures")
    parser.add_argument("--start", type=Path, help="layers.npz of an earlier training to begin with")
    parser.add_argument(
        "--keep", type=float, default=0.85, help="share of --start in the first weights, the base has the rest"
    )
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def _parameters(model: Bert, options: argparse.Namespace) -> list[dict[str, Any]]:
    for name, value in model.named_parameters():
        value.requires_grad_(name.startswith(("layers", "out.")))
    return [
        {"params": list(model.layers.parameters()), "full": options.lr},
        {"params": list(model.out.parameters()), "full": 1e-3},
    ]


def chances(rows: list[dict[str, Any]]) -> np.ndarray:
    names = [row["set"].removeprefix("train ") for row in rows]
    counts: dict[str, int] = defaultdict(int)
    for name in names:
        counts[name] += 1
    chance = np.array([SHARES[name] / counts[name] for name in names])
    return chance / chance.sum()


@torch.no_grad()
def window_logits(model: Bert, texts: Texts, device: str) -> np.ndarray:
    order = np.argsort(texts.lengths[: len(texts.owner)], kind="stable")
    logits = np.zeros((len(order), len(ATTRIBUTES)), np.float32)
    for start in range(0, len(order), 512):
        chosen = order[start : start + 512]
        logits[chosen] = model(*texts.batch(chosen, device)).float().cpu().numpy()
    return logits


def pooled(logits: np.ndarray, owner: np.ndarray, sharpness: float) -> np.ndarray:
    """The logits of texts from those of their windows: log-mean-exp, so that the number of windows does not count."""
    count = owner.max() + 1
    highest = np.full((count, logits.shape[1]), -np.inf)
    np.maximum.at(highest, owner, logits)
    if math.isinf(sharpness):
        return highest
    total = np.zeros_like(highest)
    np.add.at(total, owner, np.exp(sharpness * (logits - highest[owner])))
    windows = np.bincount(owner, minlength=count)[:, None]
    return highest + np.log(total / windows) / sharpness


def scored(model: Bert, texts: Texts, device: str) -> tuple[np.ndarray, np.ndarray]:
    """Calibrated logits of every window, and the slope and shift of each attribute."""
    logits = window_logits(model, texts, device).astype(np.float64)
    sets = np.array([row["set"] for row in texts.rows])
    whole = pooled(logits, texts.owner, SHARPNESS)
    slopes = np.ones((2, len(ATTRIBUTES)))
    slopes[1] = 0
    for number in range(len(ATTRIBUTES)):
        label = texts.labels[:, number]
        use = (sets == "calibration") & ~np.isnan(label)
        if use.sum() > 50:
            slopes[:, number] = _fit(whole[use, number], label[use].astype(np.float64))
    return logits * slopes[0] + slopes[1], slopes


def _by_length(texts: Texts, logits: np.ndarray, sharpness: float) -> dict[str, float]:
    """The share of texts at 0.5 or more in the sets of one length, by a pooling."""
    toxic = pooled(logits, texts.owner, sharpness)[:, 0] >= 0
    sets = np.array([row["set"] for row in texts.rows])
    return {name: round(float(toxic[sets == name].mean()), 4) for name in sorted(set(sets)) if " words" in name}


def _fit(logit: np.ndarray, label: np.ndarray) -> tuple[float, float]:
    """Slope and shift that fit the labels best, by Newton's method."""
    x = np.stack([logit, np.ones_like(logit)], 1)
    w = np.array([1.0, 0.0])
    for _ in range(30):
        p = 1 / (1 + np.exp(-x @ w))
        w = w + np.linalg.solve(x.T @ (x * (p * (1 - p))[:, None]) + 1e-6 * np.eye(2), x.T @ (label - p))
    return float(w[0]), float(w[1])


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
        def note(_: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
            low, high = inputs[0].aminmax()
            known = found.get(name, torch.stack([low, high]))
            found[name] = torch.stack([torch.minimum(known[0], low), torch.maximum(known[1], high)])

        return note

    modules = {f"{n}.{mine}": layer.get_submodule(mine) for n, layer in enumerate(model.layers) for mine in MEASURED}
    hooks = [module.register_forward_pre_hook(watch(f"{name}.range")) for name, module in modules.items()]
    order = np.random.default_rng(0).permutation(len(texts.ids))[:RANGE_TEXTS]
    with torch.no_grad():
        for chosen in np.split(order[np.argsort(texts.lengths[order])], 32):
            model(*texts.batch(chosen, device))
    for hook in hooks:
        hook.remove()
    return {name: value.float().cpu() for name, value in found.items()}


def calibrated(model: Bert, slopes: np.ndarray) -> dict[str, torch.Tensor]:
    """The last layer with slope and shift of each attribute in it."""
    slope, shift = torch.from_numpy(slopes).float()
    weight, bias = (value.detach().float().cpu() for value in (model.out.weight, model.out.bias))
    return {"out.weight": weight * slope[:, None], "out.bias": bias * slope + shift}


def save(layers: dict[str, torch.Tensor], path: Path) -> None:
    about = json.dumps({"version": VERSION}).encode()
    arrays = {name: value.numpy() for name, value in layers.items()}
    np.savez_compressed(path, allow_pickle=False, about=np.frombuffer(about, np.uint8), **arrays)


def say(line: str) -> None:
    print(time.strftime("%H:%M:%S"), line, flush=True)


if __name__ == "__main__":
    main()
