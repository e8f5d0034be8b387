"""What the package ships of `neural`: the mean of students, rounded, and the calibration."""

from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.usefixtures("tools")


def student(path: Path, level: int, scale: float, low: float) -> Path:
    arrays = {
        "0.query.weight": np.array([[level, 63], [-63, level]], np.int8),
        "0.query.scale": np.array([scale, scale], np.float32),
        "0.query.bias": np.array([level, 0], np.float32),
        "0.query.range": np.array([low, 2.0], np.float32),
        "out.weight": np.full((8, 2), scale, np.float32),
    }
    np.savez(path, allow_pickle=False, **arrays)
    return path


def test_the_mean_is_that_of_the_weights_and_its_ranges_hold_both(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("tokenizers")
    from tools.train_scorer.neural import floats
    from tools.train_scorer.neural_pack import mean

    first, second = student(tmp_path / "a.npz", 10, 0.1, -1.0), student(tmp_path / "b.npz", 40, 0.2, -3.0)

    found = mean([first, second], [1, 3])
    np.savez(tmp_path / "mean.npz", allow_pickle=False, **found)

    one, two, both = (floats(tmp_path / f"{name}.npz") for name in ("a", "b", "mean"))
    assert found["0.query.weight"].dtype == np.int8
    assert all(np.allclose(both[name], (one[name] + 3 * two[name]) / 4, atol=0.1) for name in one)
    assert np.abs(both["out.weight"] - 0.175).max() < 1e-6
    assert found["0.query.range"].tolist() == [-3.0, 2.0]


def test_the_calibration_finds_slope_and_shift_and_heeds_weights() -> None:
    pytest.importorskip("torch")
    pytest.importorskip("tokenizers")
    from tools.train_scorer.neural_pack import fitted

    logit = np.tile(np.linspace(-4, 4, 200), 2)
    right, wrong = 1 / (1 + np.exp(-(0.5 * logit[:200] + 1))), np.full(200, 0.5)
    weight = np.repeat([1.0, 0.0], 200)

    assert fitted(logit, np.concatenate([right, wrong]), weight) == pytest.approx((0.5, 1.0), abs=1e-6)
