"""The server's config: routes, keys, limits, audit file, CORS, scorer."""

from evenhand.server.config.access import BudgetConfig, KeyConfig, LimitsConfig, Permission
from evenhand.server.config.base import Name
from evenhand.server.config.file import ServeConfig, make_config, parse_config, read_config, read_keys
from evenhand.server.config.route import InputConfig, PriceConfig, RouteConfig, UpstreamConfig
from evenhand.server.config.state import StateConfig
from evenhand.server.config.telemetry import AuditConfig, LogConfig

__all__ = [
    "AuditConfig",
    "BudgetConfig",
    "InputConfig",
    "KeyConfig",
    "LimitsConfig",
    "LogConfig",
    "Name",
    "Permission",
    "PriceConfig",
    "RouteConfig",
    "ServeConfig",
    "StateConfig",
    "UpstreamConfig",
    "make_config",
    "parse_config",
    "read_config",
    "read_keys",
]
