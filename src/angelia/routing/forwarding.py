"""Equation (1) of SIENA 5.2.3.3: which filters a server forwards to which neighbours.

    forwards(f) = neighbors − NST(f) − ⋃ forwards(f') over all f' that cover f

The same computation serves subscriptions and, by the duality of 5.2.4, advertisements. It is kept
declarative: a change marks filters, their `forwards` are computed anew by the equation from the top
of the poset downwards, and the difference to what was forwarded before is what is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Generic, NamedTuple, TypeVar

from angelia.filter import Poset
from angelia.filter.poset import Coverable, Part
from angelia.routing.interfaces import Interface

__all__ = ["Change", "Collector", "Forwarding", "Outcome", "pieces"]

_MANY = 8  # filters of an interface that are rather looked at one by one
_PIECE = 1 << 18  # characters of filters in one message; the wire has a limit

F = TypeVar("F", bound=Coverable)


class Change(NamedTuple, Generic[F]):
    """What to tell a neighbour: of a filter, or that it is no longer asked for, but others in its place."""

    peer: str
    filter: F
    added: bool
    uncovered: tuple[F, ...] = ()


class Outcome(NamedTuple, Generic[F]):
    """What an interface has in addition and no longer, and what to tell the neighbours."""

    added: list[F]
    dropped: list[F]
    changes: list[Change[F]]


class Forwarding(Generic[F]):
    """A poset of filters, with `subscribers` (or advertisers) and `forwards` of each."""

    def __init__(
        self,
        make_poset: Callable[[], Poset[F]],
        neighbors: Callable[[F], Iterable[str]],
        nst: Callable[[F, frozenset[Interface]], Iterable[str]],
    ) -> None:
        self._make_poset = make_poset
        self._neighbors = neighbors
        self._nst = nst
        self.poset = make_poset()
        self._subscribers: dict[F, set[Interface]] = {}
        self._items: dict[Interface, dict[F, None]] = {}  # the same, by interface
        self._parts: dict[Interface, Part[F]] = {}  # and again, of those that asked for many
        self._forwards: dict[F, set[str]] = {}
        # The neighbours that know of a filter or of one that covers it.
        self._reached: dict[F, frozenset[str]] = {}

    # ------------------------------------------------ questions

    def subscribers(self, item: F) -> frozenset[Interface]:
        """Who asked for a filter."""
        return frozenset(self._subscribers.get(item, ()))

    def forwards(self, item: F) -> frozenset[str]:
        """The neighbours to which a filter was forwarded."""
        return frozenset(self._forwards.get(item, ()))

    def table(self) -> Mapping[F, tuple[frozenset[Interface], frozenset[str]]]:
        """Each filter with its subscribers and forwards."""
        return {item: (self.subscribers(item), self.forwards(item)) for item in self.poset}

    def of(self, interface: Interface) -> list[F]:
        """The filters that an interface asked for."""
        return list(self._items.get(interface, ()))

    def pairs(self) -> Iterator[tuple[Interface, F]]:
        """Each filter with each of its subscribers."""
        return ((who, item) for item, interfaces in self._subscribers.items() for who in interfaces)

    def again(self, items: Iterable[F]) -> list[Change[F]]:
        """What the neighbours were told of filters, to be told once more."""
        return [Change(peer, item, True) for item in items for peer in sorted(self.forwards(item))]

    # ------------------------------------------------ changes

    def add(self, interface: Interface, item: F) -> Outcome[F]:
        """An interface asks for a filter; what it covers of the interface's others goes (5.2.3.3)."""
        return self._replace(interface, [], [item])

    def remove(self, interface: Interface, item: F, uncovered: Iterable[F] = ()) -> Outcome[F]:
        """An interface cancels all its filters that are covered by one (3.7, 5.2.3.4).

        It may ask for others in their place: then these stand before the neighbours are told anything.
        """
        mine = [item] if self._asked(interface, item) else []
        return self._replace(interface, [*mine, *self._own(interface, item, above=False)], uncovered)

    def remove_all(self, interface: Interface) -> Outcome[F]:
        """An interface is gone."""
        return self._replace(interface, self.of(interface), [])

    def replace(self, interface: Interface, items: Iterable[F]) -> Outcome[F]:
        """An interface asks for these filters, and for no others."""
        wanted = dict.fromkeys(items)
        return self._replace(interface, [item for item in self.of(interface) if item not in wanted], wanted)

    def _replace(self, interface: Interface, gone: list[F], new: Iterable[F]) -> Outcome[F]:
        before = self._snapshot(gone)
        marked = {*gone, *self._drop(interface, gone, before)}
        came, went, first = dict[F, None](), dict.fromkeys(gone), set(gone)
        for item in new:
            if self._has(interface, item):
                continue
            standing = self.poset.insert(item).filter
            self._subscribers.setdefault(standing, set()).add(interface)
            self._note(interface, standing)
            covered = self._own(interface, standing, above=False)
            marked |= {standing, *covered, *self._drop(interface, covered, before)}
            came[standing] = None
            went |= dict.fromkeys(covered)
        # What went and came back has not changed, nor what came and went again.
        return Outcome(
            [item for item in came if item not in first and self._asked(interface, item)],
            [
                item
                for item in went
                if (item in first or item not in came) and not self._asked(interface, item)
            ],
            self._settle(marked, before),
        )

    def _asked(self, interface: Interface, item: F) -> bool:
        return interface in self._subscribers.get(item, ())

    def _has(self, interface: Interface, item: F) -> bool:
        """Whether an interface asked for a filter, or for one that covers it."""
        return self._asked(interface, item) or bool(self._own(interface, item, above=True))

    def _own(self, interface: Interface, item: F, above: bool) -> list[F]:
        """The other filters that an interface asked for and that cover one, or that it covers."""
        part = self._parts.get(interface)
        if part is not None:
            return list(self.poset.covering(item, part) if above else self.poset.covered_by(item, part))
        is_covered = self.poset.is_covered
        return [
            other
            for other in self._items.get(interface, ())
            if other != item and (is_covered(item, by=other) if above else is_covered(other, by=item))
        ]

    def _note(self, interface: Interface, item: F) -> None:
        """An interface asks for a filter of the poset."""
        items = self._items.setdefault(interface, {})
        part = self._parts.get(interface)
        if part is not None and item not in items:
            part.add(item)
        items[item] = None
        if part is None and len(items) > _MANY:
            self._parts[interface] = self.poset.part(items)

    def refresh(self, items: Iterable[F] | None = None) -> list[Change[F]]:
        """The neighbours of filters (all, if not told) have changed."""
        marked = set(self.poset if items is None else items)
        return self._settle(marked, self._snapshot(marked))

    def rebuild(self) -> list[Change[F]]:
        """The covering relation has changed: order all filters anew.

        What an interface asked for and is now covered by another filter of its own goes, as it
        would have gone if the relation had been known then.
        """
        before = self._snapshot(self.poset)
        items = list(self.poset)
        self.poset = self._make_poset()
        self._reached.clear()
        for item in items:
            standing = self.poset.insert(item).filter
            if standing != item:
                self._subscribers[standing] |= self._subscribers.pop(item)
                self._forwards.pop(item, None)
        self._items.clear()
        self._parts.clear()
        for interface, item in self.pairs():
            self._note(interface, item)
        for interface, item in self._redundant():
            self._drop(interface, [item], before)
        return self._settle(set(self.poset), before)

    def _redundant(self) -> list[tuple[Interface, F]]:
        """The interfaces of filters that have a covering one as well."""
        return [
            (interface, item)
            for item, interfaces in self._subscribers.items()
            for interface in interfaces
            if self._own(interface, item, above=True)
        ]

    def forget(self, peer: str) -> None:
        """A neighbour is gone: it knows nothing any more."""
        for forwards in self._forwards.values():
            forwards.discard(peer)
        self._reached = {item: reached - {peer} for item, reached in self._reached.items()}

    # ------------------------------------------------ inside

    def _snapshot(self, items: Iterable[F]) -> dict[F, frozenset[str]]:
        return {item: self.forwards(item) for item in items}

    def _drop(self, interface: Interface, items: Iterable[F], before: dict[F, frozenset[str]]) -> set[F]:
        """Take the interface from the filters; those without any leave. Returns what they uncover."""
        uncovered: set[F] = set()
        for item in items:
            before.setdefault(item, self.forwards(item))
            self._subscribers[item].discard(interface)
            del self._items[interface][item]
            if interface in self._parts:
                self._parts[interface].remove(item)
            if not self._items[interface]:
                del self._items[interface]
                self._parts.pop(interface, None)
            if not self._subscribers[item]:
                uncovered |= self.poset.predecessors(item)
                self.poset.remove(item)
                for table in (self._subscribers, self._forwards, self._reached):
                    table.pop(item, None)
        return uncovered

    def _settle(self, marked: set[F], before: dict[F, frozenset[str]]) -> list[Change[F]]:
        """Compute `forwards` of the marked, and of what depends on them, by Equation (1).

        Where one that covers a filter has reached more, that is added; only where it may have reached less,
        all that cover the filter are asked again.
        """
        work: list[tuple[F, frozenset[str] | None]] = [(item, None) for item in marked if item in self.poset]
        while work:
            item, more = work.pop()
            before.setdefault(item, self.forwards(item))
            old = self._reached.get(item)
            if old is None or more is None:
                reached = self._computed(item)
            else:
                self._forwards[item] -= more
                reached = old | more
            if reached != old:
                self._reached[item] = reached
                new = reached if old is None or reached > old else None
                work.extend((lower, new) for lower in self.poset.predecessors(item))
        return self._changes(before)

    def _computed(self, item: F) -> frozenset[str]:
        """Compute `forwards` of a filter by Equation (1); returns the neighbours that are reached.

        Those that were blocked before are all that can be: what is reached in addition is told afterwards.
        """
        known = self._reached.get(item)
        most = None if known is None else known - self._forwards[item]
        blocked: frozenset[str] = frozenset()
        for upper in self.poset.each_successor(item):
            if most is not None and most <= blocked:
                break
            reached = self._reached.get(upper, blocked)
            if not reached <= blocked:
                blocked |= reached
        allowed = set(self._neighbors(item)) - set(self._nst(item, frozenset(self._subscribers[item])))
        self._forwards[item] = allowed - blocked
        return blocked | allowed

    def _changes(self, before: dict[F, frozenset[str]]) -> list[Change[F]]:
        """What the neighbours must be told.

        In the order of the text of filters, so that the same inputs have the same effects in every process.
        """
        gone: dict[str, list[F]] = {}
        new: dict[str, list[F]] = {}
        changed = [item for item, old in before.items() if old != self.forwards(item)]
        for item in sorted(changed, key=str):
            old, now = before[item], self.forwards(item)
            for peer in now - old:
                new.setdefault(peer, []).append(item)
            # A neighbour that was told of a covering filter has dropped this one by itself.
            for peer in old - now - self._known_above(item):
                gone.setdefault(peer, []).append(item)
        peers = sorted({*gone, *new})
        return [c for peer in peers for c in self._for(peer, gone.get(peer, []), new.get(peer, []))]

    def _for(self, peer: str, gone: list[F], new: list[F]) -> list[Change[F]]:
        """First what goes, with the filters that it has covered and that come instead; then what else comes.

        If several that go have covered one that comes, it comes with the last of them: until then another
        stands for it, and those that go later do not take it with them.
        """
        carried: dict[F, list[F]] = {item: [] for item in gone}
        left = {item: rank for rank, item in enumerate(new)}
        part = self.poset.part(new)
        for other in reversed(gone):
            if not left:
                break
            carried[other] = sorted(self.poset.covered_by(other, part), key=left.__getitem__)
            for item in carried[other]:
                part.remove(item)
                del left[item]
        return [
            *(Change(peer, item, False, tuple(uncovered)) for item, uncovered in carried.items()),
            *(Change(peer, item, True) for item in left),
        ]

    def _known_above(self, item: F) -> frozenset[str]:
        """The neighbours that were told of a filter that covers one."""
        uppers = self.poset.successors(item) if item in self.poset else self.poset.uppers(item)
        return frozenset[str]().union(*(self._reached.get(upper, frozenset()) for upper in uppers))


def pieces(items: tuple[F, ...]) -> list[tuple[tuple[F, ...], bool]]:
    """Filters for several messages, if they are too many for one; and whether there is more after each."""
    found: list[list[F]] = [[]]
    size = 0
    for item in items:
        length = len(str(item))
        if size and size + length > _PIECE:
            found.append([])
            size = 0
        found[-1].append(item)
        size += length
    return [(tuple(some), number < len(found)) for number, some in enumerate(found, 1)]


class Collector(Generic[F]):
    """Puts pieces together again."""

    def __init__(self) -> None:
        self._parts: dict[str, list[F]] = {}

    def add(self, peer: str, items: tuple[F, ...], more: bool) -> list[F] | None:
        """All that a neighbour has sent in pieces; None, if there is more to come."""
        self._parts.setdefault(peer, []).extend(items)
        return None if more else self._parts.pop(peer)

    def forget(self, peer: str) -> None:
        """A neighbour is gone."""
        self._parts.pop(peer, None)
