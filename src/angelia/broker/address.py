"""Where brokers are."""

from __future__ import annotations

import ipaddress
from typing import NamedTuple
from urllib.parse import urlsplit

from angelia.errors import BrokerError

__all__ = ["DEFAULT_PORT", "Address"]

DEFAULT_PORT = 7400


class Address(NamedTuple):
    """Where a broker listens: `tcp://127.0.0.1:7400`, or `tls://…`."""

    host: str
    port: int
    tls: bool = False

    @classmethod
    def parse(cls, text: str, port: int = DEFAULT_PORT) -> Address:
        """An address from its text; `host:port`, `host` and `:port` stand for tcp."""
        if not isinstance(text, str):
            raise BrokerError(
                f"an address of a broker is a text, not {type(text).__name__}; several are several"
            )
        parts = urlsplit(text if "://" in text else f"tcp://{text}")
        if parts.scheme not in ("tcp", "tls") or parts.path not in ("", "/") or parts.query:
            raise BrokerError(f"{text!r} is no address of a broker; write it as tcp://127.0.0.1:{port}")
        try:
            number = parts.port
        except ValueError:
            raise BrokerError(f"{text!r} has no valid port; ports are 0 to 65535") from None
        return cls(parts.hostname or "127.0.0.1", port if number is None else number, parts.scheme == "tls")

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'tls' if self.tls else 'tcp'}://{host}:{self.port}"
