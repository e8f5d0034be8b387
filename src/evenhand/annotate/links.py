"""The links of a study: a token for each rater and one for the owner, made from one secret of the study.

The secret is in the owner's folder, so that links stay valid when the server is started again; a new secret ends them.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from pathlib import Path

from evenhand.core import files
from evenhand.core.errors import DataError

FILE = "links.key"
_BYTES = 32


def read_secret(folder: Path, *, renew: bool = False) -> bytes:
    """Return the study's secret; it is made at first use, and again with `renew`."""
    path = folder / FILE
    try:
        if renew or not path.exists():
            files.write_bytes(path, secrets.token_hex(_BYTES).encode(), mode=0o600)
        secret = bytes.fromhex(path.read_text(encoding="ascii").strip())
    except OSError as error:
        raise DataError(f"cannot be used: {error.strerror}. Use a folder that you may write to.", file=path) from error
    except ValueError as error:
        raise DataError("damaged. Make new links with --new-links.", file=path) from error
    if len(secret) != _BYTES:
        raise DataError("damaged. Make new links with --new-links.", file=path)
    return secret


def token(secret: bytes, who: str) -> str:
    """Return the token of a rater, by name, or of the owner, whose name is ""."""
    return base64.urlsafe_b64encode(hmac.digest(secret, who.encode(), "sha256")).decode().rstrip("=")


def token_hash(presented: str) -> str:
    return hashlib.sha256(presented.encode()).hexdigest()
