"""Interfaces: where a server gets subscriptions from, and where it sends notifications to."""

from __future__ import annotations

import msgspec

from angelia.pattern import Pattern

__all__ = ["Interface", "Local", "Monitor", "Party", "Peer"]


class Party(msgspec.Struct, frozen=True):
    """A local interested party or object of interest."""

    identity: str


class Peer(msgspec.Struct, frozen=True):
    """A connected broker. It is never equal to a party, whatever the party calls itself."""

    name: str


class Monitor(msgspec.Struct, frozen=True):
    """The monitor of a pattern, which subscribes to the filters that the pattern is made of (SIENA 5.3.3)."""

    pattern: Pattern


Local = Party | Monitor
Interface = Party | Monitor | Peer
