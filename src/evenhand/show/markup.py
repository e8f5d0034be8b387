"""Builds HTML that is safe by construction: every string is escaped unless it is already `Html`.

Text from models and data sets is untrusted. Control characters, bidirectional marks and lone surrogates are replaced
by visible symbols.
"""

from __future__ import annotations

import html
import json
import math
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias, cast

from evenhand.core.untrusted import clean

Node: TypeAlias = "str | Iterable[Node] | None"
Attribute: TypeAlias = "str | int | float | bool | None"

_VOID = frozenset({"br", "hr", "input", "link", "meta"})
_EMPTY = frozenset({"line", "path", "rect", "use"})
"""Elements of SVG without content, closed in their own tag."""
_JSON_ESCAPES = {c: f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"}


class Html(str):
    """Text that is already markup."""

    __slots__ = ()


def escape(text: str) -> Html:
    """Return markup that shows the text literally."""
    return text if isinstance(text, Html) else Html(html.escape(clean(text)))


def join(*nodes: Node) -> Html:
    return Html("".join(_flat(nodes)))


def _flat(node: Node) -> Iterable[str]:
    if node is None:
        return
    if isinstance(node, str):
        yield escape(node)
    else:
        for child in node:
            yield from _flat(child)


def tag(name: str, /, *children: Node, **attributes: Attribute) -> Html:
    """Return an element; `class_` means class, `aria_label` means aria-label, None and False omit the attribute."""
    written = "".join(_attribute(key, value) for key, value in attributes.items())
    if name in _VOID or name in _EMPTY:
        return Html(f"<{name}{written}{'/' if name in _EMPTY else ''}>")
    return Html(f"<{name}{written}>{join(children)}</{name}>")


def _attribute(key: str, value: Attribute) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escape(str(value))}"'


def plain(value: Any) -> Any:
    """Return the value as plain JSON: cleaned strings, string keys, no NaN; other types become text."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        items = cast("Mapping[Any, Any]", value).items()
        return {clean(str(key)): plain(item) for key, item in items}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in cast("Iterable[Any]", value)]
    return clean(str(value))


def embedded_json(value: Any) -> Html:
    """Return JSON that is safe inside a script element, for any strings."""
    text = json.dumps(plain(value), ensure_ascii=False, separators=(",", ":"))
    for character, escaped in _JSON_ESCAPES.items():  # ten times as fast as str.translate
        text = text.replace(character, escaped)
    return Html(text)
