"""Reads YAML files safely, with errors that name file and line, and hashes their content."""

from __future__ import annotations

import hashlib
from importlib.resources.abc import Traversable
from typing import Any

import orjson
import yaml

from evenhand.core.errors import DataError


def read_yaml(file: Traversable) -> Any:
    """Return the parsed content, of any type."""
    try:
        return parse_yaml(file.read_bytes(), file)
    except OSError as error:
        raise DataError(f"cannot be read: {error}.", file=str(file)) from error


def content_hash(content: Any) -> str:
    """Return the SHA-256 of values and dataclasses, independent of how their file is formatted."""
    return hashlib.sha256(orjson.dumps(content)).hexdigest()


def parse_yaml(content: bytes, file: Traversable) -> Any:
    """Return the value of what was read from `file`."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return yaml.load(content.decode("utf-8"), Loader=loader)  # noqa: S506 - one of the two safe loaders
    except UnicodeDecodeError as error:
        raise DataError(f"cannot be read: {error}.", file=str(file)) from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = None if mark is None else mark.line + 1
        problem = getattr(error, "problem", None) or "unreadable"
        raise DataError(f"not valid YAML ({problem}).", file=str(file), line=line) from error
