"""The samples that a report embeds, read back."""

from __future__ import annotations

import base64
import json
import re
import zlib
from typing import Any


def sample_data(page: str) -> Any:
    found = re.search(r'id="sample-data" data-packed="deflate">(.*?)</script>', page)
    assert found is not None
    return json.loads(zlib.decompress(base64.b64decode(found.group(1))))
