"""Messages of the overlay and of the routers on it pass the wire as they are."""

from __future__ import annotations

import pytest

from angelia import Advertisement, Event, EventType, Filter
from angelia.messages import (
    AdvertisementMessage,
    By,
    ChildType,
    Contact,
    Contacts,
    CreateGroup,
    Definitions,
    Farewell,
    Heartbeat,
    Join,
    JoinGroup,
    LeaveGroup,
    Lookup,
    Multicast,
    Notify,
    PublicationMessage,
    Refusal,
    Route,
    RouteReply,
    SubscriptionMessage,
    TypeMessage,
    TypeRemoval,
)
from angelia.overlay import key_of
from angelia.wire import Frames, decode, encode

ME, YOU = Contact(key_of("b1"), "b1", "tcp://127.0.0.1:1"), Contact(key_of("b2"), "b2")
QUOTE = EventType("Quote", {"price": "float"})
NOTE = Notify(Event({"price": 1.5}, type="Quote", id="e1"), "b1", 7)
ALL = Advertisement.parse("true")
CHEAP = Filter.parse("price < 5")

MESSAGES = [
    Join(ME, (YOU,)),
    Contacts(ME, (YOU,), asks=True),
    Heartbeat(asks=True),
    Farewell(),
    Route(key_of("Quote"), ME, Lookup("Quote"), 3, 2),
    Route(key_of("Quote"), ME, TypeRemoval("Quote", "owner"), 4, 2),
    Route(key_of("news"), ME, Multicast("news", NOTE)),
    RouteReply(3, Definitions((QUOTE,), replica=True, removed=(QUOTE,))),
    TypeRemoval("Quote", "shop"),
    RouteReply(3, Refusal("no")),
    TypeMessage(QUOTE),
    ChildType("*", "Quote"),
    AdvertisementMessage("Quote", ALL, cancels=True, uncovered=(Advertisement.parse("x > 1"),)),
    SubscriptionMessage("Quote", CHEAP, by_type=True, uncovered=(CHEAP,)),
    PublicationMessage("Quote", NOTE, By.ATTRIBUTE, is_bridged=True),
    CreateGroup("news"),
    JoinGroup("news"),
    LeaveGroup("news"),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_comes_out_as_it_went_in(message):
    (body,) = Frames().feed(encode(message))
    assert decode(body) == message
