"""The scoring endpoints: any scorer, asked in the forms of OpenAI's moderations and of Perspective."""

from __future__ import annotations

from aiohttp import web

from evenhand.scorers.base import Scorer
from evenhand.server.scoring_api.discovery import discovery_routes
from evenhand.server.scoring_api.moderations import moderation_routes
from evenhand.server.scoring_api.perspective import perspective_routes


def scoring_routes(scorer: Scorer) -> list[web.RouteDef]:
    """The handlers; `google_errors` of perspective_errors.py belongs among the middlewares."""
    return [*moderation_routes(scorer), *perspective_routes(scorer), *discovery_routes()]
