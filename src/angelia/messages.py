"""Every request, message, input and effect of a node, on one page.

A *request* comes from a client: the interface functions of SIENA's Table I, each with the identity
of the party that makes it. A *message* goes from broker to broker. An *input* is what a node is
given, together with the time; an *effect* is what it wants done. All are immutable.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

import msgspec

from angelia.event import Event
from angelia.filter import Advertisement, Filter
from angelia.pattern import Pattern
from angelia.types import EventType

__all__ = [
    "Advertise",
    "AdvertisementMessage",
    "By",
    "ChildType",
    "ClientDown",
    "Connect",
    "Contact",
    "Contacts",
    "CreateGroup",
    "DefineType",
    "Definitions",
    "Deliver",
    "DeliverSequence",
    "Disconnect",
    "Effect",
    "Farewell",
    "Forwarded",
    "FromClient",
    "FromPeer",
    "Heartbeat",
    "Input",
    "Interest",
    "Join",
    "JoinGroup",
    "Leave",
    "LeaveGroup",
    "LinkState",
    "Lookup",
    "Measure",
    "Measured",
    "Message",
    "Multicast",
    "Notify",
    "NotifySequence",
    "PeerDown",
    "PeerUp",
    "PublicationMessage",
    "Publish",
    "PublishAll",
    "Published",
    "Reach",
    "Recipients",
    "Refusal",
    "RemoveType",
    "Reply",
    "Request",
    "Route",
    "RouteReply",
    "Send",
    "SetTimer",
    "Subscribe",
    "SubscribePattern",
    "SubscriptionChange",
    "SubscriptionMessage",
    "Subscriptions",
    "Timer",
    "TypeDefinition",
    "TypeMessage",
    "TypeRemoval",
    "TypeRemoved",
    "Unadvertise",
    "Unsubscribe",
    "UnsubscribePattern",
    "Versions",
]


class _Struct(msgspec.Struct, frozen=True, tag=True, gc=False):
    """What all of these are. None can be part of a cycle: the garbage collector need not look at them."""


# ---------------------------------------------------------------- requests (SIENA, Table I)


class By(Enum):
    """Which subscriptions meet which publications (HERMES 4.3.6); to all other routers it is one.

    A publication of a kind goes to the subscriptions of that kind, and to those for both.
    """

    BOTH = "both"
    TYPE = "type"
    ATTRIBUTE = "attribute"  # the thesis' type- and attribute-based routing

    def meets(self, other: By) -> bool:
        """Whether publications of one kind go to subscriptions of the other."""
        return self is other or By.BOTH in (self, other)


class Publish(_Struct, frozen=True):
    """Publish an event on behalf of an object of interest."""

    identity: str
    event: Event
    by: By = By.BOTH


class PublishAll(_Struct, frozen=True):
    """Publish several events in their order: all of them, or none if one is refused."""

    identity: str
    events: tuple[Event, ...]


class Subscribe(_Struct, frozen=True):
    """Subscribe an interested party. Between brokers, the party is the sending broker."""

    identity: str
    filter: Filter
    by: By = By.BOTH


class Unsubscribe(_Struct, frozen=True):
    """Cancel all subscriptions of the party that the filter covers (SIENA 3.7), or those of a kind.

    `uncovered`: between brokers, the subscriptions that stand from now on in its place. They are in the
    same message, so that there is no moment at which neither stands. If they are too many for one, all
    messages but the last say that there is `more`, and are only kept until then.
    """

    identity: str
    filter: Filter
    uncovered: tuple[Filter, ...] = ()
    more: bool = False
    by: By = By.BOTH


class SubscribePattern(_Struct, frozen=True):
    """Subscribe an interested party to a pattern (SIENA 3.3). Between brokers, to delegate it (5.3.3)."""

    identity: str
    pattern: Pattern


class UnsubscribePattern(_Struct, frozen=True):
    """Cancel all patterns of the party that this one covers (3.7); of a broker, this very one."""

    identity: str
    pattern: Pattern


class Advertise(_Struct, frozen=True):
    """Tell what an object of interest is going to publish."""

    identity: str
    advertisement: Advertisement


class Unadvertise(_Struct, frozen=True):
    """Cancel all advertisements of the object that this one covers.

    `uncovered` and `more`: between brokers, as in `Unsubscribe`.
    """

    identity: str
    advertisement: Advertisement
    uncovered: tuple[Advertisement, ...] = ()
    more: bool = False


class DefineType(_Struct, frozen=True):
    """Add an event type, or change it in a compatible way."""

    identity: str
    event_type: EventType


class RemoveType(_Struct, frozen=True):
    """Remove an event type, and end what was subscribed to and advertised of it (HERMES, Table 4.2).

    `owner`: who removes it, if it has an owner.
    """

    identity: str
    name: str
    owner: str | None = None


class Interest(_Struct, frozen=True):
    """Ask whether anybody may want some of what the filter matches: the reply's value (quenching)."""

    identity: str
    filter: Filter


