"""Certificates for development: an authority of one's own, and what it signs."""

from __future__ import annotations

import datetime as dt
import ipaddress
import os
import re
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from angelia.errors import BrokerError

__all__ = ["make_certificates"]

_AUTHORITY = "Angelia development authority"

Key = ec.EllipticCurvePrivateKey
Span = tuple[dt.datetime, dt.datetime]  # from when until when


def make_certificates(
    directory: Path, names: list[str], hosts: list[str], days: int, now: dt.datetime
) -> list[Path]:
    """Write an authority (`ca.pem`, `ca-key.pem`) and a certificate a name; returns what was written.

    An authority that is there is used again. Keys are readable by their owner alone.
    """
    valid = now - dt.timedelta(minutes=5), now + dt.timedelta(days=days)
    for name in names:
        if not re.fullmatch(r"[\w][\w.-]{0,63}", name) or name in ("ca", "ca-key"):
            raise BrokerError(f"{name!r} cannot name a certificate: use letters, digits, '_', '-' and '.'")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        ca_key, ca, written = _authority(directory, valid)
        for name in names:
            key = ec.generate_private_key(ec.SECP256R1())
            written += _write(directory / name, key, _signed(name, hosts, key, ca_key, ca, valid))
    except OSError as error:
        raise BrokerError(f"cannot write certificates to {directory}: {error.strerror}") from None
    return written


def _authority(directory: Path, valid: Span) -> tuple[Key, x509.Certificate, list[Path]]:
    if (directory / "ca-key.pem").exists():
        return *_load(directory), []
    key = ec.generate_private_key(ec.SECP256R1())
    cert = (
        _builder(_AUTHORITY, _name(_AUTHORITY), key, valid)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(is_authority=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return key, cert, _write(directory / "ca", key, cert)


def _load(directory: Path) -> tuple[Key, x509.Certificate]:
    try:
        key = serialization.load_pem_private_key((directory / "ca-key.pem").read_bytes(), None)
        cert = x509.load_pem_x509_certificate((directory / "ca.pem").read_bytes())
    except (ValueError, TypeError, FileNotFoundError) as error:
        raise BrokerError(f"the authority in {directory} is not usable: {error}") from None
    if not isinstance(key, Key):
        raise BrokerError(f"the authority in {directory} is not one that this command made")
    return key, cert


def _signed(
    name: str,
    hosts: list[str],
    key: Key,
    ca_key: Key,
    ca: x509.Certificate,
    valid: Span,
) -> x509.Certificate:
    purposes = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    return (
        _builder(name, ca.subject, key, valid)
        .add_extension(x509.SubjectAlternativeName(list(map(_host, hosts))), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(is_authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False
        )
        .sign(ca_key, hashes.SHA256())
    )


def _builder(name: str, issuer: x509.Name, key: Key, valid: Span) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(_name(name))
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(valid[0])
        .not_valid_after(valid[1])
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _host(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        if not re.fullmatch(r"(\*\.)?[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*", text):
            raise BrokerError(f"{text!r} is neither a host name nor an address") from None
        return x509.DNSName(text)


def _usage(*, is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        encipher_only=False,
        decipher_only=False,
    )


def _write(path: Path, key: Key, cert: x509.Certificate) -> list[Path]:
    """Write a key and its certificate."""
    paths = [path.with_name(f"{path.name}-key.pem"), path.with_name(f"{path.name}.pem")]
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    with os.fdopen(os.open(paths[0], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(private)
    paths[1].write_bytes(cert.public_bytes(serialization.Encoding.PEM))
    return paths
