"""Who is subscribed here to what, for those who match elsewhere: page by page, as frames are small."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import nsmallest
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING

from angelia.filter import Filter

if TYPE_CHECKING:
    from angelia.broker.broker import Broker

__all__ = ["subscriptions"]

_MOST, _BYTES = 2_000, 1 << 18  # subscriptions, and characters of their filters, of a page


def subscriptions(broker: Broker, after: str, client: str | None = None) -> list[tuple[str, str]]:
    """Identities after one, in order, and filters of local subscribers; the last page is empty.

    Of all of them, or of one client alone. Patterns are left out.
    """
    later = (
        (name, wanted)
        for name, wanted in _local(broker)
        if name > after and client in (None, name.rpartition("#")[0])
    )
    page: list[tuple[str, str]] = []
    size = 0
    for name, wanted in nsmallest(_MOST, later, key=itemgetter(0)):
        page.append((name, str(wanted)))
        size += len(page[-1][1])
        if size > _BYTES:
            break
    return page


def _local(broker: Broker) -> Iterator[tuple[str, Filter]]:
    clients = chain.from_iterable(session.wanted.items() for session in broker.clients.values())
    inside = ((name, party.filter) for name, party in broker.core.parties.items())
    for name, wanted in chain(clients, inside):
        if isinstance(wanted, Filter):
            yield name, wanted
