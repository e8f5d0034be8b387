"""What all parts of the config share: unknown fields are errors, and names are short and harmless."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, ConfigDict

STRICT = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]{0,99}")


def _checked_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError("a name may have at most 100 letters, digits and . _ : / @ -")
    return name


Name = Annotated[str, AfterValidator(_checked_name)]
