"""Whom a node of the overlay knows: routing table, leaf set, neighbourhood set (HERMES 2.3.1, 4.4.1)."""

from __future__ import annotations

from bisect import insort

from angelia.messages import Contact
from angelia.overlay.ids import clockwise, digit, distance, number, shared

__all__ = ["LeafSet", "Neighbourhood", "RoutingTable"]

_Ranked = tuple[float, str, Contact]  # by proximity, then by id


class LeafSet:
    """The l/2 nodes with the next larger ids, and the l/2 with the next smaller ones, round the ring."""

    def __init__(self, me: int, size: int) -> None:
        self._me = me
        self._half = size // 2
        self.larger: list[Contact] = []  # the nearest first
        self.smaller: list[Contact] = []
        self.members: tuple[Contact, ...] = ()  # all, each once: in a small network a node is on both sides
        self._reach = (0, 0)  # how far it is to the last ones, on both sides

    def add(self, contact: Contact) -> bool:
        """Take a node in if it is near enough; returns whether it is."""
        if contact in self.members:
            return False
        value = number(contact.id)
        ahead, behind = clockwise(self._me, value), clockwise(value, self._me)
        if len(self.larger) == self._half and ahead > self._reach[0] and behind > self._reach[1]:
            return False
        self._choose([*self.members, contact])
        return contact in self.members

    def remove(self, name: str) -> bool:
        """A node is gone; returns whether it was here."""
        members = self.members
        left = [contact for contact in members if contact.name != name]
        self._choose(left)
        return len(left) < len(members)

    def _choose(self, among: list[Contact]) -> None:
        def ahead(contact: Contact) -> int:
            return clockwise(self._me, number(contact.id))

        def behind(contact: Contact) -> int:
            return clockwise(number(contact.id), self._me)

        self.larger = sorted(among, key=ahead)[: self._half]
        self.smaller = sorted(among, key=behind)[: self._half]
        self.members = tuple(dict.fromkeys((*self.larger, *self.smaller)))
        self._reach = (ahead(self.larger[-1]), behind(self.smaller[-1])) if among else (0, 0)

    def covers(self, key: int) -> bool:
        """Whether a key lies in the range of the set, so that the nearest node is in there, or this one."""
        if len(self.larger) < self._half or set(self.larger) & set(self.smaller):
            return True  # these are all nodes that there are
        ahead, behind = number(self.larger[-1].id), number(self.smaller[-1].id)
        within = clockwise(self._me, key) <= clockwise(self._me, ahead)
        return within or clockwise(key, self._me) <= clockwise(behind, self._me)

    def nearest(self, key: int, without: str | None = None) -> Contact | None:
        """The member that is numerically nearest to a key; None if no member is nearer than this node."""
        best, found = (distance(self._me, key), self._me), None
        for contact in self.members:
            value = number(contact.id)
            if contact.name != without and (distance(value, key), value) < best:
                best, found = (distance(value, key), value), contact
        return found


class RoutingTable:
    """By row and digit: the nearest node that shares `row` digits and goes on with `digit`; and backups."""

    def __init__(self, me: int, b: int, backups: int) -> None:
        self._me = me
        self._b = b
        self._room = 1 + backups
        self._slots: dict[tuple[int, int], list[_Ranked]] = {}

    def _slot(self, id: int) -> tuple[int, int]:  # noqa: A002 - what it is
        row = shared(self._me, id, self._b)
        return row, digit(id, row, self._b)

    def add(self, contact: Contact, proximity: float) -> bool:
        """Take a node in, unless its place is full of nearer ones; returns whether it is in."""
        slot = self._slots.setdefault(self._slot(number(contact.id)), [])
        entry = (proximity, contact.id, contact)
        if entry not in slot:
            insort(slot, entry)
            del slot[self._room :]
        return entry in slot

    def remove(self, contact: Contact) -> int | None:
        """A node is gone; returns the row in which a place is empty now, if one is."""
        place = self._slot(number(contact.id))
        slot = self._slots.get(place, [])
        slot[:] = [entry for entry in slot if entry[2].name != contact.name]
        if slot or place not in self._slots:
            return None
        del self._slots[place]
        return place[0]

    def entry(self, key: int) -> Contact | None:
        """The node for the next digit of a key."""
        slot = self._slots.get(self._slot(key))
        return slot[0][2] if slot else None

    def row(self, row: int) -> list[Contact]:
        """The nodes of a row, without backups."""
        return [slot[0][2] for (at, _), slot in sorted(self._slots.items()) if at == row and slot]

    @property
    def members(self) -> list[Contact]:
        """All nodes, backups included."""
        return [contact for slot in self._slots.values() for _, _, contact in slot]

    def rows(self) -> dict[int, dict[int, tuple[Contact, ...]]]:
        """By row and digit the node and its backups; a copy."""
        table: dict[int, dict[int, tuple[Contact, ...]]] = {}
        for (row, column), slot in sorted(self._slots.items()):
            table.setdefault(row, {})[column] = tuple(contact for _, _, contact in slot)
        return table


class Neighbourhood:
    """The nodes that are physically nearest, whom clients may turn to if this one fails (4.4.1)."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._ranked: list[_Ranked] = []

    @property
    def members(self) -> list[Contact]:
        """The nearest first."""
        return [contact for _, _, contact in self._ranked]

    def add(self, contact: Contact, proximity: float) -> bool:
        """Take a node in if it is near enough; returns whether it is."""
        entry = (proximity, contact.id, contact)
        if entry not in self._ranked:
            insort(self._ranked, entry)
            del self._ranked[self._size :]
        return entry in self._ranked

    def remove(self, name: str) -> None:
        """A node is gone."""
        self._ranked = [entry for entry in self._ranked if entry[2].name != name]
