"""Where a model is reached: what its spec says, what a config file says of its provider, and the defaults.

`openai/qwen3?base_url=http://localhost:8000/v1&key=VLLM_KEY` carries its own options. `local-vllm/qwen3` is a model of
the provider `local-vllm` of a config file. A spec's own options win over the defaults (flags), and these over the
provider's; but a provider with a name of its own keeps its endpoint. An endpoint is sent no key but the one that is
named along with it. OPENAI_API_KEY belongs to the endpoint of --base-url, OPENAI_BASE_URL or OpenAI.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast
from urllib.parse import parse_qsl

from evenhand.core.config import Provider, read_config
from evenhand.core.errors import UnknownNameError, UsageError
from evenhand.core.specs import model_spec, scalar
from evenhand.core.types import Price
from evenhand.models.base import PROVIDERS, Model, split_spec

Fail = Callable[[str, str], Exception]
"""(option, message) → the error that says where the option stands."""

_PROVIDER = re.compile(r"(?<![\w./-])([\w.-]+)/")
_log = logging.getLogger("evenhand.core.config")
_told: set[str] = set()


def resolved(
    spec: str, own: Mapping[str, Any] | None = None, defaults: Mapping[str, Any] | None = None
) -> tuple[str, dict[str, Any]]:
    """Return a model's PROVIDER/NAME, and how to reach it: provider, base_url, key, timeout, …, extra.

    Args:
        own: Options of the model besides those in its spec; if `provider` is among them, all is resolved already.
        defaults: Options for models that do not set them.
    """
    own, defaults = own or {}, dict(defaults or {})
    if own.get("provider"):
        return spec, dict(own)
    bare, texts = model_spec(spec)
    if defaults.get("base_url"):
        defaults["base_url"] = _value("base_url", defaults["base_url"], f"model {bare}", _plain)
    name = split_spec(bare)[0]
    config = read_config()
    provider = config.providers.get(name)
    kind = provider.kind if provider else name
    in_spec = _checked(kind, texts, f"model {bare}", _plain) if texts else {}
    set_ones = {name: value for name, value in own.items() if value is not None}
    own = {name: _value(name, value, f"model {bare}", _plain) for name, value in set_ones.items()}
    stated = provider_options(provider) if provider else {}
    if kind == "http" and (target := config.http.get(split_spec(bare)[1])) is not None:
        shared = {name: value for name, value in target.fields.items() if name in SHARED}
        stated |= _checked(kind, shared, f"target {bare}", target.error)
        if target.source.is_project:
            _tell_once(target, {"base_url": target.fields.get("url")})
    if bare in config.prices:
        stated["price"] = config.prices[bare]
    if bare in config.pinned:
        stated["extra"] = {**stated.get("extra", {}), "pinned": config.pinned[bare]}
    if kind != name:
        defaults = {key: value for key, value in defaults.items() if key not in ("base_url", "key")}
    layers = (in_spec, own, defaults, stated)
    fields: dict[str, Any] = {"extra": {}}
    for layer in reversed(layers):
        fields |= {**layer, "extra": {**fields["extra"], **layer.get("extra", {})}}
    fields |= {"provider": kind, **_address(*layers, keyless=kind != name)}
    if provider and provider.source.is_project:
        _tell_once(provider, fields)
    return bare, fields


def _plain(_name: str, message: str) -> Exception:
    return UsageError(message)


def call_among(value: Any) -> str | None:
    """Return the first text in a value, at any depth, that names a model of the provider `call`, which runs code."""
    match value:
        case str():
            providers = read_config().providers
            for name in _PROVIDER.findall(value):
                if (providers[name].kind if name in providers else name) == "call":
                    return value
            return None
        case {"provider": "call", "spec": str(spec)}:
            return spec
        case Mapping():
            return call_among(list(cast(Mapping[Any, Any], value).values()))
        case list() | tuple():
            found = map(call_among, cast(Sequence[Any], value))
            return next((each for each in found if each is not None), None)
        case _:
            return None


def check_no_call(value: Any, source: object) -> None:
    """Refuse models that run code, if a file names them and the user has not allowed it."""
    if (found := call_among(value)) is not None:
        raise UsageError(f"{source} names {found}, which runs Python code. If you trust it, pass --allow-call.")


def provider_options(provider: Provider) -> dict[str, Any]:
    """Return the options that a config file gives to the models of a provider."""
    values = {name: value for name, value in provider.fields.items() if name != "type"}
    if "base_urls" in values:
        if "base_url" in values:
            raise provider.error("base_urls", f"the provider {provider.name} has base_url and base_urls; remove one.")
        values["base_url"] = values.pop("base_urls")
    try:
        found = _checked(provider.kind, values, f"provider {provider.name}", provider.error)
    except UnknownNameError as error:  # no such type
        raise provider.error("type", str(error)) from error
    takes = _takes(provider.kind)
    if provider.kind != provider.name and takes and "base_url" in takes and "base_url" not in found:
        raise provider.error("", f"the provider {provider.name} has no base_url; add one.")
    return found


def provider_class(name: str) -> type[Model]:
    """Return the registered provider; one that is neither registered nor in a config file is an error."""
    try:
        return PROVIDERS.get(name)
    except UnknownNameError:
        raise UnknownNameError("model provider", name, {*PROVIDERS.names(), *read_config().providers}) from None


def _address(
    in_spec: Mapping[str, Any],
    own: Mapping[str, Any],
    defaults: Mapping[str, Any],
    stated: Mapping[str, Any],
    *,
    keyless: bool,
) -> dict[str, Any]:
    """Return the endpoint of the first layer that has one, and the key of that layer or one above it.

    Without such a key, an endpoint in a spec or in a config file gets none; one by a flag or in a plan gets the usual
    key, unless the model is `keyless`.
    """
    keys: list[str] = []
    for layer in (in_spec, own, defaults, stated):
        keys += [layer["key"]] if layer.get("key") is not None else []
        if layer.get("base_url"):
            no_key = "" if keyless or layer is in_spec or layer is stated else None
            return {"base_url": layer["base_url"], "key": keys[0] if keys else no_key}
    return {"key": keys[0]} if keys else {}


def _checked(kind: str, values: Mapping[str, Any], owner: str, fail: Fail) -> dict[str, Any]:
    """Return options by name, in their types; those that only the provider knows are in `extra`."""
    takes = _takes(kind)
    found: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    for name, value in values.items():
        if takes is not None and name not in {*_COMMON, *takes}:
            raise fail(name, str(UnknownNameError(f"option of the {owner}", name, {*_COMMON, *takes})))
        if name in _READ:
            (extra if name == "pinned" else found)[name] = _value(name, value, owner, fail)
        else:
            extra[name] = scalar(value) if isinstance(value, str) else value
    return {**found, "extra": extra} if extra else found


def option_names(provider: str) -> frozenset[str] | None:
    """Return the options that the models of a provider take; None: any."""
    takes = _takes(provider)
    return None if takes is None else takes | {*_COMMON, "key_env"}


def _takes(kind: str) -> frozenset[str] | None:
    return getattr(provider_class(kind), "takes", None)  # a provider may be any function


def _value(name: str, value: Any, owner: str, fail: Fail) -> Any:
    if name not in _READ:
        return value
    words, read = _READ[name]
    try:
        return read(value)
    except (TypeError, ValueError) as error:
        shown = "" if name in ("key", "base_url") else f", not {value!r}"
        raise fail(name, f"The option {name} of the {owner} must be {words}{shown}.") from error


_KEY = re.compile(r"(?=.*\d)(?:(?:sk|pk|rk|hf|gsk|ghp|xai|evh|nvapi)[-_]|AKIA|AIza)[\w-]{12,}")
_ID = re.compile(r"[\da-f]{8}(?:-[\da-f]{4}){3}-[\da-f]{12}|\d+", re.IGNORECASE)
_NAMED = re.compile(r"//gateway\.ai\.cloudflare\.com/v1/[^/]+|/(?:accounts|projects|deployments|endpoints)/[^/]+")
"""Where an address usually has an identifier, however random it looks."""
_CHANGE = re.compile(r"(?<=[a-z])(?=[A-Z\d])|(?<=\d)(?=[A-Za-z])|(?<=[A-Z])(?=\d)")


def holds_secret(url: str, *, in_path: bool = True) -> bool:
    """Return whether an address contains a password or a key; `in_path`: a long, random part of its path is a key."""
    address, _, query = url.partition("?")
    names = [name.lower() for name, _ in parse_qsl(query)]
    path = _NAMED.sub("", address).partition("://")[2].split("/")[1:] if in_path else ()
    return (
        "@" in address
        or any(name.endswith(("key", "token", "secret", "sig")) for name in names)
        or any(map(_is_random, path))
    )


def _is_random(part: str) -> bool:
    """Whether a part of a path looks like a key: in names, letters and digits alternate less, or words are short."""
    if _KEY.fullmatch(part):
        return True
    words = re.findall(r"[^\W_]+", part)
    size = sum(map(len, words))
    named = size < 20 or max(map(len, words)) < 12 or "$" in part or _ID.fullmatch(part)
    return not named and len(_CHANGE.findall(part)) > 0.25 * size


def _addresses(value: Any) -> str:
    """Return one address, or several sorted and joined by commas: a pool."""
    values = cast(list[Any], value) if isinstance(value, list) else str(value).split(",")
    found = sorted({str(each).strip() for each in values} - {""})
    if not found or any(map(holds_secret, found)):
        raise ValueError
    return ",".join(found)


def _variable(value: Any) -> str:
    """Return the name of an environment variable; what may be a key itself is refused."""
    name = str(value).strip()
    is_name = re.fullmatch(r"[A-Za-z_]\w{0,63}", name, re.ASCII)
    looks_random = len(name) >= 16 and "_" not in name and any(map(str.isdigit, name))
    if name and name not in os.environ and (not is_name or not name.isupper() or looks_random):
        raise ValueError
    return name


def _number(value: Any, kind: type[int] | type[float], least: float) -> Any:
    if isinstance(value, bool):
        raise TypeError
    number = kind(value)
    if not least <= number < float("inf") or (kind is int and float(value) != number):
        raise ValueError
    return number


def _price(value: Any) -> Price:
    match value:
        case Price():
            return value
        case {"input": money_in, "output": money_out, **rest} if not rest:
            return Price(_number(money_in, float, 0), _number(money_out, float, 0))
        case _:
            return Price.parse(str(value))


def revision(value: Any) -> str:
    """Return the name of a revision; a bare yes or no names none."""
    name = "" if isinstance(value, bool) else str(value).strip()
    if not name or name.lower() in ("true", "false"):
        raise ValueError
    return name


SHARED = ("timeout", "retries", "concurrency", "price")
"""How often, how long and at what price any endpoint is called."""
_COMMON = (*SHARED, "reasoning", "thought_tokens", "pinned")
"""Options of every model; others are those that its provider `takes`."""
_READ: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    "base_url": (
        "an address such as http://localhost:8000/v1, or several, without a password or key ($NAME in a path is its "
        "environment variable)",
        _addresses,
    ),
    "key": ("the name of an environment variable that holds the key, never the key itself", _variable),
    "timeout": ("a number of seconds", lambda value: _number(value, float, 1e-3)),
    "retries": ("a whole number", lambda value: _number(value, int, 0)),
    "concurrency": ("a whole number of at least 1", lambda value: _number(value, int, 1)),
    "price": ("INPUT/OUTPUT per million tokens, e.g. 0.15/0.60", _price),
    "pinned": ("the revision that the endpoint serves, e.g. 2026-11-02", revision),
}
"""Option → (what it must be, how it is read)."""


def _tell_once(provider: Provider, fields: Mapping[str, Any]) -> None:
    """Say which file of the project decides where requests go, and with which key."""
    key = f" with the key in {fields['key']}" if fields.get("key") else ""
    name = f"http/{provider.name}" if provider.table == "http" else f"{provider.name}/"
    text = f"evenhand: {provider.source.path} sends {name} to {fields.get('base_url') or provider.kind}{key}."
    if text not in _told:
        _told.add(text)
        _log.warning(text)
