"""HERMES: typed events on a self-organising overlay (P. Pietzuch's thesis, chapter 4).

Every event type has a rendezvous node, the broker whose id is nearest to the hash of the type's name.
Advertisements and subscriptions go towards it and meet there at the latest; the ways to it are the tree in
which events of the type travel (`trees.py`). Publications follow Figure 4.6: type-based ones go up to the
rendezvous node and down to all subscriptions on the way; type- and attribute-based ones only where a
subscription of that kind wants them, filtered as near to their source as possible; most are both.

Supertype subscriptions (4.3.4): a filter without a type is for the tree of all types, `*`, of which every
type without a parent is a subtype. `inheritance` tells who goes from tree to tree: "advertisements" (the
default) or "subscriptions"; None: nobody does, and a subscription is for one type alone.

Fault tolerance (4.3.7): soft state, renewed by its senders; other ways when a broker fails; and with
`replicas` above 1, several rendezvous nodes, joined in one of four ways, `replication`.

Departures from the thesis: the tables of a type are separate from those of others, so that no event comes
to a broker twice in one tree, whatever supertypes are subscribed to there; and a broker delivers an event
once, in whichever trees it comes. In the trees filters have no types (see `trees.relaxed`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from angelia.errors import RoutingError
from angelia.event import Event
from angelia.filter import Advertisement, Filter
from angelia.messages import (
    AdvertisementMessage,
    By,
    ChildType,
    Contact,
    Definitions,
    FromClient,
    Message,
    Notify,
    PublicationMessage,
    Send,
    SubscriptionMessage,
)
from angelia.overlay.ids import number
from angelia.routing.base import Interests, Interface, Local, Party, Peer, Routed, Seen
from angelia.routing.forwarding import Change
from angelia.routing.overlay import OverlayRouter
from angelia.routing.repository import Repository
from angelia.routing.trees import Kind, Table, Tree, bridge, is_bridge, relaxed, untyped
from angelia.types import TypeRegistry

__all__ = ["ANY", "INHERITANCE", "REPLICATION", "Hermes"]

ANY = "*"  # the tree of events without a type, above all others
INHERITANCE = ("advertisements", "subscriptions", None)
REPLICATION = (
    "client advertisements",
    "client subscriptions",
    "rendezvous advertisements",
    "rendezvous subscriptions",
)
_Placed = dict[tuple[str, bool], frozenset[Filter]]  # by tree, and whether by type


class Hermes(OverlayRouter):
    """A HERMES event broker."""

    floods_types = False

    def __init__(
        self,
        name: str,
        registry: TypeRegistry,
        *,
        inheritance: str | None = "advertisements",
        replicas: int = 1,
        replication: str = "rendezvous advertisements",
        **overlay: Any,
    ) -> None:
        super().__init__(name, registry, **overlay)
        if inheritance not in INHERITANCE:
            raise RoutingError(f"there is no inheritance of {inheritance!r}; there is {INHERITANCE}")
        if replication not in REPLICATION:
            raise RoutingError(f"there is no replication by {replication!r}; there is {REPLICATION}")
        if replicas < 1:
            raise RoutingError(f"there is one rendezvous node at least, not {replicas}")
        self.inheritance, self.replicas, self.replication = inheritance, replicas, replication
        self.trees: dict[str, Tree] = {}
        self.repository = Repository(self, self._types_learned)
        self.interests = Interests(registry)
        self.seen = Seen()
        self._wants: dict[Local, dict[Filter, By]] = {}
        self._offers: dict[Party, set[Advertisement]] = {}
        self._placed: dict[Local, _Placed] = {}
        self._held: dict[str, list[tuple[Notify, By]]] = {}  # by the type that is looked up
        self._home = number(self.pan.me.id) % replicas  # the replica that this broker turns to

    # ------------------------------------------------ which trees

    def _trees_of(self, type: str | None, everywhere: str) -> list[str]:  # noqa: A002
        """The trees of a type, for a part of the work: all replicas' in one scheme, else that of one."""
        copies = range(self.replicas) if self.replication == everywhere else (self._home,)
        return [_name(type or ANY, copy) for copy in copies]

    def _tree(self, name: str) -> Tree:
        if name not in self.trees:
            self.trees[name] = self._made(name)
        return self.trees[name]

    def _made(self, name: str) -> Tree:
        type_name, _, copy = name.rpartition("#")
        is_copy = self.replicas > 1 and copy.isdecimal()
        tree = Tree(name, type_name if is_copy else name, int(copy) if is_copy else 0, self.registry)
        self._place(tree)
        return tree

    def _place(self, tree: Tree) -> bool:
        """Find the way to the root, or the bridges that begin there; returns whether that has changed."""
        before = tree.up, tree.above, tree.below
        hop = self.pan.next_hop(tree.key)
        tree.up = None if hop is None else hop.name
        others = frozenset(bridge(_name(tree.type, c)) for c in range(self.replicas) if c != tree.replica)
        above: frozenset[str] = frozenset()
        below: frozenset[str] = frozenset()
        if hop is None:
            parent = self._parent(tree.type)
            if self.inheritance == "advertisements" and parent is not None:
                above |= {bridge(_name(parent, tree.replica))}
            if self.inheritance == "subscriptions":
                below |= {bridge(child) for child in tree.children}
            if self.replication == "rendezvous advertisements":
                above |= others
            if self.replication == "rendezvous subscriptions":
                below |= others
        tree.above, tree.below, tree.replicas = above, below, others
        return (tree.up, tree.above, tree.below) != before

    def _parent(self, type: str) -> str | None:  # noqa: A002
        if type == ANY:
            return None
        return (self.registry.get(type).parent if type in self.registry else None) or ANY

    def _place_all(self) -> None:
        for tree in list(self.trees.values()):
            if self._place(tree):
                self._ways_changed(tree)

    def _ways_changed(self, tree: Tree) -> None:
        self._tell_child(tree)
        for table in tree.tables:
            self._tell(tree, table, table.refresh())
        self._prune(tree)

    # ------------------------------------------------ requests of local parties

    def takes_over(self, given: FromClient) -> bool:
        """Whether a request waits until the types that it is about are known here."""
        taken = self.repository.takes_over(given)
        self._settled()
        return taken

    def client_gone(self, client: str) -> None:
        """A client is gone."""
        self.repository.client_gone(client)

    def subscribe(self, party: Local, filter: Filter) -> list[Send]:  # noqa: A002 - what it is
        """A local party subscribes, by type, by type and attributes, or for both (Table 4.3)."""
        wants = self._wants.setdefault(party, {})
        wants[filter] = self.by if wants.get(filter, self.by) is self.by else By.BOTH
        self.interests.add(party, filter)
        return self._place_subscriptions(party)

    def unsubscribe(self, party: Local, filter: Filter) -> list[Send]:  # noqa: A002
        """A local party cancels all its subscriptions that the filter covers, of one kind or of both."""
        wants = self._wants.get(party, {})
        for item in [item for item in wants if filter.covers(item, self.registry)]:
            left = _without(wants[item], self.by)
            if left is not None:
                wants[item] = left
            else:
                del wants[item]
                self.interests.remove(party, item)
        return self._place_subscriptions(party)

    def _place_subscriptions(self, party: Local) -> list[Send]:
        """Bring the trees up to date with what a party wants."""
        new: dict[tuple[str, bool], set[Filter]] = {}
        for item, by in self._wants.get(party, {}).items():
            for type_name, part in relaxed(item).items():
                for name in self._trees_of(type_name, "client subscriptions"):
                    by_type = by is By.TYPE
                    new.setdefault((name, by_type), set()).add(Filter() if by_type else part)
        placed = {place: frozenset(parts) for place, parts in new.items()}
        old = self._placed.get(party, {})
        for place in sorted(old.keys() | placed.keys()):
            if old.get(place) != placed.get(place):
                tree = self._tree(place[0])
                table = tree.table(Kind.BY_TYPE if place[1] else Kind.BY_ATTRIBUTE)
                self._tell(tree, table, table.replace(party, placed.get(place, ())))
                self._prune(tree)
        self._placed[party] = placed
        if not placed:
            del self._placed[party]
            self._wants.pop(party, None)
        return self._settled()

    def advertise(self, party: Party, advertisement: Advertisement) -> list[Send]:
        """A local party advertises events of one type."""
        self._offers.setdefault(party, set()).add(advertisement)
        return self._place_advertisements(party, {advertisement.type})

    def unadvertise(self, party: Party, advertisement: Advertisement) -> list[Send]:
        """A local party cancels all its advertisements that this one covers."""
        offers = self._offers.get(party, set())
        gone = {item for item in offers if advertisement.covers(item, self.registry)}
        offers -= gone
        return self._place_advertisements(party, {item.type for item in gone})

    def _place_advertisements(self, party: Party, types: Iterable[str | None]) -> list[Send]:
        offers = self._offers.get(party, set())
        for type_name in sorted(types, key=str):
            mine = [untyped(item) for item in offers if item.type == type_name]
            for name in self._trees_of(type_name, "client advertisements"):
                tree = self._tree(name)
                table = tree.table(Kind.ADVERTISEMENT)
                before = table.entries.of(party)
                self._tell(tree, table, table.replace(party, mine))
                self._pull(tree, [*before, *mine])
                self._prune(tree)
        if not offers:
            self._offers.pop(party, None)
        return self._settled()

    def drop(self, party: Local) -> list[Send]:
        """Cancel all subscriptions and advertisements of a local party."""
        for item in self._wants.pop(party, {}):
            self.interests.remove(party, item)
        self._place_subscriptions(party)
        if isinstance(party, Party):
            types = {item.type for item in self._offers.pop(party, ())}
            self._place_advertisements(party, types)
        return []

    def check_publications(self, party: Party, events: Sequence[Event]) -> None:
        """Refuse an event of a type that its publisher has not advertised (4.2.2)."""
        offers = self._offers.get(party, ())
        for event in events:
            if not any(o.type == event.type and o.advertises(event, self.registry) for o in offers):
                what = f"events of type {event.type}" if event.type else "events without a type"
                raise RoutingError(
                    f"{party.identity} has not advertised this event; advertise it first, as {what}: in "
                    "Hermes an advertisement is for one event type"
                )

    # ------------------------------------------------ tables and messages

    def _tell(self, tree: Tree, table: Table[Any], changes: Iterable[Change[Any]]) -> None:
        """Tell neighbours of changes in a table; over a bridge, that is another tree here."""
        for change in changes:
            if is_bridge(change.peer):
                is_bridged = table.is_bridged or change.peer in tree.replicas
                there = _message(change.peer[1:], table.kind, change, is_bridged)
                self._accept(there, Peer(bridge(tree.name)))
            else:
                self.send(change.peer, _message(tree.name, table.kind, change, table.is_bridged))

    def _pull(self, tree: Tree, advertisements: list[Advertisement]) -> None:
        """Let subscriptions follow advertisements that came, and no longer those that went."""
        for table, changes in tree.relevant(advertisements):
            self._tell(tree, table, changes)

    def _accept(self, message: AdvertisementMessage | SubscriptionMessage, who: Peer) -> None:
        """Process an advertisement or subscription message (Figure 4.6, lines 1-23)."""
        tree = self._tree(message.tree)
        until = float("inf") if is_bridge(who.name) else self.now + self.lease
        if isinstance(message, AdvertisementMessage):
            table = tree.table(Kind.ADVERTISEMENT, message.is_bridged)
            self._change(tree, table, who, message, message.advertisement, until)
            self._pull(tree, [message.advertisement, *message.uncovered])
        else:
            table = tree.table(Kind.BY_TYPE if message.by_type else Kind.BY_ATTRIBUTE, message.is_bridged)
            self._change(tree, table, who, message, message.filter, until)
        self._tell_child(tree)
        self._prune(tree)

    def _change(
        self,
        tree: Tree,
        table: Table[Any],
        who: Peer,
        message: AdvertisementMessage | SubscriptionMessage,
        item: Any,
        until: float,
    ) -> None:
        if message.cancels:
            self._tell(tree, table, table.cancel(who, item, message.uncovered, until))
        else:
            self._tell(tree, table, table.add(who, item, until))

    def _prune(self, tree: Tree) -> None:
        if tree.is_empty and self.trees.get(tree.name) is tree:
            del self.trees[tree.name]

    def _tell_child(self, tree: Tree) -> None:
        """The rendezvous node of the supertype is to pass subscriptions on to this one."""
        parent = self._parent(tree.type)
        if self.inheritance == "subscriptions" and tree.up is None and parent and not tree.is_empty:
            above = _name(parent, tree.replica)
            self.pan.route(ChildType(above, tree.name), self._tree_key(above))

    def _tree_key(self, name: str) -> str:
        return self.trees[name].key if name in self.trees else self._made(name).key

    def received(self, peer: str, message: Message) -> None:
        """A message of a peer."""
        match message:
            case PublicationMessage():
                self._disseminate(message, peer)
            case AdvertisementMessage() | SubscriptionMessage():
                self._accept(message, Peer(peer))
            case Definitions():
                self.repository.adopt(message)
            case _:
                raise RoutingError(f"Hermes does not understand {type(message).__name__}")

    def deliver(self, message: Message, source: Contact, last: str, key: str) -> None:
        """A message for a rendezvous node."""
        match message:
            case ChildType():
                tree = self._tree(message.tree)
                is_new = message.child not in tree.children
                tree.children[message.child] = self.now + self.lease
                if is_new and self._place(tree):
                    self._ways_changed(tree)
            case Definitions():
                self.repository.adopt(message)
            case _:
                super().deliver(message, source, last, key)

    def deliver_request(self, message: Message, source: Contact, number: int) -> Message | None:
        """A request for a rendezvous node."""
        return self.repository.deliver_request(message, source, number)

    # ------------------------------------------------ publications (Figure 4.6, lines 25-38)

    def publish(self, notification: Notify) -> Routed:
        """A local party publishes, by type, by type and attributes, or for both (Table 4.2)."""
        self._deliver_here(notification, self.by)
        for name in self._trees_of(notification.event.type, "client advertisements"):
            self._disseminate(PublicationMessage(name, notification, self.by), None)
        self._settled()
        return Routed(frozenset(), [])

    def _disseminate(self, message: PublicationMessage, sender: str | None) -> None:
        notification, by = message.notification, message.by
        self._deliver_here(notification, by)
        tree = self.trees.get(message.tree) or self._made(message.tree)
        if not tree.seen.is_new(notification):
            return
        hops = tree.interested(notification.event, by is not By.ATTRIBUTE, message.is_bridged)
        if by is not By.ATTRIBUTE:
            hops |= tree.towards_root(tree.above, message.is_bridged)
        hops -= {sender}
        for hop in sorted(hops):
            if is_bridge(hop):
                is_bridged = message.is_bridged or hop in tree.replicas
                on = PublicationMessage(hop[1:], notification, by, is_bridged)
                self._disseminate(on, bridge(tree.name))
            else:
                self.send(hop, message)

    def _deliver_here(self, notification: Notify, by: By) -> None:
        """Deliver to local parties, when the event's type is known, or known to be none."""
        event = notification.event
        if not self._wants or not self.seen.is_new(notification):
            return
        name = event.type
        if name is not None and not self.repository.is_settled(name):
            self._held.setdefault(name, []).append((notification, by))
            self.repository.look_up(name)
            return
        self._hand_out(notification, by)

    def _hand_out(self, notification: Notify, by: By) -> None:
        interested = self.interests.interested(notification.event)
        if by is not By.BOTH:
            interested = {who for who in interested if self._meets(who, notification.event, by)}
        if interested:
            routed = self._routed(notification, interested, ())
            self.outbox.append(routed._replace(event=notification.event))

    def _meets(self, who: Interface, event: Event, by: By) -> bool:
        wants = self._wants.get(who, {}) if not isinstance(who, Peer) else {}
        return any(by.meets(kind) and item.matches(event, self.registry) for item, kind in wants.items())

    # ------------------------------------------------ types

    def _types_learned(self, names: Iterable[str]) -> None:
        """Types are known (or a name is none): trees may have others above them, and events have waited."""
        concerned = set(names)
        for tree in [tree for tree in self.trees.values() if tree.type in concerned] if concerned else ():
            if self._place(tree):
                self._ways_changed(tree)
        for name in [name for name in self._held if self.repository.is_settled(name)]:
            for notification, by in self._held.pop(name):
                self._hand_out(notification, by)

    # ------------------------------------------------ the overlay

    def tables_changed(self) -> None:
        """Brokers came or went: the trees follow."""
        self._place_all()
        self.repository.tables_changed()

    def leaf_set_changed(self, leaf_set: tuple[Contact, ...]) -> None:
        """The rendezvous nodes' replicas are others."""
        self.repository.leaf_set_changed(leaf_set)

    def peer_failed(self, name: str) -> None:
        """A broker is gone, with all that came from it."""
        for tree in list(self.trees.values()):
            advertised: list[Advertisement] = []
            for table in tree.tables:
                if table.kind is Kind.ADVERTISEMENT:
                    advertised += table.entries.of(Peer(name))
                self._tell(tree, table, table.remove(name))
            self._pull(tree, advertised)
            self._prune(tree)

    def returned(self, peer: str) -> None:
        """A link was lost and is back: say again what was told over it."""
        for tree in list(self.trees.values()):
            for table in tree.tables:
                self._tell(tree, table, table.told(peer))

    def refresh(self, expire: bool) -> None:
        """Renew what others hold, and drop what was not renewed here."""
        now = self.now if expire else 0.0
        for tree in list(self.trees.values()):
            children = {child: until for child, until in tree.children.items() if until > now}
            is_less, tree.children = len(children) < len(tree.children), children
            for table in tree.tables:
                gone, changes = table.expire(now)
                self._tell(tree, table, changes)
                if table.kind is Kind.ADVERTISEMENT:
                    self._pull(tree, gone)
                self._tell(tree, table, [change for change in table.told() if not is_bridge(change.peer)])
            if is_less and self._place(tree):
                self._ways_changed(tree)
            self._tell_child(tree)
            self._prune(tree)
        self.repository.refresh()

    def needs(self, peer: str) -> bool:
        """Whether a peer is a neighbour in some tree."""
        return any(
            tree.up == peer or any(peer in table.leases for table in tree.tables)
            for tree in self.trees.values()
        )

    def state(self) -> Mapping[str, Any]:
        """The trees with their tables, who the local parties are, and what Pan knows."""
        trees = {name: tree.state() for name, tree in self.trees.items()}
        rows = {
            (name, kind, item): entry
            for name, tables in trees.items()
            for kind, table in tables.items()
            for item, entry in table.items()
        }
        return {
            "subscriptions": {row: entry for row, entry in rows.items() if row[1].startswith("by")},
            "advertisements": {row: entry for row, entry in rows.items() if not row[1].startswith("by")},
            "trees": trees,
            "kept": tuple(sorted(self.repository.kept)),
            "neighbors": tuple(self.peers),
            "leaf_set": tuple(contact.name for contact in self.pan.leaf_set.members),
            "routing_table": self.pan.table.rows(),
            "neighbourhood": tuple(contact.name for contact in self.pan.neighbourhood.members),
        }


def _message(
    tree: str, kind: Kind, change: Change[Any], is_bridged: bool
) -> AdvertisementMessage | SubscriptionMessage:
    _, item, added, uncovered = change
    if kind is Kind.ADVERTISEMENT:
        return AdvertisementMessage(tree, item, not added, is_bridged, uncovered)
    return SubscriptionMessage(tree, item, kind is Kind.BY_TYPE, not added, is_bridged, uncovered)


def _name(type: str, replica: int) -> str:  # noqa: A002
    return f"{type}#{replica}" if replica else type


def _without(kind: By, cancelled: By) -> By | None:
    """What is left of a subscription of a kind; None: nothing."""
    if kind is cancelled or cancelled is By.BOTH:
        return None
    if kind is not By.BOTH:
        return kind
    return By.ATTRIBUTE if cancelled is By.TYPE else By.TYPE
