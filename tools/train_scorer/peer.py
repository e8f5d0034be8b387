"""The best offline package, for comparison: alt-profanity-check, where it is installed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

NAME = "alt-profanity-check"


def peer_scores(texts: Sequence[str]) -> NDArray[np.float64] | None:
    """Its probability for each text; None where the package is missing."""
    try:
        from profanity_check import predict_prob
    except ImportError:
        return None
    return np.asarray(predict_prob(list(texts)), dtype=np.float64)
