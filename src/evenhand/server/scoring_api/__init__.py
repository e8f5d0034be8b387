"""Scoring endpoints in the formats of OpenAI's moderations and of Perspective, answered by any scorer."""

from __future__ import annotations

from aiohttp import web

from evenhand.scorers.base import Scorer
from evenhand.server.scoring_api.moderations import moderation_routes
from evenhand.server.scoring_api.perspective import discovery_routes, perspective_routes


def scoring_routes(scorer: Scorer) -> list[web.RouteDef]:
    """Return the handlers; the application must also use the middleware `google_errors`."""
    return [*moderation_routes(scorer), *perspective_routes(scorer), *discovery_routes()]
