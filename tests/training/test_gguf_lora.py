"""Adapters as GGUF files: llama.cpp computes with them what transformers computes with the adapter itself."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="needs pip install 'evenhand[train]'")
pytest.importorskip("peft", reason="needs pip install 'evenhand[train]'")
gguf: Any = pytest.importorskip("gguf", reason="needs pip install 'evenhand[train]'")

from evenhand.core.errors import UsageError  # noqa: E402 - they need torch
from evenhand.core.types import Message, Params  # noqa: E402
from evenhand.models import weights  # noqa: E402
from evenhand.models.base import ModelOptions  # noqa: E402
from evenhand.models.load import load_model  # noqa: E402
from evenhand.models.local import LocalModel  # noqa: E402
from evenhand.training import models  # noqa: E402
from evenhand.training.models import write_gguf_lora  # noqa: E402
from evenhand.training.options import SFTOptions  # noqa: E402
from support.shell import Shell  # noqa: E402

HERE = models.Machine("cpu", "float32")
ASKED = [Message("user", "Name a colour of the rainbow.")]


def random_adapter(model: str, folder: Path, *, scale: float) -> None:
    """An adapter of all linear layers that changes what the model says."""
    options = SFTOptions(model=model, data=folder, out=folder, lora=4, keep_adapter=True)
    torch.manual_seed(0)
    adapted = models.load_policy(options, HERE)
    with torch.no_grad():
        for name, weight in adapted.named_parameters():
            if "lora_B" in name:
                weight.copy_(torch.randn_like(weight) * scale)
    models.save(adapted, models.chat_of(options, adapted), folder, HERE, keep_adapter=True)


def test_names_and_order_of_the_tensors(tiny: str, tmp_path: Path):
    random_adapter(tiny, tmp_path / "adapter", scale=0.1)

    write_gguf_lora(tmp_path / "adapter", tmp_path / "lora.gguf")

    read = gguf.GGUFReader(tmp_path / "lora.gguf")
    tensors = {each.name: each for each in read.tensors}
    assert len(tensors) == 2 * 2 * 7
    assert read.fields["adapter.lora.alpha"].contents() == 8
    assert tensors["blk.1.ffn_down.weight.lora_a"].data.shape == (4, 64)
    adapter: Any = __import__("safetensors.numpy").numpy.load_file(tmp_path / "adapter" / "adapter_model.safetensors")
    keys = adapter["base_model.model.model.layers.0.self_attn.k_proj.lora_B.weight"].astype("float16")
    # Two heads of eight: llama.cpp takes the rows of a head in the order 0, 4, 1, 5, 2, 6, 3, 7.
    order = [8 * head + row for head in range(2) for pair in range(4) for row in (pair, pair + 4)]
    assert (tensors["blk.0.attn_k.weight.lora_b"].data == keys[order]).all()


async def likeliest(spec: str, **options: Any) -> dict[str, float]:
    """The likeliest next tokens of a model, with their log probabilities."""
    async with load_model(spec, ModelOptions(extra=options)) as model:
        generation = await model.generate(ASKED, Params(temperature=0, max_tokens=1, logprobs=10))
    return dict((generation.completions[0].logprobs or ())[0].top)


@pytest.mark.weights
async def test_llama_cpp_computes_the_same(tmp_path: Path):
    pytest.importorskip("xllamacpp", reason="needs pip install 'evenhand[local]'")
    random_adapter("local/builtin", tmp_path / "adapter", scale=0.2)
    assert json.loads((tmp_path / "adapter" / models.ADAPTER).read_text())["base_model_name_or_path"] == "local/builtin"
    write_gguf_lora(tmp_path / "adapter", tmp_path / "lora.gguf")

    there = await likeliest(f"hf/{tmp_path / 'adapter'}", device="cpu")
    here = await likeliest(f"local/builtin?lora={tmp_path / 'lora.gguf'}", context=512)
    before = await likeliest("local/builtin", context=512)

    def distance(one: dict[str, float], other: dict[str, float]) -> float:
        return max((abs(one[token] - other[token]) for token in one.keys() & other.keys()), default=99.0)

    # llama.cpp rounds activations to eight bits: without an adapter the two differ by 0.2, and by 0.5 if queries and
    # keys are in the wrong order.
    assert distance(there, here) < 0.35
    assert distance(there, before) > 0.5


def test_the_command(shell: Shell, tiny: str, tmp_path: Path):
    random_adapter(tiny, tmp_path / "adapter", scale=0.1)

    assert shell("train", "gguf", tmp_path / "adapter", "--out", "lora.gguf") == 0, shell.err

    assert "use it as 'local/NAME?lora=lora.gguf'" in shell.out
    assert Path("lora.gguf").read_bytes()[:4] == b"GGUF"


def test_a_folder_without_adapter_is_refused(shell: Shell, tiny: str):
    assert shell("train", "gguf", tiny) == 2
    assert "holds no adapter" in shell.err


@pytest.mark.parametrize(
    ("file", "sentence"),
    [("adapter_config.json", "not the config of an adapter"), ("adapter_model.safetensors", "weights cannot be read")],
)
def test_a_damaged_adapter_is_one_sentence(shell: Shell, tiny: str, tmp_path: Path, file: str, sentence: str):
    random_adapter(tiny, tmp_path / "adapter", scale=0.1)
    (tmp_path / "adapter" / file).write_text("[]")

    assert shell("train", "gguf", tmp_path / "adapter") == 2
    assert sentence in shell.err.splitlines()[-1]


def test_a_model_of_the_list_may_include_an_adapter(
    shell: Shell, tiny: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    pytest.importorskip("xllamacpp", reason="needs pip install 'evenhand[local]'")
    random_adapter(tiny, tmp_path / "adapter", scale=0.1)
    write_gguf_lora(tmp_path / "adapter", lora := tmp_path / "fair.gguf")
    base = tmp_path / "cache" / "models" / weights.RECOMMENDED["builtin"].file
    base.parent.mkdir(parents=True)
    base.write_bytes(b"GGUF")
    fair = replace(weights.RECOMMENDED["builtin"], name="builtin-fair", lora=lora)
    monkeypatch.setattr(weights, "RECOMMENDED", {**weights.RECOMMENDED, "builtin-fair": fair})

    model = LocalModel("builtin-fair", ModelOptions())

    assert (model.path, model.lora) == (base, lora)
    assert model.fingerprint()["lora_sha256"] == weights.file_sha256(lora)
    assert "lora_sha256" not in LocalModel("builtin", ModelOptions()).fingerprint()
    assert shell("models") == 0
    assert "with the adapter fair.gguf" in shell.out
    assert shell("train", "sft", "d", "-m", "local/builtin-fair", "-o", "o") == 2


async def test_a_file_that_is_no_adapter_is_refused(tmp_path: Path):
    pytest.importorskip("xllamacpp", reason="needs pip install 'evenhand[local]'")
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    (tmp_path / "lora.txt").write_text("no adapter")

    with pytest.raises(UsageError, match="is not a GGUF file"):
        load_model(f"local/{tmp_path / 'model.gguf'}?lora={tmp_path / 'lora.txt'}")
