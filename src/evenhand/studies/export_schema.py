"""The columns of the exported tables: name, type and meaning. The page docs/reference/tables.md lists the same ones.

Types are those of Parquet and of saved data sets. Columns that begin with `meta_` and `grade_` are a benchmark's own;
their types follow from their values.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple, cast

import orjson

from evenhand.core.format import plain_cell

SCHEMA_VERSION = "1"
Type = Literal["string", "int64", "double", "bool"]


class Column(NamedTuple):
    """A column of a table."""

    name: str
    type: Type
    meaning: str


_RUN = (
    Column("benchmark", "string", "the benchmark of the run"),
    Column("arm", "string", "the label of the arm, unique in the run"),
    Column("model", "string", "the spec of the model in the role `base`"),
    Column("method", "string", "the name of the method"),
    Column("seed", "int64", "the seed of the arm"),
)
USAGE = (
    Column("seconds", "double", "the time from the first call to the grade"),
    Column("calls", "int64", "calls of models, without those from the cache"),
    Column("cached_calls", "int64", "calls that the cache answered"),
    Column("prompt_tokens", "int64", "tokens of the requests"),
    Column("completion_tokens", "int64", "tokens of the replies"),
    Column("cost", "double", "money in dollars; null if a price is unknown"),
)
"""Columns of outcomes with --usage only: they differ from run to run."""
_INTERVAL = (
    Column("low", "double", "the lower limit of the 95 % interval; null if undefined"),
    Column("high", "double", "the upper limit; null if undefined"),
)
_SIZE = (
    Column("clusters", "int64", "independent clusters (templates, topics) that these come from"),
    Column("few_clusters", "bool", "whether there are too few clusters for the interval to be trusted"),
)
SCHEMAS: Mapping[str, tuple[Column, ...]] = {
    "outcomes": (
        Column("sample", "string", "the id of the sample"),
        *_RUN,
        Column("status", "string", "`graded`, `refused`, `cut`, `unscored` or `failed`"),
        Column("reason", "string", "why it was not graded; null if it was"),
        Column("answer", "string", "the final answer as text; null if there is none"),
        Column("target", "string", "what is right, as text or JSON; null if nothing is"),
        Column("cluster", "string", "samples with the same one are not independent"),
        Column("stop", "string", "why the method stopped: `done`, `accepted`, `max_iterations`, …"),
        *USAGE,
    ),
    "turns": (
        Column("sample", "string", "the id of the sample"),
        *_RUN,
        Column("agent", "string", "who asked: `answer`, `judge`, …"),
        Column("role", "string", "which of the run's models answered"),
        Column("prompt_id", "string", "the name of the prompt"),
        Column("prompt_hash", "string", "the hash of the prompt's words"),
        Column("messages", "string", "the request's messages, JSON"),
        Column("params", "string", "the request's parameters, JSON"),
        Column("generation", "string", "the reply with its usage and latency, JSON; null if the call failed"),
        Column("error", "string", "why the call failed; null if it did not"),
    ),
    "metrics": (
        *_RUN,
        Column("metric", "string", "the name of the metric"),
        Column("group", "string", "`all`, or a group of the benchmark"),
        Column("value", "double", "the metric as reports show it; null if undefined"),
        *_INTERVAL,
        Column("n", "int64", "samples that count"),
        Column("successes", "int64", "of n, for shares of samples; null for other metrics"),
        *_SIZE,
    ),
    "effects": (
        *_RUN,
        Column("before", "string", "the label of the arm that is compared with"),
        Column("after", "string", "the label of the compared arm, as in `arm`"),
        Column("metric", "string", "the name of the metric"),
        Column("group", "string", "`all`, or a group of the benchmark"),
        Column("difference", "double", "after − before; of distances from zero, if zero is best"),
        *_INTERVAL,
        Column("n", "int64", "samples graded in both arms"),
        Column("p_value", "double", "of no difference; null if undefined"),
        Column("p_adjusted", "double", "the same after the correction for several tests"),
        Column("correction", "string", "`holm` or another correction"),
        Column("test", "string", "`cluster permutation` or `exact McNemar`"),
        Column("detectable", "double", "the difference that is decided with 80 % power; null if unknown or if none is"),
        Column("direction", "string", "`fell`, `rose` or `undecided`"),
        Column("first", "double", "the value of `before` on these samples"),
        Column("last", "double", "the value of `after` on these samples"),
        *_SIZE,
    ),
    "evidence": (
        Column("query", "string", "what was searched for"),
        Column("provider", "string", "the search provider"),
        Column("time", "string", "when it was searched, in UTC"),
        Column("hits", "string", "the results, JSON"),
    ),
}  # fmt: skip
OWN = ("meta_", "grade_")
"""Beginnings of columns that a benchmark defines: what its samples hold, and its grades."""


def column_types(table: str, rows: Iterable[Mapping[str, Any]]) -> dict[str, Type]:
    """The columns that the rows have, in the order of the schema and then of appearance, with their types."""
    kinds: dict[str, set[type[Any]]] = {}
    for row in rows:
        for name, value in row.items():
            kinds.setdefault(name, set()).add(cast("type[Any]", type(value)))
    fixed: dict[str, Type] = {
        column.name: column.type for column in SCHEMAS[table] if column not in USAGE or column.name in kinds
    }
    return {**fixed, **{name: _inferred(found) for name, found in kinds.items() if name not in fixed}}


def _inferred(kinds: set[type[Any]]) -> Type:
    """One type for all values of a column; text if they have none in common."""
    kinds = kinds - {type(None)}
    if kinds and kinds <= {bool}:
        return "bool"
    if kinds and kinds <= {int}:
        return "int64"
    return "double" if kinds and kinds <= {int, float} else "string"


def as_type(value: Any, wanted: Type) -> Any:
    """A cell as its column has it; lists and mappings are JSON."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return None
    if wanted == "string":
        plain = plain_cell(value)
        text = plain if isinstance(plain, str) else orjson.dumps(plain).decode()
        # Model output may hold what is not valid Unicode.
        return text.encode("utf-8", "replace").decode()
    return float(value) if wanted == "double" else value
