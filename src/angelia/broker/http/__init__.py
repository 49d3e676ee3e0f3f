"""The HTTP door of a broker: CloudEvents in and out, webhooks, types, metrics. See docs/http.md."""

from angelia.broker.http.app import create_app
from angelia.broker.http.server import Server, serve
from angelia.broker.http.service import Service
from angelia.broker.http.settings import Outside, Settings

__all__ = ["Outside", "Server", "Service", "Settings", "create_app", "serve"]
