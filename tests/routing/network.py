"""A network of nodes that runs synchronously, and the invariants that hold whenever it is at rest.

Nothing is under way between two requests, so that what a server forwarded is what its neighbour
holds, and Equation (1) of SIENA 5.2.3.3, computed naively, is what every server has forwarded.
"""

from __future__ import annotations

from collections import Counter, deque

from angelia import Advertisement, Event, EventType, Filter
from angelia.errors import RoutingError
from angelia.messages import (
    Advertise,
    ClientDown,
    DefineType,
    Deliver,
    DeliverSequence,
    FromClient,
    FromPeer,
    PeerDown,
    PeerUp,
    Publish,
    Reply,
    Send,
    Subscribe,
    SubscribePattern,
    Unadvertise,
    Unsubscribe,
    UnsubscribePattern,
)
from angelia.node import Node
from angelia.pattern import Pattern
from angelia.routing import (
    ROUTERS,
    AdvertisementForwarding,
    GeneralPeer,
    Monitor,
    Party,
    Peer,
    Router,
    SubscriptionForwarding,
)
from angelia.routing.overlay import OverlayRouter

# Brokers of an overlay link themselves; `test_hermes.py` and `test_scribe.py` are about those.
ALL = tuple(name for name in ROUTERS if not issubclass(ROUTERS[name], OverlayRouter))
CYCLIC = ("flooding", "subscription_flooding", "general")
FORWARDING = tuple(name for name in ALL if issubclass(ROUTERS[name], SubscriptionForwarding))


class RefusedError(Exception):
    """What a reply said."""


