"""The type registry: which event types there are, and how they inherit (Hermes thesis, 3.3.1 and 4.2.2).

A type is added below a registered parent or as an independent root, changes only so that the events of
yesterday still conform, and goes only when nothing is built on it. What matching and routing ask of it
(`is_subtype`, `attributes`, `ancestors`) is computed when a type changes, not when it is asked.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from msgspec.msgpack import encode
from msgspec.structs import replace

from angelia.errors import ConformanceError, EventTypeError, UnknownTypeError
from angelia.event import Event, Value
from angelia.types.binding import event_classes, type_of
from angelia.types.conformance import did_you_mean, problems, with_timestamps
from angelia.types.model import Attribute, EventType, inherit

__all__ = ["MAX_ANCESTORS", "TypeRegistry"]

MAX_ANCESTORS = 256  # what a type costs grows with its ancestors, and types come from strangers

_ALLOWED = "allowed are new optional attributes, integer to float, required to optional, and doc"


@dataclass(slots=True)
class _Entry:
    """A registered type with what follows from its place in the hierarchy."""

    event_type: EventType
    attributes: Mapping[str, Attribute]
    ancestors: tuple[str, ...]
    lineage: frozenset[str]
    descendants: set[str] = field(default_factory=set)
    users: set[Hashable] = field(default_factory=set)


class TypeRegistry:
    """Event types by name, with their inheritance; iterating gives the names, parents before children."""

    def __init__(self, event_types: Iterable[EventType] = ()) -> None:
        self._entries: dict[str, _Entry] = {}
        self._removed: dict[str, EventType] = {}  # as last known, with the version of their removal
        self._version = 0
        for event_type in event_types:
            self.add(event_type)

    # ---------------------------------------------------------------- changes

    def add(self, event_type: EventType, *, by: str | None = None) -> EventType:
        """Register a new type and return it; whoever (`by`) adds a type without an owner becomes its owner.

        To add an equal definition again is fine and changes nothing.
        """
        if not isinstance(event_type, EventType):
            raise EventTypeError(
                f"add an EventType, not {type(event_type).__name__}; see add_class for classes"
            )
        known = self._entries.get(event_type.name)
        if known is not None:
            return _added_before(event_type, known.event_type, by)
        stored = replace(event_type, owner=event_type.owner or by)
        gone = self._removed.get(stored.name)
        if gone is not None:  # it comes again: those who know of the removal must take it for newer
            stored = replace(stored, version=max(stored.version, gone.version + 1))
        self._entries[stored.name] = entry = self._entry_of(stored)
        self._removed.pop(stored.name, None)
        for ancestor in entry.ancestors:
            self._entries[ancestor].descendants.add(stored.name)
        self._version += 1
        return stored

    def add_class(self, cls: type[Any], *, by: str | None = None) -> EventType:
        """Register the type of a class made with `@event_type`, its ancestors first."""
        added = [self.add(type_of(each), by=by) for each in event_classes(cls)]
        return added[-1]

    def modify(self, event_type: EventType, *, by: str | None = None) -> EventType:
        """Replace a definition by a compatible one and return it with the next version.

        An `owner` of `None` keeps the owner; an equal definition changes nothing.
        """
        entry = self._entry(event_type.name)
        old = entry.event_type
        _check_owner(old, by)
        if _is_same(event_type, old):
            return old
        new = replace(event_type, owner=event_type.owner or old.owner, version=old.version + 1)
        _check_evolution(new, old, by)
        attributes = inherit(new, self._inherited(new))
        _check_attribute_evolution(new.name, entry.attributes, attributes)
        self._replace(entry, new, self._propagate(entry, attributes))
        return new

    def adopt(self, event_type: EventType) -> tuple[EventType, ...]:
        """Take over a definition that was accepted elsewhere; returns what of it was news here.

        The higher version wins; of two with one version, the one that sorts last by its encoding,
        so that brokers that exchange their definitions come to agree. A removal wins over the version
        that it removed; but a parent that was removed while somebody added a subtype comes back.
        """
        entry = self._entries.get(event_type.name)
        if entry is None:
            gone = self._removed.get(event_type.name)
            if gone is not None and event_type.version <= gone.version:
                return ()
            return (*self._revive(event_type.parent), self.add(event_type))
        old = entry.event_type
        if (event_type.version, encode(event_type)) <= (old.version, encode(old)):
            return ()
        if event_type.parent != old.parent:
            raise EventTypeError(
                f"{old.name} has the parent {old.parent} here and {event_type.parent} there; one must go"
            )
        attributes = inherit(event_type, self._inherited(event_type))
        self._replace(entry, event_type, self._propagate(entry, attributes))
        return (event_type,)

    def _revive(self, name: str | None) -> tuple[EventType, ...]:
        """Add a type and its ancestors again, as far as they were removed."""
        if name is None or name not in self._removed:
            return ()
        gone = self._removed[name]
        return (*self._revive(gone.parent), self.add(gone))

    def _replace(self, entry: _Entry, new: EventType, changed: dict[str, dict[str, Attribute]]) -> None:
        entry.event_type = new
        for name, inherited in changed.items():
            self._entries[name].attributes = MappingProxyType(inherited)
        self._version += 1

    def remove(self, name: str, *, by: str | None = None) -> EventType:
        """Forget a type; refused while it has children or users.

        Returns it as `removed` keeps it, with the version of the removal, for others to adopt.
        """
        entry = self._entry(name)
        _check_owner(entry.event_type, by)
        if entry.descendants:
            raise EventTypeError(f"{name} has subtypes: {_some(entry.descendants)}; remove them first")
        if entry.users:
            raise EventTypeError(f"{name} is in use by {_some(entry.users)}")
        return self._forget(entry, entry.event_type.version + 1)

    def adopt_removal(self, gone: EventType) -> bool:
        """Take over that a type was removed elsewhere; returns whether it was news here.

        A type with subtypes stays. It gets a version above that of the removal, for others to adopt.
        """
        entry = self._entries.get(gone.name)
        if entry is None:
            known = self._removed.get(gone.name)
            if known is None or known.version < gone.version:
                self._removed[gone.name] = gone
                return True
            return False
        if entry.event_type.version > gone.version:
            return False
        if entry.descendants:
            entry.event_type = replace(entry.event_type, version=gone.version + 1)
            self._version += 1
        else:
            self._forget(entry, gone.version)
        return True

    def _forget(self, entry: _Entry, version: int) -> EventType:
        name = entry.event_type.name
        for ancestor in entry.ancestors:
            self._entries[ancestor].descendants.discard(name)
        del self._entries[name]
        self._removed[name] = replace(entry.event_type, version=version)
        self._version += 1
        return self._removed[name]

    def use(self, name: str, user: Hashable) -> None:
        """Note that `user` uses a type, which keeps it from being removed."""
        self._entry(name).users.add(user)

    def release(self, name: str, user: Hashable) -> None:
        """Note that `user` no longer uses a type."""
        self._entry(name).users.discard(user)

    # ---------------------------------------------------------------- questions

    @property
    def version(self) -> int:
        """A number that grows with each change of a type; answers may be cached against it."""
        return self._version

    @property
    def removed(self) -> Mapping[str, EventType]:
        """The types that were removed and have not come again, in that order."""
        return MappingProxyType(self._removed)

    def get(self, name: str) -> EventType:
        """The type of that name, or an `UnknownTypeError`."""
        return self._entry(name).event_type

    def attributes(self, name: str) -> Mapping[str, Attribute]:
        """All attributes of a type, inherited ones first."""
        return self._entry(name).attributes

    def ancestors(self, name: str) -> tuple[str, ...]:
        """The names of a type's ancestors, the nearest first."""
        return self._entry(name).ancestors

    def descendants(self, name: str) -> frozenset[str]:
        """The names of all types below a type."""
        return frozenset(self._entry(name).descendants)

    def is_subtype(self, name: str, of: str) -> bool:
        """Whether `name` is `of` or one of its descendants; an unregistered type is only itself."""
        if name == of:
            return True
        entry = self._entries.get(name)
        return entry is not None and of in entry.lineage

    def roots(self) -> tuple[str, ...]:
        """The names of the types without a parent."""
        return tuple([name for name, entry in self._entries.items() if not entry.ancestors])

    def users(self, name: str) -> frozenset[Hashable]:
        """Who uses a type."""
        return frozenset(self._entry(name).users)

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)  # a parent is there before its children are added, and goes after them

    def __len__(self) -> int:
        return len(self._entries)

    # ---------------------------------------------------------------- events

    def check(self, event: Event) -> None:
        """Raise a `ConformanceError` with all that is wrong, if anything; an event without type passes."""
        if event.type is None:
            return
        found = list(problems(self.attributes(event.type), event.attributes))
        if found:
            raise ConformanceError(event.type, found)

    def from_json(self, data: Mapping[str, Any], type_name: str) -> dict[str, Value]:
        """Flat attributes from JSON data, with the declared timestamps parsed and nothing else converted."""
        found: list[str] = []
        values = with_timestamps(self.attributes(type_name), Event(data).attributes, found)
        if found:
            raise ConformanceError(type_name, found)
        return values

    # ---------------------------------------------------------------- inside

    def _entry(self, name: str) -> _Entry:
        try:
            return self._entries[name]
        except KeyError:
            raise UnknownTypeError(f"unknown event type {name!r}{did_you_mean(name, self)}") from None

    def _entry_of(self, event_type: EventType) -> _Entry:
        ancestors: tuple[str, ...] = ()
        if event_type.parent is not None:
            ancestors = (event_type.parent, *self._parent(event_type.name, event_type.parent).ancestors)
        if len(ancestors) > MAX_ANCESTORS:
            raise EventTypeError(f"{event_type.name} has more than {MAX_ANCESTORS} ancestors")
        attributes = MappingProxyType(inherit(event_type, self._inherited(event_type)))
        return _Entry(event_type, attributes, ancestors, frozenset({event_type.name, *ancestors}))

    def _parent(self, name: str, parent: str) -> _Entry:
        try:
            return self._entry(parent)
        except UnknownTypeError as error:
            raise UnknownTypeError(f"{name} has a parent that is not registered: {error}") from None

    def _inherited(self, event_type: EventType) -> Mapping[str, Attribute]:
        return {} if event_type.parent is None else self._entries[event_type.parent].attributes

    def _propagate(self, entry: _Entry, attributes: dict[str, Attribute]) -> dict[str, dict[str, Attribute]]:
        """The attributes of a type and its descendants when it has `attributes`; refuses what breaks one."""
        top = entry.event_type.name
        changed = {top: attributes}
        for name in self._entries:
            if name in entry.descendants:
                below = self._entries[name].event_type
                try:
                    changed[name] = inherit(below, changed[below.parent or top])
                except EventTypeError as error:
                    raise EventTypeError(f"{top} cannot change so, because of a subtype: {error}") from None
        return changed