Request = (
    Publish
    | PublishAll
    | Subscribe
    | Unsubscribe
    | SubscribePattern
    | UnsubscribePattern
    | Advertise
    | Unadvertise
    | DefineType
    | RemoveType
    | Interest
)


# ---------------------------------------------------------------- messages between brokers


class Contact(_Struct, frozen=True):
    """A broker as others tell of it: its id in the overlay (32 hexadecimal digits), its name, its address."""

    id: str
    name: str
    address: str = ""


class Notify(_Struct, frozen=True):
    """A notification on its way: the event, the broker where it was published, and its number there."""

    event: Event
    origin: str
    sequence: int


class NotifySequence(_Struct, frozen=True):
    """An occurrence of a pattern, for the broker that delegated it."""

    pattern: Pattern
    events: tuple[Event, ...]


class TypeDefinition(_Struct, frozen=True):
    """An event type, as a broker knows it; or as it was, with the version of its removal."""

    event_type: EventType
    is_removed: bool = False


class Reach(_Struct, frozen=True):
    """The servers that the sender now reaches, and no longer, not over the receiver (acyclic networks).

    `to_master`: the receiver is above the sender, in a hierarchy.
    """

    servers: frozenset[str]
    gone: frozenset[str] = frozenset()
    to_master: bool = False


class LinkState(_Struct, frozen=True):
    """The peers of a broker, as it knew them at a version; newer ones win (general peer-to-peer)."""

    origin: str
    version: int
    peers: frozenset[str]


class Subscriptions(_Struct, frozen=True):
    """All that the clients of a broker want, at a version (routing by origin)."""

    origin: str
    version: int
    filters: frozenset[Filter]


class SubscriptionChange(_Struct, frozen=True):
    """What the clients of a broker want in addition, and no longer, since a version (0: since it started)."""

    origin: str
    version: int
    added: frozenset[Filter]
    removed: frozenset[Filter]
    since: int = 0


class Versions(_Struct, frozen=True):
    """Up to which version a broker knows what the clients of others want; its peer sends what is newer."""

    subscriptions: dict[str, int]


# ------------------------------------------------ of the overlay (HERMES 4.4.1)


class Join(_Struct, frozen=True):
    """Routed to the node nearest to a new one's id, gathering contacts on the way (2.3.1)."""

    joiner: Contact
    met: tuple[Contact, ...] = ()


class Contacts(_Struct, frozen=True):
    """Nodes that the sender knows. `asks`: it would like to know the receiver's."""

    sender: Contact
    contacts: tuple[Contact, ...]
    asks: bool = False


class Heartbeat(_Struct, frozen=True):
    """The sender is alive. `asks`: is the receiver?"""

    asks: bool = False


class Farewell(_Struct, frozen=True):
    """The sender leaves the overlay."""


class Route(_Struct, frozen=True):
    """A message on its way to the node nearest to a key; with a number, its sender awaits an answer."""

    key: str
    source: Contact
    message: Message
    number: int = 0
    hops: int = 0


class RouteReply(_Struct, frozen=True):
    """The answer to a routed request, sent directly."""

    number: int
    message: Message


# ------------------------------------------------ of HERMES (4.3.1)


class TypeMessage(_Struct, frozen=True):
    """Add or change an event type at its rendezvous node. The answer: `Definitions`, or a `Refusal`."""

    event_type: EventType


class TypeRemoval(_Struct, frozen=True):
    """Remove an event type at its rendezvous node. The answer: `Definitions`, or a `Refusal`."""

    name: str
    owner: str | None = None


class Lookup(_Struct, frozen=True):
    """Which event type is it? The answer: `Definitions`; and changes are told later on, as meta-events."""

    name: str


class Definitions(_Struct, frozen=True):
    """Event types, parents first; and those that are gone. `replica`: the receiver keeps them for others."""

    event_types: tuple[EventType, ...]
    replica: bool = False
    removed: tuple[EventType, ...] = ()


class Refusal(_Struct, frozen=True):
    """Why the rendezvous node does not accept an event type."""

    error: str


class ChildType(_Struct, frozen=True):
    """For the rendezvous node of a tree: there is a tree below it (subscription inheritance, 4.3.4)."""

    tree: str
    child: str


class AdvertisementMessage(_Struct, frozen=True):
    """What comes from the sender, or no longer comes, in the tree of an event type.

    `uncovered`: with a cancellation, what stands from now on in its place. `is_bridged`, of this and the
    next two: it came from the tree of a replica (4.3.7).
    """

    tree: str
    advertisement: Advertisement
    cancels: bool = False
    is_bridged: bool = False
    uncovered: tuple[Advertisement, ...] = ()


class SubscriptionMessage(_Struct, frozen=True):
    """What the sender wants, or no longer wants, in the tree of an event type."""

    tree: str
    filter: Filter
    by_type: bool = False
    cancels: bool = False
    is_bridged: bool = False
    uncovered: tuple[Filter, ...] = ()


