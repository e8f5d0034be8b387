"""What makes a pack prove itself: a commitment from before the run, and a signature after it.

A commitment says which plan, samples, seeds, models and version will be run. It is published before the run; with a
salt, only its hash is, and what it says stays hidden until the pack discloses it. A pack is signed as an in-toto
statement in a DSSE envelope with an Ed25519 key; the package `cryptography` does it.
"""

from __future__ import annotations

import hashlib
import secrets
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import orjson

from evenhand.benchmarks.base import Selection, load_benchmark
from evenhand.core.errors import DataError, UsageError, needs_extra
from evenhand.core.files import read_json, write_bytes
from evenhand.core.version import own_version
from evenhand.runs.parts import Settings
from evenhand.runs.plan import Plan, make_plan
from evenhand.runs.runner import Runner
from evenhand.runs.stored import as_stored_json

ENVELOPE = "signature.dsse.json"
COMMITMENTS = "commitments"
_TYPE = "application/vnd.in-toto+json"
_STATEMENT = "https://in-toto.io/Statement/v1"
_PREDICATE = "urn:evenhand:evidence:v1"
_TITLES = {
    "plan": "the plan",
    "benchmark": "the data",
    "models": "the models",
    "samples": "the samples",
    "seeds": "the seeds",
    "evenhand": "the version of Evenhand",
}
"""What is committed to."""


# --- before the run ---


async def commit(plan: Plan, settings: Settings) -> dict[str, Any]:
    """Say what a plan will run; models are loaded, but not called."""
    facts = await Runner(plan, Path(), settings).describe()
    chosen = load_benchmark(plan.benchmark, **plan.benchmark_options).samples(Selection(plan.limit, plan.seeds[0]))
    return _content(as_stored_json(facts), [sample.id for sample in chosen])


def _content(facts: Mapping[str, Any], samples: Iterable[str]) -> dict[str, Any]:
    """The committed parts, of a plan before its run or of the grades after it."""
    plan = make_plan(facts["plan"])
    return {
        "plan": _hash(plan.essence()),
        "benchmark": _hash(facts["benchmark"]),
        "models": _hash(facts["models"]),
        "samples": _hash(sorted(samples)),
        "seeds": list(plan.seeds),
        "evenhand": facts["versions"]["evenhand"],
    }


def _hash(value: Any) -> str:
    return hashlib.sha256(orjson.dumps(value, option=orjson.OPT_SORT_KEYS)).hexdigest()


def write_commitment(content: Mapping[str, Any], target: Path, *, hidden: bool) -> tuple[str, Path | None]:
    """Write the commitment; return its hash and, if its content is hidden, the file that opens it (0600)."""
    made = datetime.now(UTC).isoformat(timespec="seconds")
    whole = {"made": made, **content, **({"salt": secrets.token_hex(32)} if hidden else {})}
    digest = _hash(whole)
    if not hidden:
        write_bytes(target, orjson.dumps({"sha256": digest, **whole}, option=orjson.OPT_INDENT_2))
        return digest, None
    opening = target.with_suffix(".opening.json")
    write_bytes(opening, orjson.dumps({"sha256": digest, **whole}, option=orjson.OPT_INDENT_2), mode=0o600)
    write_bytes(target, orjson.dumps({"sha256": digest}, option=orjson.OPT_INDENT_2))
    return digest, opening


def read_commitment(path: Path) -> dict[str, Any]:
    found: Any = read_json(path)
    if isinstance(found, dict) and isinstance(cast("dict[str, Any]", found).get("sha256"), str):
        return cast("dict[str, Any]", found)
    raise DataError("this is not a commitment; `evenhand evidence commit` makes one.", file=path)


def commitment_faults(stated: Mapping[str, Any], facts: Mapping[str, Any], samples: Iterable[str]) -> list[str]:
    """Name what of a run is not as it was committed to."""
    whole = {name: value for name, value in stated.items() if name != "sha256"}
    if stated.get("sha256") != _hash(whole):
        return ["its hash does not fit its content"]
    found = _content(facts, samples)
    return [
        f"{title} are not those of the run" if title.endswith("s") else f"{title} is not that of the run"
        for name, title in _TITLES.items()
        if stated.get(name) != found[name]
    ]


# --- after it ---


def _cryptography(what: str) -> tuple[Any, Any]:
    with needs_extra(what, "sign"):
        return (
            import_module("cryptography.hazmat.primitives.asymmetric.ed25519"),
            import_module("cryptography.hazmat.primitives.serialization"),
        )


