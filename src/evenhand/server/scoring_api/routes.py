"""The routes of all scoring endpoints."""

from __future__ import annotations

from aiohttp import web

from evenhand.scorers.base import Scorer
from evenhand.server.scoring_api.discovery import discovery_routes
from evenhand.server.scoring_api.moderations import moderation_routes
from evenhand.server.scoring_api.perspective import perspective_routes


def scoring_routes(scorer: Scorer) -> list[web.RouteDef]:
    """Return the handlers; the application must also use the middleware `google_errors`."""
    return [*moderation_routes(scorer), *perspective_routes(scorer), *discovery_routes()]
