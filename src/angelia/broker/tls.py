"""TLS for links and clients: contexts from files. `certs.py` makes such files for development."""

from __future__ import annotations

import os
import ssl
from pathlib import Path

from angelia.errors import BrokerError

__all__ = ["client_context", "server_context", "why_not"]

_NOT_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST")


def server_context(cert: Path, key: Path, ca: Path | None) -> ssl.SSLContext:
    """For who listens. With `ca`, a certificate of the other side is checked if it has one."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _load(context, cert, key, ca)
    if ca is not None:
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


def client_context(
    ca: Path | None = None, cert: Path | None = None, key: Path | None = None
) -> ssl.SSLContext:
    """For who connects. Without `ca`, the authorities of this machine are trusted."""
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _load(context, cert, key, ca)
    return context


def why_not(error: OSError) -> str:
    """Why a connection could not be made, for people."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate verify failed: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return "it does not speak TLS" if error.reason in _NOT_TLS else f"TLS failed: {error.reason}"
    if error.errno is not None and error.errno > 0:  # those of names are not
        return os.strerror(error.errno)
    return error.strerror or str(error) or type(error).__name__


def _load(context: ssl.SSLContext, cert: Path | None, key: Path | None, ca: Path | None) -> None:
    try:
        if ca is not None:
            context.load_verify_locations(ca)
        if cert is not None:
            context.load_cert_chain(cert, key)
    except (OSError, ssl.SSLError) as error:
        names = ", ".join(str(path) for path in (cert, key, ca) if path is not None)
        raise BrokerError(f"cannot use the certificates {names}: {error}") from None
