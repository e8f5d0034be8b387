"""The discovery document, for users of Perspective through Google's client library."""

from __future__ import annotations

from typing import Any

import orjson
from aiohttp import web

from evenhand.server.scoring_api.perspective import PATH as ANALYZE

PATH = "/$discovery/rest"


def discovery_routes() -> list[web.RouteDef]:
    async def discover(request: web.Request) -> web.Response:
        document = discovery_document(_origin(request))
        return web.Response(body=orjson.dumps(document), content_type="application/json")

    return [web.get(PATH, discover)]


def discovery_document(origin: str) -> dict[str, Any]:
    """Return the document that tells Google's client library the one method and its path."""
    query = {name: {"type": "string", "location": "query"} for name in ("key", "alt", "prettyPrint")}
    method: dict[str, Any] = {
        "id": "commentanalyzer.comments.analyze",
        "path": ANALYZE.removeprefix("/"),
        "httpMethod": "POST",
        "parameters": {},
        "parameterOrder": [],
        "request": {"$ref": "AnalyzeCommentRequest"},
        "response": {"$ref": "AnalyzeCommentResponse"},
    }
    names = ("AnalyzeCommentRequest", "AnalyzeCommentResponse")
    return {
        "kind": "discovery#restDescription",
        "id": "commentanalyzer:v1alpha1",
        "name": "commentanalyzer",
        "version": "v1alpha1",
        "protocol": "rest",
        "rootUrl": f"{origin}/",
        "servicePath": "",
        "parameters": query,
        "schemas": {name: {"id": name, "type": "object", "properties": {}} for name in names},
        "resources": {"comments": {"methods": {"analyze": method}}},
    }


def _origin(request: web.Request) -> str:
    """Return the origin as the client sees it; a proxy in front may use https."""
    scheme = request.headers.get("X-Forwarded-Proto", "")
    return f"{scheme if scheme in ('http', 'https') else request.scheme}://{request.host}"