class PublicationMessage(_Struct, frozen=True):
    """An event in the tree of its type or of a supertype, and which subscriptions it is for (4.3.6)."""

    tree: str
    notification: Notify
    by: By
    is_bridged: bool = False


# ------------------------------------------------ of Scribe (HERMES 2.3.2)


class CreateGroup(_Struct, frozen=True):
    """There is to be a group; for its rendezvous point, and those that may take its place."""

    group: str


class JoinGroup(_Struct, frozen=True):
    """The broker before is a child in the tree of a group; routed towards its rendezvous point."""

    group: str


class LeaveGroup(_Struct, frozen=True):
    """The sender is no longer a child in the tree of a group."""

    group: str


class Multicast(_Struct, frozen=True):
    """An event for a group: up to the rendezvous point, then down the tree."""

    group: str
    notification: Notify


Message = (
    Notify
    | NotifySequence
    | Subscribe
    | Unsubscribe
    | SubscribePattern
    | UnsubscribePattern
    | Advertise
    | Unadvertise
    | TypeDefinition
    | Reach
    | LinkState
    | Subscriptions
    | SubscriptionChange
    | Versions
    | Join
    | Contacts
    | Heartbeat
    | Farewell
    | Route
    | RouteReply
    | TypeMessage
    | TypeRemoval
    | Lookup
    | Definitions
    | Refusal
    | ChildType
    | AdvertisementMessage
    | SubscriptionMessage
    | PublicationMessage
    | CreateGroup
    | JoinGroup
    | LeaveGroup
    | Multicast
)


# ---------------------------------------------------------------- inputs


class FromClient(_Struct, frozen=True):
    """A request of a client, with a number that the reply carries back."""

    client: str
    request: Request
    number: int = 0


class FromPeer(_Struct, frozen=True):
    """A message of a connected broker."""

    peer: str
    message: Message


class Forwarded(_Struct, frozen=True):
    """Notifications of a connected broker, in their order."""

    peer: str
    notifications: list[Notify]


class PeerUp(_Struct, frozen=True):
    """A link to another broker is there. `master`: it is the one above, in a hierarchy."""

    peer: str
    master: bool = False


class PeerDown(_Struct, frozen=True):
    """A link to another broker is gone."""

    peer: str


class ClientDown(_Struct, frozen=True):
    """A client is gone, with all that it subscribed to and advertised."""

    client: str


class Timer(_Struct, frozen=True):
    """The time has come that a `SetTimer` named."""

    name: str


class Measured(_Struct, frozen=True):
    """How near a broker is, in seconds or in whatever the driver measures; None: it cannot be reached."""

    peer: str
    proximity: float | None


class Leave(_Struct, frozen=True):
    """The broker is about to leave for good; what it then sends is its farewell."""


Input = FromClient | FromPeer | Forwarded | PeerUp | PeerDown | ClientDown | Timer | Measured | Leave


# ---------------------------------------------------------------- effects


class Send(_Struct, frozen=True):
    """Send a message to a connected broker."""

    peer: str
    message: Message


class Published(_Struct, frozen=True):
    """Events that a client of this broker published, as they are from now on: stamped, and accepted.

    The first effect of a publication: who keeps events keeps them before anybody has them.
    """

    client: str
    events: tuple[Event, ...]


class Recipients(tuple[tuple[str, frozenset[str]], ...]):
    """Clients by name, each with some of its parties. Those that come again are the same object.

    `plan` is the driver's: how it delivers to them.
    """

    plan: Any = None


class Deliver(_Struct, frozen=True):
    """Deliver an event to clients: to each once, for those of its parties that want it."""

    event: Event
    to: Recipients


class DeliverSequence(_Struct, frozen=True):
    """Deliver the events that match a pattern to a client, once, for those of its parties that want them."""

    client: str
    identities: frozenset[str]
    events: tuple[Event, ...]


class Reply(_Struct, frozen=True):
    """What became of a request: done, or why not, with the name of the error; and what was asked for."""

    client: str
    number: int
    error: str | None = None
    code: str | None = None
    value: bool | None = None


class TypeRemoved(_Struct, frozen=True):
    """An event type is gone, and what this broker's clients subscribed to and advertised of it is over."""

    name: str


class SetTimer(_Struct, frozen=True):
    """Give a `Timer` of this name after so many seconds; it replaces one of the same name. None ends it."""

    name: str
    delay: float | None


class Connect(_Struct, frozen=True):
    """Make a link to another broker: a `PeerUp` follows, or a `PeerDown` if it cannot be made.

    Overlays ask for it, where a broker talks to others that nobody has linked it with.
    """

    peer: str
    address: str


class Disconnect(_Struct, frozen=True):
    """End the link to a broker; a `PeerDown` follows."""

    peer: str


class Measure(_Struct, frozen=True):
    """Find out how near a broker is, linked or not; a `Measured` follows."""

    peer: str
    address: str


Effect = (
    Send
    | Published
    | Deliver
    | DeliverSequence
    | Reply
    | TypeRemoved
    | SetTimer
    | Connect
    | Disconnect
    | Measure
)
