"""What a broker can be told: by flags, by the environment (`ANGELIA_…`), and by a TOML file.

A flag wins over the environment, which wins over the file.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
    TomlConfigSettingsSource,
)

from angelia.broker.address import DEFAULT_PORT, Address
from angelia.errors import BrokerError
from angelia.routing import ROUTERS
from angelia.wire import MAX_FRAME

__all__ = ["BrokerSettings", "load"]


class BrokerSettings(BaseSettings):
    """Every option of a broker."""

    model_config = SettingsConfigDict(env_prefix="ANGELIA_", extra="forbid", validate_default=False)

    name: str = Field("", description="Its name in the network; from its address, if not told.")
    listen: str = Field(f"127.0.0.1:{DEFAULT_PORT}", description="Where peers and clients connect.")
    routing: str = Field("peer", description=f"The routing algorithm: {', '.join(ROUTERS)}.")
    peers: list[str] = Field([], description="Brokers to keep a link with, such as tcp://127.0.0.1:7401.")
    master: str | None = Field(None, description="The broker above, in a hierarchy.")
    http: str | None = Field(None, description="Where to serve HTTP, such as 127.0.0.1:8080.")
    http_origins: list[str] = Field([], description="Origins of web pages that may use the HTTP door.")
    http_url: str | None = Field(None, description="Where others reach the HTTP door, for webhook callbacks.")
    webhook_targets: list[str] = Field([], description="Private hosts and networks that webhooks may go to.")
    lake: Path | None = Field(None, description="A directory to keep all that is published here.")
    lake_sync: Literal["batch", "interval", "none"] = Field(
        "interval", description="When the lake is forced to disk: before each answer, every second, or never."
    )
    journal: Path | None = Field(
        None, description="A directory to note every message in, for angelia pipeline traffic."
    )
    state: Path | None = Field(
        None, description="A directory to keep webhook subscriptions and event types over restarts."
    )

    tls_cert: Path | None = Field(None, description="The broker's certificate (PEM); turns TLS on.")
    tls_key: Path | None = Field(None, description="The key of the certificate (PEM).")
    tls_ca: Path | None = Field(None, description="The authority that peers' certificates must be signed by.")
    tokens: Path | None = Field(None, description="A file with a token a line; clients must present one.")
    token: str | None = Field(None, description="The token that this broker presents to its peers.")
    insecure: bool = Field(False, description="Listen beyond loopback without TLS and tokens.")

    heartbeat: float = Field(2.0, gt=0, le=3600, description="Seconds between signs of life.")
    timeout: float = Field(
        0.0, ge=0, description="Seconds of silence that end a connection; 0: three heartbeats."
    )
    max_frame: int = Field(MAX_FRAME, ge=1 << 18, le=1 << 28, description="Bytes of a frame, at most.")
    max_connections: int = Field(10_000, ge=1, description="Connections at once, at most.")
    max_subscriptions: int = Field(100_000, ge=1, description="Subscriptions of a client, at most.")
    max_types: int = Field(10_000, ge=1, description="Event types that clients may have it know, at most.")
    queue: int = Field(10_000, ge=1, description="Events that wait for a slow client, at most.")
    queue_bytes: int = Field(32 << 20, ge=1 << 12, description="Bytes that wait for a slow client, at most.")
    policy: Literal["block", "drop_oldest", "drop_newest", "disconnect"] = Field(
        "drop_oldest", description="What happens when a client's queue is full, if the client does not say."
    )
    link_bytes: int = Field(
        4 << 20, ge=1 << 12, description="Bytes waiting for a peer that hold publishers back."
    )
    stall: float = Field(30.0, gt=0, description="Seconds that a peer may take nothing before it is cut off.")
    drain: float = Field(5.0, ge=0, description="Seconds that an orderly shutdown waits for queues to empty.")
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="How much to log.")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Flags, then the environment, then the file."""
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls)

    @field_validator("routing")
    @classmethod
    def _known_routing(cls, value: str) -> str:
        if value not in ROUTERS:
            raise ValueError(f"there is no routing {value!r}; there are {', '.join(ROUTERS)}")
        return value

    @field_validator("listen", "peers", "master")
    @classmethod
    def _addresses(cls, value: str | list[str] | None) -> str | list[str] | None:
        try:
            for text in [value] if isinstance(value, str) else value or []:
                Address.parse(text)
        except BrokerError as error:
            raise ValueError(str(error)) from None
        return value

    @model_validator(mode="after")
    def _complete(self) -> BrokerSettings:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("tls_cert and tls_key go together")
        http = () if self.http is None else (Address.parse(self.http, 8080),)
        for address in (self.address, *http):
            if (
                not address.is_loopback
                and not self.insecure
                and (self.tls_cert is None or self.tokens is None)
            ):
                raise ValueError(
                    f"listening on {address.host} is open to other machines: give tls_cert, tls_key and "
                    "tokens, or say insecure if the network is safe"
                )
        return self

    @property
    def address(self) -> Address:
        """Where it listens."""
        return Address.parse(self.listen)._replace(tls=self.tls_cert is not None)

    @property
    def silence(self) -> float:
        """Seconds without a sign of life after which a connection is taken for lost."""
        return self.timeout or 3 * self.heartbeat

    def read_tokens(self) -> list[bytes] | None:
        """The tokens of which clients must present one; None if they need none."""
        if self.tokens is None:
            return None
        try:
            lines = self.tokens.read_bytes().splitlines()
        except OSError as error:
            raise BrokerError(f"cannot read the tokens in {self.tokens}: {error.strerror}") from None
        tokens = [line.strip() for line in lines if line.strip() and not line.startswith(b"#")]
        if not tokens:
            raise BrokerError(f"there is no token in {self.tokens}")
        return tokens


def load(config: Path | None = None, **flags: Any) -> BrokerSettings:
    """The settings from flags (those not None), the environment and a file, or a `BrokerError`."""

    class Settings(BrokerSettings):
        model_config = SettingsConfigDict(toml_file=config)

    try:
        if config is not None and not config.is_file():
            raise BrokerError(f"there is no file {config}")
        settings = Settings(**{name: value for name, value in flags.items() if value is not None})
    except ValidationError as error:
        raise BrokerError("; ".join(_problem(dict(item)) for item in error.errors())) from None
    except SettingsError as error:
        raise BrokerError(f"{_variable(error)} is not valid; in the environment, lists are JSON") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BrokerError(f"{config} is not valid TOML: {error}") from None
    except OSError as error:
        raise BrokerError(f"cannot read {config}: {error.strerror}") from None
    return settings


def _variable(error: SettingsError) -> str:
    found = re.search(r'field "(\w+)"', str(error))
    return f"ANGELIA_{found[1].upper()}" if found else str(error)


def _problem(item: dict[str, Any]) -> str:
    place = ".".join(map(str, item["loc"]))
    if item["type"] == "extra_forbidden":
        return f"there is no option {place}"
    message = str(item["msg"]).removeprefix("Value error, ")
    return f"{place}: {message}" if place else message
