"""The event dissemination trees of HERMES: what a broker knows of one event type (thesis 4.3.2 - 4.3.7).

The ways of all brokers to the rendezvous node of a type are a tree with that node as its root. In it
advertisements go up; subscriptions go up, and those that are type- and attribute-based also to the
neighbours that advertised something relevant. What is covered by something that a neighbour knows is not
sent there: Equation (1) of SIENA decides that, with the neighbours that the thesis allows (Figure 4.6).
Each table has the thesis' entries: an advertisement or subscription, from whom it came, and to whom it went.

A tree may go on in other trees, at its root: advertisements go on into that of the supertype, or
subscriptions into those of subtypes (4.3.4), and either into those of replicas (4.3.7). Such a *bridge*
is a neighbour like any other, but for being at the same broker: what is sent over it enters the other tree.
What came from a replica has tables of its own, since it does not go on: other trees have it from where it
came from.

What came from another broker has a lease, and goes when the lease ends (4.3.7).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from functools import partial
from typing import Any, Generic, TypeVar

from angelia.event import Event
from angelia.filter import Advertisement, Filter, advertisement_poset, subscription_poset
from angelia.filter.parser import Constraint
from angelia.filter.poset import Coverable, Poset
from angelia.overlay import key_of
from angelia.routing.base import Interests, Interface, Peer, Seen
from angelia.routing.forwarding import Change, Forwarding, Outcome
from angelia.routing.peer import not_on_any_spanning_tree
from angelia.types import TypeRegistry

__all__ = ["Kind", "Table", "Tree", "bridge", "is_bridge", "relaxed", "untyped"]

F = TypeVar("F", bound=Coverable)
Entry = tuple[frozenset[Interface], frozenset[str]]

_FEW = 8  # filters that are matched one by one: most trees have no more, and brokers have many trees
_MARK = "\0"  # no broker has it in its name


def bridge(tree: str) -> str:
    """The neighbour that stands for another tree at the same broker."""
    return _MARK + tree


def is_bridge(neighbour: str) -> bool:
    """Whether a neighbour is another tree."""
    return neighbour.startswith(_MARK)


class Kind(Enum):
    """What a table is of."""

    ADVERTISEMENT = "advertisements"
    BY_TYPE = "by type"
    BY_ATTRIBUTE = "by attribute"


class Table(Generic[F]):
    """A routing table (Definition 4.1), with leases."""

    def __init__(
        self,
        kind: Kind,
        is_bridged: bool,
        make_poset: Callable[[], Poset[F]],
        neighbours: Callable[[F], Iterable[str]],
        registry: TypeRegistry | None = None,
    ) -> None:
        self.kind = kind
        self.is_bridged = is_bridged  # whether it is of what came from replicas
        self.entries = Forwarding(make_poset, neighbours, not_on_any_spanning_tree)
        self.leases: dict[str, dict[F, float]] = {}  # by peer
        self._registry = registry  # of filters; advertisements are not matched
        self._interests: Interests | None = None  # an index, when they have become many

    def interested(self, event: Event) -> set[Interface]:
        """Who asked for something that matches."""
        if self._registry is None:
            return set()
        if self._interests is None and len(self.entries.poset) > _FEW:
            self._interests = Interests(self._registry)
            self._interests.reset(self.entries.pairs())  # type: ignore[arg-type] # a table of filters
        if self._interests is not None:
            return self._interests.interested(event)
        wanted = (
            item
            for item in self.entries.poset
            if item.matches(event, self._registry)  # type: ignore[attr-defined] # as above
        )
        return set[Interface]().union(*map(self.entries.subscribers, wanted))

    def add(self, who: Interface, item: F, until: float) -> list[Change[F]]:
        """Somebody asks for something, or advertises it, until a time."""
        if isinstance(who, Peer):
            self.leases.setdefault(who.name, {})[item] = until
        return self._note(who, self.entries.add(who, item))

    def cancel(self, who: Peer, item: F, uncovered: tuple[F, ...], until: float) -> list[Change[F]]:
        """A peer no longer asks for what an item covers, but for others in its place."""
        leases = self.leases.setdefault(who.name, {})
        for other in [other for other in leases if item.covers(other, None)]:
            del leases[other]
        leases |= dict.fromkeys(uncovered, until)
        if not leases:
            del self.leases[who.name]
        return self._note(who, self.entries.remove(who, item, uncovered))

    def replace(self, who: Interface, items: Iterable[F]) -> list[Change[F]]:
        """Somebody asks for these and nothing else."""
        return self._note(who, self.entries.replace(who, items))

    def remove(self, peer: str) -> list[Change[F]]:
        """A peer is gone, with all that came from it; and it knows nothing any more."""
        self.leases.pop(peer, None)
        self.entries.forget(peer)
        return self._note(Peer(peer), self.entries.remove_all(Peer(peer)))

    def expire(self, now: float) -> tuple[list[F], list[Change[F]]]:
        """Drop what was not renewed in time; returns that, and what to tell the neighbours."""
        gone: list[F] = []
        changes: list[Change[F]] = []
        for peer, leases in list(self.leases.items()):
            left = {item: until for item, until in leases.items() if until > now}
            if len(left) < len(leases):
                gone += [item for item in leases if item not in left]
                changes += self.replace(Peer(peer), left)
            self.leases[peer] = left
            if not left:
                del self.leases[peer]
        return gone, changes

    def refresh(self, items: Iterable[F] | None = None) -> list[Change[F]]:
        """The neighbours have changed."""
        return self.entries.refresh(items)

    def told(self, peer: str | None = None) -> list[Change[F]]:
        """What was told to a peer, or to all."""
        return [c for c in self.entries.again(self.entries.poset) if peer in (None, c.peer)]

    def _note(self, who: Interface, outcome: Outcome[F]) -> list[Change[F]]:
        if self._interests is not None:
            for item in outcome.dropped:
                self._interests.remove(who, item)  # type: ignore[arg-type] # a table of filters
            for item in outcome.added:
                self._interests.add(who, item)  # type: ignore[arg-type]
        return outcome.changes


class Tree:
    """A dissemination tree, as one of its brokers sees it."""

    def __init__(self, name: str, type: str, replica: int, registry: TypeRegistry) -> None:  # noqa: A002
        self.name = name
        self.type = type
        self.replica = replica
        self.key = key_of(name)
        self.up: str | None = None  # the next broker on the way to the rendezvous node; None: this is it
        self.above: frozenset[str] = frozenset()  # at the root, the bridges that advertisements go on over
        self.below: frozenset[str] = frozenset()  # and those for subscriptions
        self.replicas: frozenset[str] = frozenset()  # those of them that lead to replicas
        self.children: dict[str, float] = {}  # the trees of subtypes, at the root, with their leases
        self.seen = Seen()
        self._registry = registry
        self._tables: dict[tuple[Kind, bool], Table[Any]] = {}

    def table(self, kind: Kind, is_bridged: bool = False) -> Table[Any]:
        """A table; there are no more than needed."""
        found = self._tables.get((kind, is_bridged))
        if found is None:
            found = self._tables[kind, is_bridged] = self._made(kind, is_bridged)
        return found

    def _made(self, kind: Kind, is_bridged: bool) -> Table[Any]:
        ways = partial(self._ways, kind, is_bridged)
        if kind is Kind.ADVERTISEMENT:
            return Table(kind, is_bridged, lambda: advertisement_poset(self._registry), ways)
        return Table(kind, is_bridged, lambda: subscription_poset(self._registry), ways, self._registry)

    # ------------------------------------------------ neighbours

    def _ways(self, kind: Kind, is_bridged: bool, item: Any) -> frozenset[str]:
        """The neighbours that something may go to."""
        up = self.towards_root(self.above if kind is Kind.ADVERTISEMENT else self.below, is_bridged)
        return up | self._advertisers(item, is_bridged) if kind is Kind.BY_ATTRIBUTE else up

    def towards_root(self, beyond: frozenset[str], is_bridged: bool) -> frozenset[str]:
        """The next broker on the way to the rendezvous node; at that, the trees beyond it."""
        if self.up is not None:
            return frozenset((self.up,))
        return frozenset() if is_bridged else beyond

    def _advertisers(self, filter: Filter, is_bridged: bool) -> frozenset[str]:  # noqa: A002
        """The neighbours that advertised something relevant to a subscription."""
        return frozenset(
            who.name
            for table in self.tables
            if table.kind is Kind.ADVERTISEMENT and not (is_bridged and table.is_bridged)
            for advertisement in table.entries.poset
            if advertisement.overlaps(filter)
            for who in table.entries.subscribers(advertisement)
            if isinstance(who, Peer)
        )

    def interested(self, event: Event, by_type: bool, is_bridged: bool) -> set[str]:
        """The neighbours that want an event."""
        found: set[str] = set()
        for table in self.tables:
            if (by_type or table.kind is Kind.BY_ATTRIBUTE) and not (is_bridged and table.is_bridged):
                found.update(who.name for who in table.interested(event) if isinstance(who, Peer))
        return found

    # ------------------------------------------------ the tables

    @property
    def tables(self) -> list[Table[Any]]:
        """All tables."""
        return list(self._tables.values())

    def relevant(self, advertisements: list[Advertisement]) -> list[tuple[Table[Any], list[Change[Filter]]]]:
        """Advertisements came or went: the subscriptions that they concern may go other ways."""
        found = []
        for table in self.tables if advertisements else ():
            if table.kind is Kind.BY_ATTRIBUTE:
                filters = [f for f in table.entries.poset if any(a.overlaps(f) for a in advertisements)]
                found.append((table, table.refresh(filters)))
        return found

    @property
    def is_empty(self) -> bool:
        """Whether nobody needs the tree here."""
        return not self.children and not any(len(table.entries.poset) for table in self.tables)

    def state(self) -> Mapping[str, Mapping[Any, Entry]]:
        """The tables: advertisements, and both parts of subscriptions; what replicas sent is told apart."""
        return {
            f"{table.kind.value}{', bridged' if table.is_bridged else ''}": table.entries.table()
            for table in self.tables
        }


def relaxed(filter: Filter) -> dict[str | None, Filter]:  # noqa: A002
    """A filter by the types that its alternatives ask for, without the types themselves.

    In the tree of a type all events are of that type. An alternative that asks for several types is in the
    tree of one, and what it refuses is let pass: the subscriber's broker, which knows the types, sees to it.
    """
    parts: dict[str | None, Filter] = {}
    for conjunction in filter.conjunctions:
        name = min(conjunction.types, default=None)
        part = Filter((type(conjunction)(conjunction.conditions),))
        parts[name] = parts[name] | part if name in parts else part
    return parts


def untyped(advertisement: Advertisement) -> Advertisement:
    """An advertisement as it is in the tree of its type."""
    if advertisement.allowed is None:
        return Advertisement(None)
    allowed = advertisement.allowed.items()
    return Advertisement(Constraint(name, domain) for name, domains in allowed for domain in domains)
