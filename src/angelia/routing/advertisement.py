"""Acyclic peer-to-peer servers with advertisement forwarding (SIENA 5.2.4), and pattern delegation (5.3).

Advertisements go to all neighbours but those that know of a covering one, and subscriptions only to
neighbours from which a relevant advertisement came. A party may publish only what it has advertised
(3.5). By its advertisements a server knows from where each filter of a pattern is available, and leaves
what comes from a single neighbour to that neighbour: patterns are assembled upstream.

Departure from the paper: of a pattern only its beginning, or the whole, is delegated. Of f·g·h, the
paper would also delegate g·h. But the neighbour's monitor knows nothing of f: it may have taken a g from
before the f, ignore the g that follows, and report what cannot be used, so that a match is lost. A
delegated beginning loses nothing. What it finds may differ from what one matcher would: a second f·g may
have begun before the h that completed the first, as in the paper's (f·g)·h.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Any

from angelia.errors import RoutingError
from angelia.event import Event
from angelia.filter import Advertisement, Filter, advertisement_poset
from angelia.messages import (
    Advertise,
    Message,
    NotifySequence,
    Send,
    SubscribePattern,
    Unadvertise,
    UnsubscribePattern,
)
from angelia.pattern import Pattern
from angelia.routing.base import Interface, Local, Party, Peer, Routed
from angelia.routing.forwarding import Change, Collector, Forwarding, Outcome, pieces
from angelia.routing.monitors import Factor
from angelia.routing.peer import SubscriptionForwarding, not_on_any_spanning_tree, once
from angelia.types import TypeRegistry

__all__ = ["AdvertisementForwarding"]


class AdvertisementForwarding(SubscriptionForwarding):
    """A server of an acyclic peer-to-peer network with advertisement forwarding."""

    def __init__(self, name: str, registry: TypeRegistry) -> None:
        super().__init__(name, registry)
        self.advertisements: Forwarding[Advertisement] = Forwarding(
            lambda: advertisement_poset(registry), lambda _: self.peers, not_on_any_spanning_tree
        )
        self._uncovered_ads: Collector[Advertisement] = Collector()
        self.delegated: set[tuple[str, Pattern]] = set()  # what each neighbour was asked to recognise
        self._handlers |= {
            Advertise: lambda peer, message: self._advertise(peer, message.advertisement),
            Unadvertise: self._on_unadvertise,
            SubscribePattern: lambda peer, message: self.subscribe_pattern(peer, message.pattern),
            UnsubscribePattern: self._on_unsubscribe_pattern,
        }

    def neighbors_of(self, filter: Filter) -> Iterable[str]:  # noqa: A002 - what it is
        """The neighbours that advertised something relevant to the subscription."""
        return {
            who.name for who in self.advertisers(filter) if isinstance(who, Peer) and who.name in self.peers
        }

    def advertisers(self, filter: Filter) -> set[Interface]:  # noqa: A002
        """Who advertised something relevant to a filter."""
        return {
            who
            for advertisement in self.advertisements.poset
            if advertisement.overlaps(filter, self.registry)
            for who in self.advertisements.subscribers(advertisement)
        }

    # ------------------------------------------------ advertisements

    def advertise(self, party: Party, advertisement: Advertisement) -> list[Send]:
        """A local party advertises."""
        return self._advertise(party, advertisement)

    def unadvertise(self, party: Party, advertisement: Advertisement) -> list[Send]:
        """A local party cancels all its advertisements that this one covers."""
        return self._unadvertise(party, advertisement)

    def drop(self, party: Local) -> list[Send]:
        """Cancel all subscriptions and advertisements of a local party."""
        return [*super().drop(party), *self._readvertise(self.advertisements.remove_all(party))]

    def _advertise(self, who: Interface, advertisement: Advertisement) -> list[Send]:
        return self._readvertise(self.advertisements.add(who, advertisement))

    def _unadvertise(
        self, who: Interface, advertisement: Advertisement, uncovered: Iterable[Advertisement] = ()
    ) -> list[Send]:
        return self._readvertise(self.advertisements.remove(who, advertisement, uncovered))

    def _on_unadvertise(self, peer: Peer, message: Unadvertise) -> list[Send]:
        uncovered = self._uncovered_ads.add(peer.name, message.uncovered, message.more)
        return [] if uncovered is None else self._unadvertise(peer, message.advertisement, uncovered)

    def _readvertise(self, outcome: Outcome[Advertisement]) -> list[Send]:
        told = self._tell_advertisements(outcome.changes)
        return [*told, *self._relevant([*outcome.added, *outcome.dropped])]

    def _relevant(self, advertisements: list[Advertisement]) -> list[Send]:
        """Forward anew the subscriptions that a change of advertisements concerns.

        To them, an advertiser that appears or goes is a neighbour that connects or disconnects.
        """
        if not advertisements:
            return []
        concerned = [
            item
            for item in self.subscriptions.poset
            if any(advertisement.overlaps(item, self.registry) for advertisement in advertisements)
        ]
        return [*self._tell(self.subscriptions.refresh(concerned)), *self._factor_anew(self.monitors)]

    def _tell_advertisements(self, changes: list[Change[Advertisement]]) -> list[Send]:
        return [
            Send(peer, Advertise(self.name, item) if added else Unadvertise(self.name, item, *piece))
            for peer, item, added, uncovered in changes
            if peer in self.peers
            for piece in pieces(uncovered)
        ]

    def check_publications(self, party: Party, events: Sequence[Event]) -> None:
        """Refuse an event that its publisher has not advertised (3.5)."""
        offers = self.advertisements.of(party)
        for event in events:
            if not any(offer.advertises(event, self.registry) for offer in offers):
                raise RoutingError(f"{party.identity} has not advertised this event; advertise it first")

    def interest(self, filter: Filter) -> bool:  # noqa: A002
        """Whether a subscription is known that overlaps; none is, where nobody has advertised the like."""
        here = any(isinstance(who, Party) for who in self.advertisers(filter))
        return not here or super().interest(filter)

    # ------------------------------------------------ patterns

    def factored(self, pattern: Pattern) -> tuple[Factor, ...]:
        """The beginning that comes from a single neighbour, as one factor, and the other filters (5.3.3)."""
        filters = pattern.filters
        source = self._single_source(filters[0])
        if source is None or Peer(source) in self.monitors.subscribers(pattern):
            return super().factored(pattern)
        run = len(list(takewhile(lambda item: self._single_source(item) == source, filters)))
        if run == 1:
            return super().factored(pattern)
        return (Factor(Pattern(filters[:run]), source), *(Factor(Pattern([item])) for item in filters[run:]))

    def _single_source(self, filter: Filter) -> str | None:  # noqa: A002
        """The neighbour from which alone a filter is available."""
        advertisers = self.advertisers(filter)
        only = next(iter(advertisers)) if len(advertisers) == 1 else None
        return only.name if isinstance(only, Peer) else None

    def available(self) -> Mapping[Advertisement | Pattern, frozenset[str]]:
        """The available-patterns table (5.3.1): advertisements and processed patterns, with providers."""
        table: dict[Advertisement | Pattern, set[str]] = {
            item: {who.name for who in self.advertisements.subscribers(item) if isinstance(who, Peer)}
            for item in self.advertisements.poset
        }
        for peer, pattern in self.delegated:
            table.setdefault(pattern, set()).add(peer)
        for pattern in self.monitors:
            table.setdefault(pattern, {self.name})
        return {item: frozenset(providers) for item, providers in table.items()}

    def _watch(self, pattern: Pattern) -> list[Send]:
        return [*super()._watch(pattern), *self._delegate()]

    def _forget_patterns(self, who: Party | Peer, patterns: Iterable[Pattern]) -> list[Send]:
        patterns = list(patterns)
        sends = super()._forget_patterns(who, patterns)
        return [*sends, *self._factor_anew(p for p in patterns if self.monitors.subscribers(p))]

    def _factor_anew(self, patterns: Iterable[Pattern]) -> list[Send]:
        """What is available from where has changed, or who asks for the patterns."""
        sends = [
            send for pattern in patterns for send in super(AdvertisementForwarding, self)._watch(pattern)
        ]
        return [*sends, *self._delegate()]

    def _delegate(self) -> list[Send]:
        """Ask the neighbours for what is left to them now, and no longer for what is not."""
        before, self.delegated = self.delegated, self.monitors.delegated()
        new = [Send(peer, SubscribePattern(self.name, p)) for peer, p in self.delegated - before]
        old = [Send(peer, UnsubscribePattern(self.name, p)) for peer, p in before - self.delegated]
        return sorted([*old, *new], key=lambda send: (send.peer, str(send.message)))

    def _on_unsubscribe_pattern(self, peer: Peer, message: UnsubscribePattern) -> list[Send]:
        held = [message.pattern] if peer in self.monitors.subscribers(message.pattern) else []
        return self._forget_patterns(peer, held)

    def receive(self, peer: str, message: Message) -> Routed:
        """Process a message of a neighbour."""
        if isinstance(message, NotifySequence):
            self.check_peer(peer)
            return self._occurred(self.monitors.hear(peer, message.pattern, message.events))
        return super().receive(peer, message)

    # ------------------------------------------------ the network

    def peer_up(self, peer: str, master: bool) -> list[Send]:
        """Connect a neighbour and forward the advertisements to it."""
        reach = super().peer_up(peer, master)
        return [*reach, *self._tell_advertisements(self.advertisements.refresh())]

    def peer_down(self, peer: str) -> list[Send]:
        """Disconnect a neighbour: it no longer advertises, subscribes, or recognises patterns."""
        sends = super().peer_down(peer)
        self.advertisements.forget(peer)
        self._uncovered_ads.forget(peer)
        sends += self._readvertise(self.advertisements.remove_all(Peer(peer)))
        sends += self._forget_patterns(Peer(peer), self.monitors.of(Peer(peer)))
        return [send for send in sends if send.peer != peer]

    def types_changed(self) -> list[Send]:
        """An event type became known or changed."""
        changes = self._tell_advertisements(self.advertisements.rebuild())
        typed = [item for item in self.advertisements.poset if item.type is not None]
        again = self._tell_advertisements(self.advertisements.again(typed))
        return [*once(changes, again), *super().types_changed(), *self._factor_anew(self.monitors)]

    def state(self) -> Mapping[str, Any]:
        """The subscriptions and advertisements with their subscribers, advertisers and forwards."""
        return {
            **super().state(),
            "advertisements": self.advertisements.table(),
            "available": self.available(),
        }
