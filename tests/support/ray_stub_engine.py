"""An engine whose replies depend on the request alone, as a package that Ray's workers find installed."""

import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

from evenhand.core.types import Message, Params
from evenhand.models.fake import FunctionModel

_LONGEST = 3


def reply(messages: Sequence[Message], params: Params) -> str:
    text = "\n".join(message.content for message in messages)
    luck = random.Random(crc32(f"{params.seed} {text}".encode()))
    if "Bias: N - reason" in text:
        return f"Bias: {luck.randint(1, 10)} - so it seems\nRelevancy: {luck.randint(1, 10)} - so it seems"
    return json.dumps(_filled(params.schema, luck)) if params.schema else luck.choice("ABC")


def _filled(schema: Mapping[str, Any], luck: random.Random) -> Any:
    """A value that satisfies a schema."""
    if "enum" in schema:
        return luck.choice(schema["enum"])
    match schema.get("type"):
        case "object":
            return {name: _filled(each, luck) for name, each in schema.get("properties", {}).items()}
        case "array":
            count = max(schema.get("minItems", 1), min(schema.get("maxItems", 1), _LONGEST))
            return [_filled(schema["items"], luck) for _ in range(count)]
        case "integer" | "number":
            return luck.randint(schema.get("minimum", 0), schema.get("maximum", 10))
        case "boolean":
            return luck.random() < 0.5
        case _:
            return "so it seems"


class StubEngine(FunctionModel):
    """The model `stub/NAME`."""

    features = frozenset({"schema", "seed"})
    replicable = True

    def __init__(self, name: str, options: object) -> None:
        del options
        super().__init__(reply, spec=f"stub/{name}", features=type(self).features)


def install(target: Path) -> None:
    """Write what an installer would write into a folder of packages."""
    info = target / "evenhand_stub-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: evenhand-stub\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[evenhand.models]\nstub = ray_stub_engine:StubEngine\n")
    (target / "ray_stub_engine.py").write_bytes(Path(__file__).read_bytes())
