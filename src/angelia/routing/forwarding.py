"""Equation (1) of SIENA 5.2.3.3: which filters a server forwards to which neighbours.

    forwards(f) = neighbors − NST(f) − ⋃ forwards(f') over all f' that cover f

The same computation serves subscriptions and, by the duality of 5.2.4, advertisements.

Seen from one neighbour, the equation says: of the filters that are *eligible* for it, those with the
neighbour in neighbors − NST, it is told of the ones that no other eligible filter covers. So a filter that is
eligible and not forwarded has a *guard*, one that covers it and is eligible as well. One guard serves for all
neighbours most of the time, and only when it goes, or is no longer eligible, another one is looked for. A
change marks filters; the difference to what was forwarded before is what is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import reduce
from itertools import islice
from operator import or_
from typing import Generic, NamedTuple, TypeVar

from angelia.filter import Poset
from angelia.filter.poset import Coverable, Part
from angelia.routing.interfaces import Interface

__all__ = ["Change", "Collector", "Forwarding", "Outcome", "pieces"]

_MANY = 8  # filters of an interface that are rather looked at one by one
_NOBODY = frozenset[str]()
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
        self._forwards: dict[F, frozenset[str]] = {}  # where it is not empty
        self._eligible: dict[F, frozenset[str]] = {}  # neighbors − NST
        self._candidates: dict[str, Part[F]] = {}  # the same, by neighbour
        self._told: dict[str, Part[F]] = {}  # `forwards`, by neighbour
        self._guards: dict[F, tuple[F, ...]] = {}
        self._guarded: dict[F, set[F]] = {}  # the same, by guard
        self._leaving: dict[Interface, dict[F, None]] = {}  # no longer asked for, and not yet dropped
        self._news: dict[str, Part[F]] = {}  # what has become eligible by the change in hand

    # ------------------------------------------------ questions

    def subscribers(self, item: F) -> frozenset[Interface]:
        """Who asked for a filter."""
        return frozenset(self._subscribers.get(item, ()))

    def forwards(self, item: F) -> frozenset[str]:
        """The neighbours to which a filter was forwarded."""
        return self._forwards.get(item, _NOBODY)

    def table(self) -> Mapping[F, tuple[frozenset[Interface], frozenset[str]]]:
        """Each filter with its subscribers and forwards."""
        return {item: (self.subscribers(item), self.forwards(item)) for item in self.poset}

    def of(self, interface: Interface) -> list[F]:
        """The filters that an interface asked for."""
        return list(self._items.get(interface, ()))

    def covered(self, interface: Interface, item: F) -> list[F]:
        """The filters that an interface asked for and that one covers."""
        mine = [item] if self._asked(interface, item) else []
        return [*mine, *self._own(interface, item, above=False)]

    def pairs(self) -> Iterator[tuple[Interface, F]]:
        """Each filter with each of those who ask for it."""
        return ((who, item) for who, items in self._items.items() for item in items)

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
        return self._replace(interface, self.covered(interface, item), uncovered)

    def drop(self, interface: Interface, items: list[F]) -> Outcome[F]:
        """An interface no longer asks for some of its filters."""
        return self._replace(interface, items, [])

    def remove_all(self, interface: Interface) -> Outcome[F]:
        """An interface is gone."""
        return self._replace(interface, self.of(interface), [])

    def leave(self, interface: Interface, items: list[F]) -> None:
        """An interface no longer asks for many filters: they are dropped by and by (`drop_some`).

        Nobody is told anything yet. If it asks for one of them again before that is dropped, it stays.
        """
        if items:
            self._forget(interface, items)
            self._leaving.setdefault(interface, {}).update(dict.fromkeys(items))

    def drop_some(self, most: int) -> list[Change[F]]:
        """Drop some of the filters that were left, at most so many."""
        marked: set[F] = set()
        before: dict[F, frozenset[str]] = {}
        for interface, items in list(self._leaving.items()):
            some = list(islice(items, most - len(before)))
            before |= self._snapshot(some)
            for item in some:
                del items[item]
                self._subscribers[item].discard(interface)
            marked |= {*some, *self._leave([item for item in some if not self._subscribers[item]])}
            if not items:
                del self._leaving[interface]
        return self._settle(marked, before)

    @property
    def is_leaving(self) -> bool:
        """Whether there is more to drop."""
        return bool(self._leaving)

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
        return item in self._items.get(interface, ())

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
        self._leaving.get(interface, {}).pop(item, None)
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
        self._forget_leaving()
        items = list(self._subscribers)
        self.poset = self._make_poset()
        for table in (
            self._eligible,
            self._candidates,
            self._forwards,
            self._told,
            self._guards,
            self._guarded,
        ):
            table.clear()
        for item in items:
            standing = self.poset.insert(item).filter
            if standing != item:
                self._subscribers[standing] |= self._subscribers.pop(item)
        self._items.clear()
        self._parts.clear()
        for item, interfaces in self._subscribers.items():
            for interface in interfaces:
                self._note(interface, item)
        for interface, item in self._redundant():
            self._drop(interface, [item], before)
        return self._settle(set(self.poset), before)

    def _forget_leaving(self) -> None:
        """Filters that were left are dropped from all but the poset."""
        for interface, items in self._leaving.items():
            for item in items:
                self._subscribers[item].discard(interface)
                if not self._subscribers[item]:
                    del self._subscribers[item]
        self._leaving.clear()

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
        self._candidates.pop(peer, None)
        self._told.pop(peer, None)
        gone = {peer}
        self._eligible = {item: peers - gone for item, peers in self._eligible.items()}
        self._forwards = {item: left for item, peers in self._forwards.items() if (left := peers - gone)}

    # ------------------------------------------------ inside

    def _snapshot(self, items: Iterable[F]) -> dict[F, frozenset[str]]:
        return {item: self.forwards(item) for item in items}

    def _drop(self, interface: Interface, items: Iterable[F], before: dict[F, frozenset[str]]) -> set[F]:
        """Take the interface from the filters; those without any leave. Returns what they have guarded."""
        dropped = list(items)
        if not dropped:
            return set()
        for item in dropped:
            before.setdefault(item, self.forwards(item))
            self._subscribers[item].discard(interface)
        self._forget(interface, dropped)
        return self._leave([item for item in dropped if not self._subscribers[item]])

    def _forget(self, interface: Interface, items: list[F]) -> None:
        """An interface no longer asks for filters."""
        mine = self._items[interface]
        for item in items:
            del mine[item]
        if not mine:
            del self._items[interface]
            self._parts.pop(interface, None)
        elif interface in self._parts:
            self._parts[interface].remove(*items)

    def _leave(self, items: list[F]) -> set[F]:
        """Filters that nobody asks for any more leave; returns what they have guarded."""
        if not items:
            return set()
        for part in (*self._candidates.values(), *self._told.values()):
            part.remove(*items)
        unguarded: set[F] = set()
        for item in items:
            self._unguard(item)
            unguarded |= self._guarded.pop(item, set())
            del self._subscribers[item]
            self._eligible.pop(item, None)
            self._forwards.pop(item, None)
        self.poset.remove_all(items)
        return unguarded.difference(items)

    def _settle(self, marked: set[F], before: dict[F, frozenset[str]]) -> list[Change[F]]:
        """Compute `forwards` of the marked, and of what depends on them, by Equation (1)."""
        work = [item for item in marked if item in self.poset]
        # As it was: what is told of from now on is so after all that is eligible is known.
        told = {peer: self.poset.part() | part for peer, part in self._told.items()}
        self._news = {}
        # First it is noted what is eligible, so that what comes next can be done in any order.
        for item in list(work):
            work.extend(self._note_eligible(item))
        for item in dict.fromkeys(work):
            before.setdefault(item, self.forwards(item))
            for lower, less in self._guard(item, told):
                before.setdefault(lower, self.forwards(lower))
                self._forward(lower, self.forwards(lower) - less)
                self._link(lower, item)
        return self._changes(before)

    def _note_eligible(self, item: F) -> set[F]:
        """Note the neighbours that a filter is eligible for; returns what needs another guard by that."""
        now = frozenset(self._neighbors(item)) - set(self._nst(item, frozenset(self._subscribers[item])))
        old = self._eligible.get(item, _NOBODY)
        if now == old and item in self._eligible:
            return set()
        self._eligible[item] = now
        for peer in now - old:
            for table in (self._candidates, self._news):
                table.setdefault(peer, self.poset.part()).add(item)
        for peer in old - now:
            self._candidates[peer].remove(item)
        return set(self._guarded.get(item, ())) if old - now else set()

    def _guard(self, item: F, told: dict[str, Part[F]]) -> list[tuple[F, frozenset[str]]]:
        """Find guards of a filter and forward it where there are none.

        Returns what it covers of what was told to neighbours that it is new to, with these neighbours.
        """
        eligible = self._eligible[item]
        parent = self.poset.parent(item)
        guards = (parent, *self._guards.get(item, ())) if parent is not None else ()
        self._unguard(item)
        left = set(eligible)
        for guard in guards:
            if guard in self._eligible and not left.isdisjoint(self._eligible[guard]):
                left -= self._eligible[guard]
                self._link(item, guard)
        for peer in sorted(left) if parent is not None else ():
            found = self.poset.coverer(item, self._candidates[peer]) if peer in left else None
            if found is not None:
                left -= self._eligible[found]
                self._link(item, found)
        new = frozenset(peer for peer in left if peer in self._news and item in self._news[peer])
        self._forward(item, frozenset(left))
        known = [told[peer] for peer in new if peer in told]
        if not known:
            return []
        lower = self.poset.covered_by(item, reduce(or_, known))
        return [(each, less) for each in lower if (less := self.forwards(each) & new)]

    def _forward(self, item: F, peers: frozenset[str]) -> None:
        """Note the neighbours that are told of a filter."""
        old = self.forwards(item)
        for peer in peers - old:
            self._told.setdefault(peer, self.poset.part()).add(item)
        for peer in old - peers:
            self._told[peer].remove(item)
        if peers:
            self._forwards[item] = peers
        else:
            self._forwards.pop(item, None)

    def _link(self, item: F, guard: F) -> None:
        known = self._guards.get(item, ())
        if guard not in known:
            self._guards[item] = (*known, guard)
            self._guarded.setdefault(guard, set()).add(item)

    def _unguard(self, item: F) -> None:
        for guard in self._guards.pop(item, ()):
            if guard in self._guarded:
                self._guarded[guard].discard(item)
                if not self._guarded[guard]:
                    del self._guarded[guard]

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
            for peer in old - now:
                if not self._knows_above(peer, item):
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

    def _knows_above(self, peer: str, item: F) -> bool:
        """Whether a neighbour was told of one that covers a filter, which it has dropped by itself then.

        Nothing that was eligible before covers what was forwarded.
        """
        return peer in self._news and self.poset.coverer(item, self._news[peer]) is not None


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
