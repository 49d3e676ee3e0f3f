"""Several nodes in one process: what one sends, the other has at once.

Messages wait in one queue, first in, first out, and a request is done when the queue is empty. So
after a publication everything is where it belongs, in the same order every time.

Brokers of an overlay link themselves, all equally near. Their timers are not served: nothing in here is
lost, late or down, so that there is nothing to renew, to retry or to expire.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from angelia.errors import RequestError, RoutingError
from angelia.messages import (
    Connect,
    Effect,
    FromPeer,
    Input,
    Measure,
    Measured,
    PeerUp,
    Send,
    SetTimer,
    Timer,
)
from angelia.node import Node

__all__ = ["TOPOLOGIES", "Network"]


def _line(count: int) -> Iterator[tuple[int, int]]:
    return ((broker - 1, broker) for broker in range(2, count + 1))


def _ring(count: int) -> Iterator[tuple[int, int]]:
    yield from _line(count)
    if count > 2:
        yield 1, count


# The links of brokers 1 … n, the upper end first: in a hierarchy it is the master.
TOPOLOGIES: dict[str, Callable[[int], Iterator[tuple[int, int]]]] = {
    "tree": lambda count: ((broker // 2, broker) for broker in range(2, count + 1)),
    "line": _line,
    "star": lambda count: ((1, broker) for broker in range(2, count + 1)),
    "ring": _ring,
}


class Network:
    """Brokers `b1` … `bn`, linked as a topology says."""

    def __init__(self, brokers: int, topology: str, routing: str, now: float, records: bool = False) -> None:
        if not isinstance(brokers, int) or brokers < 1:
            raise RequestError(f"a bus has at least one broker, not {brokers!r}")
        if topology not in TOPOLOGIES:
            raise RequestError(f"there is no topology {topology!r}; there are {', '.join(TOPOLOGIES)}")
        names = [f"b{number}" for number in range(1, brokers + 1)]
        self.nodes = {name: Node(name, routing, records=records) for name in names}
        self.messages = 0
        self._links: set[frozenset[str]] = set()
        for upper, lower in TOPOLOGIES[topology](brokers):
            self._link(f"b{upper}", f"b{lower}", now)

    def _link(self, upper: str, lower: str, now: float) -> None:
        if frozenset((upper, lower)) in self._links:
            return  # an overlay has linked them by itself
        self._links.add(frozenset((upper, lower)))
        try:
            self.run([(upper, PeerUp(lower)), (lower, PeerUp(upper, master=True))], now)
        except RoutingError as error:
            raise RoutingError(f"{error}; routing 'general' and 'flooding' allow it") from None

    def node(self, broker: str) -> Node:
        """The broker of that name."""
        try:
            return self.nodes[broker]
        except KeyError:
            raise RequestError(f"there is no broker {broker!r}; there are {', '.join(self.nodes)}") from None

    def run(self, inputs: list[tuple[str, Input]], now: float) -> list[Effect]:
        """Give inputs to brokers and pass on all that they send; returns the effects for clients."""
        work = deque(inputs)
        for_clients: list[Effect] = []
        while work:
            broker, given = work.popleft()
            for effect in self.nodes[broker].handle(given, now):
                if isinstance(effect, Send):
                    self.messages += 1
                    work.append((effect.peer, FromPeer(broker, effect.message)))
                elif isinstance(effect, Measure):
                    work.append((broker, Measured(effect.peer, 0.0)))
                elif isinstance(effect, Connect):
                    if frozenset((broker, effect.peer)) in self._links:
                        continue
                    self._links.add(frozenset((broker, effect.peer)))
                    work += [(effect.peer, PeerUp(broker)), (broker, PeerUp(effect.peer))]
                elif not isinstance(effect, SetTimer):
                    for_clients.append(effect)
                elif effect.delay == 0:  # nothing lasts here, but what was put off has to be done
                    work.append((broker, Timer(effect.name)))
        return for_clients
