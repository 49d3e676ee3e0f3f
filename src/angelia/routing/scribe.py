"""Scribe: topics as groups on an overlay, one multicast tree each (HERMES 2.3.2; the slides' SCRIBE).

The broker nearest to the key of a group is its rendezvous point and the root of its tree. Who wants the
events of a group sends a `JoinGroup` there; every broker on the way becomes a forwarder and notes the one
before in its children table, and the message ends where a forwarder is met. An event is routed to the
rendezvous point and passed on from there to children. What a filter asks for besides topics is seen to where
its client is.

Children are soft state: they join anew from time to time, and whenever their way to the root has changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from angelia.errors import RoutingError
from angelia.filter import Filter
from angelia.filter.topics import groups_of, groups_wanted
from angelia.messages import Contact, CreateGroup, JoinGroup, LeaveGroup, Message, Multicast, Notify, Send
from angelia.overlay import key_of
from angelia.routing.base import NOWHERE, Interests, Local, Routed, Seen
from angelia.routing.overlay import OverlayRouter
from angelia.types import TypeRegistry

__all__ = ["Group", "Scribe"]


class Group:
    """What a member of the tree of a group knows of it."""

    def __init__(self, name: str) -> None:
        self.key = key_of(name)
        self.parent: str | None = None  # None: this broker is the rendezvous point
        self.children: dict[str, float] = {}  # with their leases
        self.members = 0  # filters of local parties that need the group
        self.seen = Seen()

    @property
    def is_needed(self) -> bool:
        """Whether there is a reason to be in the tree."""
        return bool(self.children or self.members)


class Scribe(OverlayRouter):
    """A broker with topic-based routing."""

    def __init__(self, name: str, registry: TypeRegistry, **overlay: Any) -> None:
        super().__init__(name, registry, **overlay)
        self.interests = Interests(registry)
        self.groups: dict[str, Group] = {}
        self.created: set[str] = set()  # groups that this broker is, or may become, the rendezvous point of
        self.seen = Seen()

    # ------------------------------------------------ requests of local parties

    def create(self, group: str) -> None:
        """Create a group at its rendezvous point, before anybody joins it; joining creates it as well."""
        self.pan.route(CreateGroup(group), key_of(group))
        self._settled()

    def subscribe(self, party: Local, filter: Filter) -> list[Send]:  # noqa: A002 - what it is
        """A local party subscribes: the broker joins the groups that it needs."""
        if filter in self.interests.of(party):
            return []
        self.interests.add(party, filter)
        for name in sorted(groups_wanted(filter)):
            group = self._group(name)
            group.members += 1
            if group.members == 1 and not group.children:
                self._join(name)
        return self._settled()

    def unsubscribe(self, party: Local, filter: Filter) -> list[Send]:  # noqa: A002
        """A local party cancels all its subscriptions that the filter covers."""
        for item in self.interests.of(party):
            if filter.covers(item, self.registry):
                self._remove(party, item)
        return self._settled()

    def drop(self, party: Local) -> list[Send]:
        """Cancel all subscriptions of a local party."""
        for item in self.interests.of(party):
            self._remove(party, item)
        return self._settled()

    def _remove(self, party: Local, filter: Filter) -> None:  # noqa: A002
        self.interests.remove(party, filter)
        for name in sorted(groups_wanted(filter)):
            self.groups[name].members -= 1
            self._leave_if_unneeded(name)

    def publish(self, notification: Notify) -> Routed:
        """Send an event to the rendezvous points of its groups."""
        self._deliver_here(notification)
        for name in groups_of(notification.event):
            self.pan.route(Multicast(name, notification), key_of(name))
        self._settled()
        return NOWHERE

    # ------------------------------------------------ the trees

    def _group(self, name: str) -> Group:
        return self.groups.setdefault(name, Group(name))

    def _join(self, name: str) -> None:
        self.pan.route(JoinGroup(name), self._group(name).key)

    def _leave_if_unneeded(self, name: str) -> None:
        group = self.groups[name]
        if not group.is_needed:
            del self.groups[name]
            if group.parent is not None:
                self.send(group.parent, LeaveGroup(name))

    def forward(
        self,
        message: Message,
        source: Contact,
        last: str,
        next: Contact,  # noqa: A002 - the thesis' word
        key: str,
    ) -> Contact | None:
        """A message passes: of those that join, all but the first broker's end at a member of the tree."""
        if not isinstance(message, JoinGroup):
            return next
        was_member = message.group in self.groups and self.groups[message.group].parent == next.name
        group = self._adopted(message.group, last)
        group.parent = next.name
        return None if was_member and last != self.name else next

    def deliver(self, message: Message, source: Contact, last: str, key: str) -> None:
        """A message has reached the rendezvous point of a group."""
        match message:
            case JoinGroup():
                self._adopted(message.group, last).parent = None
                self._create(message.group)
            case CreateGroup():
                self._create(message.group)
            case Multicast():
                self._multicast(message, None)
            case _:
                super().deliver(message, source, last, key)

    def _adopted(self, name: str, child: str) -> Group:
        """The group, with a broker in its children table, unless that is this one."""
        group = self._group(name)
        if child != self.name:
            group.children[child] = self.now + self.lease
        return group

    def _create(self, name: str) -> None:
        if name not in self.created:
            self.created.add(name)
            for contact in self.pan.leaf_set.members:
                self.pan.send(contact, CreateGroup(name))

    def _multicast(self, message: Multicast, sender: str | None) -> None:
        self._deliver_here(message.notification)
        group = self.groups.get(message.group)
        if group is None or not group.seen.is_new(message.notification):
            return
        for child in sorted(group.children):
            if child != sender:
                self.send(child, message)

    def _deliver_here(self, notification: Notify) -> None:
        if self.seen.is_new(notification):
            interested = self.interests.interested(notification.event)
            if interested:
                routed = self._routed(notification, interested, ())
                self.outbox.append(routed._replace(event=notification.event))

    def received(self, peer: str, message: Message) -> None:
        """A message of a peer: down the tree, or of a child that leaves."""
        match message:
            case Multicast():
                self._multicast(message, peer)
            case LeaveGroup():
                if message.group in self.groups:
                    self.groups[message.group].children.pop(peer, None)
                    self._leave_if_unneeded(message.group)
            case CreateGroup():
                self.created.add(message.group)
            case _:
                raise RoutingError(f"Scribe does not understand {type(message).__name__}")

    # ------------------------------------------------ the overlay

    def tables_changed(self) -> None:
        """Brokers came or went: who has another way to the root joins there."""
        for name, group in list(self.groups.items()):
            hop = self.pan.next_hop(group.key)
            before, now = group.parent, None if hop is None else hop.name
            if before != now:
                if before is not None:
                    self.send(before, LeaveGroup(name))
                group.parent = None
                self._join(name)

    def leaf_set_changed(self, leaf_set: tuple[Contact, ...]) -> None:
        """Others may have to take this broker's place: they get to know the groups."""
        for name in sorted(self.created):
            for contact in leaf_set if self.pan.is_root(key_of(name)) else ():
                self.pan.send(contact, CreateGroup(name))

    def peer_failed(self, name: str) -> None:
        """A broker is gone."""
        for group_name, group in list(self.groups.items()):
            if group.children.pop(name, None) is not None:
                self._leave_if_unneeded(group_name)

    def returned(self, peer: str) -> None:
        """A link was lost and is back: join again over it."""
        for name, group in list(self.groups.items()):
            if group.parent == peer:
                self._join(name)

    def refresh(self, expire: bool) -> None:
        """Join anew, and forget children that have not."""
        now = self.now if expire else 0.0
        for name, group in list(self.groups.items()):
            group.children = {child: until for child, until in group.children.items() if until > now}
            self._leave_if_unneeded(name)
            if group.is_needed:
                self._join(name)

    def needs(self, peer: str) -> bool:
        """Whether a peer is a parent or a child."""
        return any(group.parent == peer or peer in group.children for group in self.groups.values())

    def state(self) -> Mapping[str, Any]:
        """The subscriptions of local parties, and the groups with parent and children."""
        return {
            "subscriptions": self.interests.table(),
            "groups": {name: (group.parent, tuple(group.children)) for name, group in self.groups.items()},
            "created": tuple(sorted(self.created)),
            "neighbors": tuple(self.peers),
            "leaf_set": tuple(contact.name for contact in self.pan.leaf_set.members),
            "routing_table": self.pan.table.rows(),
        }
