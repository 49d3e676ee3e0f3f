"""The commands of a broker: `broker` and `certs`."""

from __future__ import annotations

import asyncio
import datetime as dt
import gc
import logging
import signal
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from angelia.broker.broker import Broker
from angelia.broker.settings import BrokerSettings, load

__all__ = ["broker", "certs", "run_broker"]


def _option(name: str, *flags: str) -> Any:
    field = BrokerSettings.model_fields[name]
    default = field.get_default(call_default_factory=True)
    shown = f" (default: {default})" if default not in (None, "", [], False) else ""
    return typer.Option(*flags, help=f"{field.description}{choices(name)}{shown}", show_default=False)


def choices(name: str) -> str:
    """What an option can be, if that is one of a few words."""
    words = [word for word in get_args(BrokerSettings.model_fields[name].annotation) if isinstance(word, str)]
    return f" One of {', '.join(words)}." if words else ""


def broker(
    config: Annotated[Path | None, typer.Option(help="A TOML file with any of these options.")] = None,
    name: Annotated[str | None, _option("name")] = None,
    listen: Annotated[str | None, _option("listen")] = None,
    routing: Annotated[str | None, _option("routing")] = None,
    peer: Annotated[list[str] | None, _option("peers", "--peer")] = None,
    master: Annotated[str | None, _option("master")] = None,
    http: Annotated[str | None, _option("http")] = None,
    http_origin: Annotated[list[str] | None, _option("http_origins", "--http-origin")] = None,
    http_url: Annotated[str | None, _option("http_url")] = None,
    webhook_target: Annotated[list[str] | None, _option("webhook_targets", "--webhook-target")] = None,
    lake: Annotated[Path | None, _option("lake")] = None,
    lake_sync: Annotated[str | None, _option("lake_sync")] = None,
    journal: Annotated[Path | None, _option("journal")] = None,
    state: Annotated[Path | None, _option("state")] = None,
    tls_cert: Annotated[Path | None, _option("tls_cert")] = None,
    tls_key: Annotated[Path | None, _option("tls_key")] = None,
    tls_ca: Annotated[Path | None, _option("tls_ca")] = None,
    tokens: Annotated[Path | None, _option("tokens")] = None,
    token: Annotated[str | None, _option("token")] = None,
    insecure: Annotated[bool | None, _option("insecure", "--insecure")] = None,
    heartbeat: Annotated[float | None, _option("heartbeat")] = None,
    timeout: Annotated[float | None, _option("timeout")] = None,
    max_frame: Annotated[int | None, _option("max_frame")] = None,
    max_connections: Annotated[int | None, _option("max_connections")] = None,
    max_subscriptions: Annotated[int | None, _option("max_subscriptions")] = None,
    max_types: Annotated[int | None, _option("max_types")] = None,
    queue: Annotated[int | None, _option("queue")] = None,
    queue_bytes: Annotated[int | None, _option("queue_bytes")] = None,
    policy: Annotated[str | None, _option("policy")] = None,
    link_bytes: Annotated[int | None, _option("link_bytes")] = None,
    stall: Annotated[float | None, _option("stall")] = None,
    drain: Annotated[float | None, _option("drain")] = None,
    log_level: Annotated[str | None, _option("log_level")] = None,
) -> None:
    """Run a broker until it is told to stop (SIGTERM or Ctrl-C).

    Each option is also read from the environment (ANGELIA_LISTEN, …) and from the TOML file; a flag
    wins over the environment, and that over the file.
    """
    lists = {"peer": "peers", "http_origin": "http_origins", "webhook_target": "webhook_targets"}
    flags = {lists.get(key, key): value for key, value in locals().items() if key not in ("config", "lists")}
    settings = load(config, **{key: value for key, value in flags.items() if value != []})
    logging.basicConfig(level=settings.log_level.upper(), format="%(asctime)s %(levelname)-7s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)  # it tells of each delivery to a webhook
    run_broker(settings)


def run_broker(settings: BrokerSettings) -> None:
    """Run a broker in this process until SIGTERM or SIGINT."""
    gc.set_threshold(50_000, 20, 50)  # events make much that is short-lived, and hardly any cycles
    try:
        import uvloop
    except ModuleNotFoundError:
        asyncio.run(_serve(settings))
    else:
        uvloop.run(_serve(settings))


async def _serve(settings: BrokerSettings) -> None:
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    async with Broker(settings) as it:
        print(f"{it.name} is ready on {it.address}", flush=True)
        await stopped.wait()


def certs(
    directory: Annotated[Path, typer.Argument(help="Where to write the files.")],
    name: Annotated[
        list[str] | None,
        typer.Option(help="What to make certificates for. (default: broker)", show_default=False),
    ] = None,
    host: Annotated[
        list[str] | None,
        typer.Option(help="Where they are valid. (default: localhost, 127.0.0.1, ::1)", show_default=False),
    ] = None,
    days: Annotated[int, typer.Option(min=1, max=3650, help="For how many days.")] = 365,
) -> None:
    """Make a development authority (ca.pem) and certificates that it signs. Not for production."""
    from angelia.broker.certs import make_certificates

    hosts = host or ["localhost", "127.0.0.1", "::1"]
    for path in make_certificates(directory, name or ["broker"], hosts, days, dt.datetime.now(dt.UTC)):
        typer.echo(path)