class Network:
    """Nodes by name. Every party is its own client: `net.subscribe("b1", "ann", "x > 5")`."""

    def __init__(
        self,
        routing: str,
        *edges: tuple[str, str],
        nodes: tuple[str, ...] = (),
        gateways: tuple[str, ...] = (),
    ) -> None:
        self.routing = routing
        self.gateways = {*gateways}
        self.now = 1_000.0
        self.nodes: dict[str, Node] = {}
        self.links: set[frozenset[str]] = set()
        self.sent: list[tuple[str, str, object]] = []
        self.refusals: list[str] = []
        self._queue: deque[tuple[str, FromPeer]] = deque()
        self._delivered: list[Deliver] = []
        for name in dict.fromkeys([*nodes, *(end for edge in edges for end in edge)]):
            self.add(name)
        for below, above in edges:
            self.connect(below, above)

    # ------------------------------------------------ the network

    def add(self, name: str) -> None:
        """Start a node, anew if there was one."""
        self.nodes[name] = Node(name, self.routing)

    def connect(self, a: str, b: str, master: bool | None = None) -> None:
        """Connect two nodes; in a hierarchy, the second is the master of the first."""
        if master is None:
            master = self.routing in ("hierarchical", "hybrid") and not {a, b} <= self.gateways
        self.links.add(frozenset((a, b)))
        for name, peer, above in ((a, b, master), (b, a, False)):
            self._carry_out(name, self._handle(name, PeerUp(peer, above)))
        self._run()

    def disconnect(self, *edge: str) -> None:
        """Take the link between two nodes away; what is under way on it is lost."""
        self._take_away([frozenset(edge)])

    def crash(self, name: str) -> list[str]:
        """A node goes without a word, with all its state; returns whom it was connected with."""
        del self.nodes[name]
        links = [link for link in self.links if name in link]
        self._take_away(links)
        return sorted(min(link - {name}) for link in links)

    def _take_away(self, links: list[frozenset[str]]) -> None:
        self.links.difference_update(links)
        for name, peer in [(a, b) for link in links for a, b in (sorted(link), sorted(link)[::-1])]:
            if name in self.nodes:
                self._carry_out(name, self._handle(name, PeerDown(peer)))
        self._run()

    def component(self, name: str) -> set[str]:
        """The nodes that a node is connected with, over others or not."""
        found, front = {name}, [name]
        while front:
            at = front.pop()
            new = {end for link in self.links if at in link for end in link} - found
            found |= new
            front.extend(new)
        return found

    # ------------------------------------------------ requests

    def request(self, at: str, request, client: str | None = None):
        """Give a node a request, run all that follows, and return what was delivered."""
        self._delivered = []
        effects = self._handle(at, FromClient(client or request.identity, request))
        replies = [effect for effect in effects if isinstance(effect, Reply)]
        assert len(replies) == 1
        if replies[0].error is not None:
            assert effects == replies, "a refused request has no other effect"
            raise RefusedError(replies[0].error)
        self._carry_out(at, effects)
        self._run()
        return self._delivered

    def lose(self, at: str, request) -> None:
        """Give a node a request, and lose all messages that it sends."""
        self._handle(at, FromClient(request.identity, request))

    def subscribe(self, at: str, party: str, text: str) -> None:
        self.request(at, Subscribe(party, Filter.parse(text)))

    def unsubscribe(self, at: str, party: str, text: str) -> None:
        self.request(at, Unsubscribe(party, Filter.parse(text)))

    def subscribe_pattern(self, at: str, party: str, text: str) -> None:
        self.request(at, SubscribePattern(party, Pattern.parse(text)))

    def unsubscribe_pattern(self, at: str, party: str, text: str) -> None:
        self.request(at, UnsubscribePattern(party, Pattern.parse(text)))

    def advertise(self, at: str, party: str, text: str) -> None:
        self.request(at, Advertise(party, Advertisement.parse(text)))

    def unadvertise(self, at: str, party: str, text: str) -> None:
        self.request(at, Unadvertise(party, Advertisement.parse(text)))

    def define(self, at: str, event_type: EventType) -> None:
        self.request(at, DefineType("types", event_type))

    def publish(self, at: str, party: str, type: str | None = None, **attributes) -> list[str]:
        """The parties that got the event; each once, or the network is wrong."""
        return received(self.request(at, Publish(party, Event(attributes, type=type))))

    def sequences(self, at: str, party: str, **attributes) -> dict[str, list[tuple[Event, ...]]]:
        """The sequences that an event completes, for each party that got them."""
        return sequences(self.request(at, Publish(party, Event(attributes))))

    def leave(self, at: str, client: str) -> None:
        """A client is gone."""
        self._carry_out(at, self._handle(at, ClientDown(client)))
        self._run()

    # ------------------------------------------------ running

    def _handle(self, name: str, given):
        self.now += 0.001
        return self.nodes[name].handle(given, self.now)

    def _carry_out(self, at: str, effects) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                assert effect.peer in self.nodes[at].router.peers, f"{at} sends to a stranger: {effect}"
                self.sent.append((at, effect.peer, effect.message))
                self._queue.append((effect.peer, FromPeer(at, effect.message)))
            elif not isinstance(effect, Reply):
                self._delivered.append(effect)

    def _run(self) -> None:
        while self._queue:
            name, given = self._queue.popleft()
            if frozenset((name, given.peer)) not in self.links:
                continue
            try:
                effects = self._handle(name, given)
            except RoutingError as error:  # what a broker does with a peer that it cannot accept
                self.refusals.append(str(error))
                self.disconnect(name, given.peer)
                continue
            self._carry_out(name, effects)

    def messages(self, kind: type) -> list[tuple[str, str]]:
        """The ways of all messages of a kind since `sent` was cleared."""
        return [(sender, receiver) for sender, receiver, message in self.sent if isinstance(message, kind)]

    def told(self, sender: str, receiver: str) -> list[str]:
        """What one node told another of subscriptions since `sent` was cleared.

        `+ filter`, `- filter`, and `- filter + filter` where one message has both.
        """
        return [
            " ".join(_signed(message))
            for a, b, message in self.sent
            if (a, b) == (sender, receiver) and isinstance(message, Subscribe | Unsubscribe)
        ]

    def table(self, name: str) -> dict[str, tuple[set[str], set[str]]]:
        """The subscriptions of a node, as text, each with the names of its subscribers and forwards."""
        return {
            str(item): ({label(who) for who in subscribers}, set(forwards))
            for item, (subscribers, forwards) in self.nodes[name].state()["subscriptions"].items()
        }

    # ------------------------------------------------ invariants

    def check(self) -> None:
        """Every invariant of a network at rest."""
        assert not self._queue
        for name, node in self.nodes.items():
            neighbors = {next(iter(link - {name})) for link in self.links if name in link}
            assert set(node.router.peers) == neighbors
            self._check_patterns(node.router)
            if isinstance(node.router, SubscriptionForwarding):
                self._check_forwarding(node.router)
            if isinstance(node.router, GeneralPeer):
                self._check_general(name, node.router)

    def _check_patterns(self, router: Router) -> None:
        """Monitors ask for what their factors need and no more; who was delegated a pattern has it."""
        held = {
            (name, p) for name in router.peers for p in self.nodes[name].router.monitors.of(Peer(router.name))
        }
        assert router.monitors.delegated() == held == getattr(router, "delegated", set())
        forwarding = getattr(router, "subscriptions", None) or getattr(router, "local", None)
        of = forwarding.of if forwarding else router.interests.of
        for pattern, (subscribers, factors) in router.monitors.table().items():
            assert subscribers
            assert factors == router.factored(pattern)
            assert [f for factor in factors for f in factor.pattern.filters] == [*pattern.filters]
            needed = [factor.pattern.filters[0] for factor in factors if factor.delegate is None]
            asked = of(Monitor(pattern))
            assert all(any(a.covers(n, router.registry) for a in asked) for n in needed)
            assert all(any(a.covers(n, router.registry) for n in needed) for a in asked)

    def _check_forwarding(self, router: SubscriptionForwarding) -> None:
        registry = router.registry
        table = router.subscriptions.table()
        assert router.interests.table() == {item: subscribers for item, (subscribers, _) in table.items()}
        check_equation(table, router.neighbors_of, registry)
        others = {name: self.nodes[name].router for name in router.peers}
        for name, other in others.items():
            held = {i for i, (who, _) in other.subscriptions.table().items() if Peer(router.name) in who}
            assert equivalent({i for i, (_, to) in table.items() if name in to}, held, registry)
        if isinstance(router, AdvertisementForwarding):
            table = router.advertisements.table()
            check_equation(table, lambda _: router.peers, registry)
            for name, other in others.items():
                theirs = other.advertisements.table()
                held = {i for i, (who, _) in theirs.items() if Peer(router.name) in who}
                assert equivalent({i for i, (_, to) in table.items() if name in to}, held, registry)

    def _check_general(self, name: str, router: GeneralPeer) -> None:
        assert router.wanted[name].filters == router.exported()
        for other in self.component(name):
            theirs = self.nodes[other].router
            assert router.links[other] == theirs.links[other]
            assert router.wanted.get(other, theirs.wanted[other]) == theirs.wanted[other]
        wanted = {
            (item, Peer(origin))
            for origin, w in router.wanted.items()
            if origin != name
            for item in w.filters
        }
        local = {(item, who) for item in router.local.poset for who in router.local.subscribers(item)}
        interests = {(item, who) for item, whole in router.interests.table().items() for who in whole}
        assert interests == wanted | local

    def check_empty(self) -> None:
        """Nothing is left of parties and what they asked for."""
        self.check()
        for node in self.nodes.values():
            state = dict(node.state())
            assert state["parties"] == {}
            assert state["subscriptions"] == {}
            assert state["patterns"] == {}
            assert state.get("advertisements", {}) == {}
            assert not any(state.get("wanted", {}).values())