def _is_same(new: EventType, old: EventType) -> bool:
    """Whether two definitions are equal; versions do not count, and an owner only if `new` names one."""
    return replace(new, version=old.version, owner=new.owner or old.owner) == old


def _added_before(event_type: EventType, stored: EventType, by: str | None) -> EventType:
    if _is_same(event_type, stored):
        return stored
    _check_owner(stored, by)
    raise EventTypeError(
        f"{stored.name} is registered with another definition; use modify() to change it ({_ALLOWED})"
    )


def _check_owner(event_type: EventType, by: str | None) -> None:
    if event_type.owner is not None and by != event_type.owner:
        who = "" if by is None else f", not {by!r}"
        raise EventTypeError(
            f"{event_type.name} belongs to {event_type.owner!r}: only its owner may change or remove it{who}"
        )


def _check_evolution(new: EventType, old: EventType, by: str | None) -> None:
    if new.parent != old.parent:
        raise EventTypeError(
            f"the parent of {old.name} changes from {old.parent} to {new.parent}; {_ALLOWED}"
        )
    if new.owner != old.owner and by != old.owner:
        raise EventTypeError(f"{old.name} has no owner, and {by!r} may not claim it by modifying it")


def _check_attribute_evolution(
    type_name: str, old: Mapping[str, Attribute], new: Mapping[str, Attribute]
) -> None:
    """Refuse a change after which some event of the old definition would not conform to the new one."""
    for name, attribute in old.items():
        if name not in new:
            raise EventTypeError(f"{type_name}: the attribute {name!r} is removed; {_ALLOWED}")
        if not attribute.narrows(new[name]):
            raise EventTypeError(
                f"{type_name}: the attribute {name!r} changes from {attribute} to {new[name]}; {_ALLOWED}"
            )
    for name, attribute in new.items():
        if name not in old and not attribute.optional:
            raise EventTypeError(f"{type_name}: the new attribute {name!r} is required; {_ALLOWED}")


def _some(things: Iterable[Hashable]) -> str:
    """A few of `things`, for a message."""
    texts = sorted(map(str, things))
    more = f" and {len(texts) - 5} more" if len(texts) > 5 else ""
    return ", ".join(texts[:5]) + more
