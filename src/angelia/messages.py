"""Every request, message, input and effect of a node, on one page.

A *request* comes from a client: the interface functions of SIENA's Table I, each with the identity
of the party that makes it. A *message* goes from broker to broker. An *input* is what a node is
given, together with the time; an *effect* is what it wants done. All are immutable.
"""

from __future__ import annotations

import msgspec

from angelia.event import Event
from angelia.filter import Advertisement, Filter
from angelia.pattern import Pattern
from angelia.types import EventType

__all__ = [
    "Advertise",
    "ClientDown",
    "Connect",
    "Contact",
    "DefineType",
    "Deliver",
    "DeliverSequence",
    "Disconnect",
    "Effect",
    "Forwarded",
    "FromClient",
    "FromPeer",
    "Input",
    "Interest",
    "Leave",
    "LinkState",
    "Measure",
    "Measured",
    "Message",
    "Notify",
    "NotifySequence",
    "PeerDown",
    "PeerUp",
    "Publish",
    "PublishAll",
    "Published",
    "Reach",
    "Reply",
    "Request",
    "Send",
    "SetTimer",
    "Subscribe",
    "SubscribePattern",
    "SubscriptionChange",
    "Subscriptions",
    "Timer",
    "TypeDefinition",
    "Unadvertise",
    "Unsubscribe",
    "UnsubscribePattern",
    "Versions",
]


class _Struct(msgspec.Struct, frozen=True, tag=True):
    """What all of these are."""


# ---------------------------------------------------------------- requests (SIENA, Table I)


class Publish(_Struct, frozen=True):
    """Publish an event on behalf of an object of interest."""

    identity: str
    event: Event


class PublishAll(_Struct, frozen=True):
    """Publish several events in their order: all of them, or none if one is refused."""

    identity: str
    events: tuple[Event, ...]


class Subscribe(_Struct, frozen=True):
    """Subscribe an interested party. Between brokers, the party is the sending broker."""

    identity: str
    filter: Filter


class Unsubscribe(_Struct, frozen=True):
    """Cancel all subscriptions of the party that the filter covers (SIENA 3.7).

    `uncovered`: between brokers, the subscriptions that stand from now on in its place. They are in the
    same message, so that there is no moment at which neither stands. If they are too many for one, all
    messages but the last say that there is `more`, and are only kept until then.
    """

    identity: str
    filter: Filter
    uncovered: tuple[Filter, ...] = ()
    more: bool = False


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
    """An event type, as a broker knows it."""

    event_type: EventType


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


class Deliver(_Struct, frozen=True):
    """Deliver an event to a client, once, for those of its parties that want it."""

    client: str
    identities: frozenset[str]
    event: Event


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


Effect = Send | Published | Deliver | DeliverSequence | Reply | SetTimer | Connect | Disconnect | Measure