def _signed(message: Subscribe | Unsubscribe) -> list[str]:
    if isinstance(message, Subscribe):
        return [f"+ {message.filter}"]
    return [f"- {message.filter}", *(f"+ {item}" for item in message.uncovered)]


def label(who) -> str:
    """The name of a subscriber; of a monitor, its pattern."""
    return who.name if isinstance(who, Peer) else who.identity if isinstance(who, Party) else str(who.pattern)


def received(delivered) -> list[str]:
    """The parties of deliveries, sorted; none may be there twice."""
    to = [pair for effect in delivered if isinstance(effect, Deliver) for pair in effect.to]
    counts = Counter(identity for _, identities in to for identity in identities)
    clients = Counter(client for client, _ in to)
    assert all(n == 1 for n in (*counts.values(), *clients.values())), counts
    return sorted(counts)


def sequences(delivered) -> dict[str, list[tuple[Event, ...]]]:
    """The sequences of deliveries by party; none may be there twice."""
    found: dict[str, list[tuple[Event, ...]]] = {}
    for effect in delivered:
        if isinstance(effect, DeliverSequence):
            for identity in effect.identities:
                assert effect.events not in found.get(identity, []), "delivered twice"
                found.setdefault(identity, []).append(effect.events)
    return found


def check_equation(table, neighbors_of, registry) -> None:
    """forwards(f) = neighbors − NST(f) − ⋃ forwards(f') over all f' that cover f (Equation 1)."""
    for item, (subscribers, forwards) in table.items():
        assert subscribers
        above = [o for o in table if o != item and o.covers(item, registry)]
        assert not any(item.covers(other, registry) for other in above), "equivalent filters stand apart"
        only = next(iter(subscribers)) if len(subscribers) == 1 else None
        nst = {only.name} if isinstance(only, Peer) else set()
        blocked = set().union(*(table[other][1] for other in above))
        assert forwards == set(neighbors_of(item)) - nst - blocked, str(item)
        for other in above:
            twice = subscribers & table[other][0]
            assert not twice, f"{twice} hold {item} and {other}, which covers it"


def equivalent(some, others, registry) -> bool:
    """Whether two sets of filters are the same, but for how a filter is written."""
    return all(
        any(item.covers(other, registry) and other.covers(item, registry) for other in there)
        for here, there in ((some, others), (others, some))
        for item in here
    )