def make_key(target: Path) -> Path:
    """Write a new private key, for its owner only, and the public one beside it; return the latter."""
    ed25519, coding = _cryptography("keys")
    public = target.with_suffix(".pub")
    for path in (target, public):
        if path.exists():
            raise UsageError(f"{path} exists; a key is never overwritten, choose another name.")
    key = ed25519.Ed25519PrivateKey.generate()
    form = (coding.Encoding.PEM, coding.PrivateFormat.PKCS8, coding.NoEncryption())
    write_bytes(target, key.private_bytes(*form), mode=0o600)
    write_bytes(public, _pem(key.public_key(), coding))
    return public


def _pem(public: Any, coding: Any) -> bytes:
    return public.public_bytes(coding.Encoding.PEM, coding.PublicFormat.SubjectPublicKeyInfo)


def _key_id(public: Any, coding: Any) -> str:
    return hashlib.sha256(public.public_bytes(coding.Encoding.Raw, coding.PublicFormat.Raw)).hexdigest()


def _authenticated(payload: bytes) -> bytes:
    """What is signed, by the DSSE protocol: type and payload with their lengths."""
    return b"DSSEv1 %d %s %d %s" % (len(_TYPE), _TYPE.encode(), len(payload), payload)


def sign(folder: Path, sums: Mapping[str, str], key_file: Path) -> str:
    """Sign the files of a pack; return the id of the key."""
    ed25519, coding = _cryptography("signatures")
    try:
        key = coding.load_pem_private_key(key_file.read_bytes(), password=None)
    except OSError as error:
        raise UsageError(f"The key {key_file} cannot be read: {error.strerror}.") from error
    except (ValueError, TypeError) as error:
        raise UsageError(f"{key_file} is not a private key without a password; make one: evidence key FILE.") from error
    if not isinstance(key, ed25519.Ed25519PrivateKey):
        raise UsageError(f"{key_file} is no Ed25519 key; make one: evenhand evidence key FILE.")
    statement = {
        "_type": _STATEMENT,
        "subject": [{"name": name, "digest": {"sha256": digest}} for name, digest in sums.items()],
        "predicateType": _PREDICATE,
        "predicate": {"evenhand": own_version(), "public_key": _pem(key.public_key(), coding).decode()},
    }
    payload = orjson.dumps(statement, option=orjson.OPT_SORT_KEYS)
    signature = {
        "keyid": _key_id(key.public_key(), coding),
        "sig": b64encode(key.sign(_authenticated(payload))).decode(),
    }
    envelope = {"payloadType": _TYPE, "payload": b64encode(payload).decode(), "signatures": [signature]}
    write_bytes(folder / ENVELOPE, orjson.dumps(envelope, option=orjson.OPT_INDENT_2))
    return signature["keyid"]


def signature_faults(folder: Path, sums: Mapping[str, str], trusted: Path | None) -> tuple[str, list[str]]:
    """Check the signature; return the id of the key and what is wrong. `trusted` is the public key of the signer."""
    ed25519, coding = _cryptography("checking a signature")
    try:
        envelope: Any = orjson.loads((folder / ENVELOPE).read_bytes())
        payload, made = b64decode(envelope["payload"], validate=True), envelope["signatures"][0]
        statement: Any = orjson.loads(payload)
        signed = {str(each["name"]): str(each["digest"]["sha256"]) for each in statement["subject"]}
        pem = statement["predicate"]["public_key"].encode() if trusted is None else trusted.read_bytes()
        public, signature = coding.load_pem_public_key(pem), b64decode(made["sig"], validate=True)
    except OSError as error:
        raise UsageError(f"The key {trusted} cannot be read: {error.strerror}.") from error
    except (ValueError, LookupError, TypeError, AttributeError):
        return "", ["it is not a signature, or the key is not a public key"]
    if not isinstance(public, ed25519.Ed25519PublicKey) or envelope["payloadType"] != _TYPE:
        return "", ["it is of another kind than Ed25519 over in-toto"]
    key_id = _key_id(public, coding)
    try:
        public.verify(signature, _authenticated(payload))
    except Exception as error:  # cryptography's InvalidSignature
        if type(error).__name__ != "InvalidSignature":
            raise
        whose = "" if trusted is None else f" by {trusted}"
        return key_id, [f"the signature does not hold{whose}: it was made by another key, or what it signs was changed"]
    named = sorted({*signed, *sums})
    return key_id, [f"{name} is not what was signed" for name in named if signed.get(name) != sums.get(name)]
