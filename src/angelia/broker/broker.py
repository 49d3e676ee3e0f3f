"""The broker process: a node, and the sockets around it.

All that a node wants done is done here, in the order in which it wants it, in one thread: requests and
messages come out of connections, go through `node.handle`, and its effects go into the queues of
connections. Connections that wait for the slow hold back those who publish, never each other.
"""

from __future__ import annotations

import asyncio
import gc
import hmac
import logging
import os
import secrets
import ssl
import time
from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any

from angelia.broker import status
from angelia.broker.address import Address
from angelia.broker.connection import Connection
from angelia.broker.dispatch import Dispatch, events_in
from angelia.broker.errands import Errands
from angelia.broker.journal import Journal
from angelia.broker.keeping import Keeper
from angelia.broker.links import MAX_LINK_FRAME, Dialler, Link
from angelia.broker.metrics import Metrics
from angelia.broker.session import ClientSession
from angelia.broker.settings import BrokerSettings
from angelia.broker.state import State
from angelia.broker.tls import server_context
from angelia.bus.aio import Client
from angelia.bus.core import Core
from angelia.errors import AngeliaError, BrokerError, LakeError, RequestError, RoutingError, WireError
from angelia.messages import (
    ClientDown,
    Connect,
    DeliverSequence,
    Disconnect,
    Effect,
    FromClient,
    Input,
    Leave,
    Measure,
    PeerDown,
    PeerUp,
    Published,
    Reply,
    SetTimer,
    TypeRemoved,
)
from angelia.node import Node
from angelia.types import EventType, TypeRegistry
from angelia.wire import VERSION, Hello, Welcome, decode

if TYPE_CHECKING:
    from angelia.broker.http import Server

__all__ = ["Broker"]

log = logging.getLogger("angelia.broker")

HELLO_PATIENCE = 5.0  # seconds that somebody has to introduce itself
_COMPATIBLE = ({"hierarchical", "hybrid"},)  # routings whose servers may be linked with each other


class _Inside:
    """The network as clients within this process see it (see `Core`): this broker alone."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.nodes = {broker.name: broker.node}

    @property
    def messages(self) -> int:
        """How many went to peers."""
        return sum(link.sent for link in self._broker.links.values())

    def node(self, name: str) -> Node:
        """The broker's node."""
        return self.nodes[name]

    def run(self, inputs: list[tuple[str, Input]], now: float) -> list[Effect]:
        """Give inputs to the node; returns the effects for clients within this process."""
        inside: list[Effect] = []
        for _, given in inputs:
            inside += self._broker.perform(self._broker.process(given), given)
        return inside


class Broker:
    """A broker with its listening socket: `async with Broker(settings): …`."""

    def __init__(self, settings: BrokerSettings, clock: Callable[[], float] = time.time) -> None:
        self.settings = settings
        self.clock = clock
        self.incarnation = secrets.token_hex(8)
        self.address = settings.address
        self.name = settings.name
        self.started = clock()
        self.clients: dict[str, ClientSession] = {}
        self.links: dict[str, Link] = {}
        self.published = 0
        self.delivered = 0
        self.metrics = Metrics()
        self.dispatch = Dispatch(self)
        self.keeper: Keeper | None = None
        self.state: State | None = None
        self.journal: Journal | None = None
        self._types_told: dict[str, EventType] = {}
        self._types_version = 0
        self.node: Node
        self.core: Core
        self.loop: asyncio.AbstractEventLoop
        self._tokens = settings.read_tokens()
        self._connections: set[Connection] = set()
        self._strangers: dict[Connection, asyncio.TimerHandle] = {}
        self._congested: set[Connection] = set()
        self._unheeded: set[Connection] = set()
        self._server: asyncio.Server | None = None
        self._diallers: list[tuple[Dialler, asyncio.Task[None]]] = []
        self._heart: asyncio.Task[None] | None = None
        self._is_stopping = False
        self._door: Server | None = None

    # ------------------------------------------------ start and stop

    async def start(self) -> None:
        """Listen, and connect to the configured peers."""
        self.loop = asyncio.get_running_loop()
        settings, address = self.settings, self.settings.address
        tls = None
        if settings.tls_cert is not None and settings.tls_key is not None:
            tls = server_context(settings.tls_cert, settings.tls_key, settings.tls_ca)
        try:
            self._server = await self.loop.create_server(
                lambda: Connection(self._hello, self._stranger_lost, self._accepted),
                address.host,
                address.port,
                ssl=tls,
                backlog=1024,
            )
        except OSError as error:
            # The text of uvloop is long; a name that cannot be resolved has a number of its own kind.
            why = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or error
            raise BrokerError(f"cannot listen on {address}: {why}") from None
        port = self._server.sockets[0].getsockname()[1]
        self.address = Address(address.host, port, tls is not None)
        self.name = settings.name or f"{address.host}:{port}"
        where, most = str(self.address), settings.max_types
        records = settings.lake is not None or settings.journal is not None
        self.node = Node(self.name, settings.routing, address=where, records=records, max_types=most)
        if settings.journal is not None:
            self.journal = Journal(settings.journal, self.name, self.clock)
        if settings.lake is not None:
            self.keeper = Keeper(settings.lake, settings.lake_sync, self.node, self.clock)
        if settings.state is not None:
            self.state = State(settings.state)
            self.state.restore_types(self.node.registry)
            self._types_told = {name: self.node.registry.get(name) for name in self.node.registry}
        self._errands = Errands(self)
        self.core = Core(_Inside(self), self.clock)
        status.add_gauges(self)
        gc.freeze()  # what was imported stays: there is no need to look at it again and again
        for text in settings.peers:
            self._dial(Address.parse(text), False)
        if settings.master is not None:
            self._dial(Address.parse(settings.master), True)
        self._heart = self.loop.create_task(self._beat())
        await self._open_door(tls)
        log.info("%s listens on %s, routing %s", self.name, self.address, settings.routing)

    async def _open_door(self, tls: ssl.SSLContext | None) -> None:
        """Serve HTTP, if that is wanted."""
        settings = self.settings
        if settings.http is None:
            return
        from angelia.broker import http

        address = Address.parse(settings.http, 8080)
        limits = http.Settings(
            tokens=tuple(token.decode() for token in self._tokens or ()),
            allowed_origins=tuple(settings.http_origins),
            webhook_targets=tuple(settings.webhook_targets),
            public_url=settings.http_url,
        )
        try:
            self._door = await http.serve(
                http.create_app(self, limits, state=self.state), address.host, address.port, tls=tls
            )
        except OSError as error:
            raise BrokerError(f"cannot serve HTTP on {settings.http}: {error.strerror or error}") from None
        log.info("%s serves HTTP on %s", self.name, self._door.url)

    def background(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something beside, as long as the broker runs."""
        self._errands.start(work)

    def _dial(self, address: Address, is_master: bool) -> None:
        dialler = Dialler(self, address, is_master)
        self._diallers.append((dialler, self.loop.create_task(dialler.run())))

    async def stop(self, reason: str = "shutting down") -> None:
        """Take no more, send what is queued, tell everybody, and close."""
        self._is_stopping = True
        if self._server is not None:
            self._server.close()
        if self._door is not None:
            await self._door.stop()
        self.handle(Leave())
        deadline = self.loop.time() + self.settings.drain
        for connection in self._connections:
            connection.read(False)
        while self.loop.time() < deadline and not all(c.is_drained for c in self._connections):
            await asyncio.sleep(0.01)
        for connection in list(self._connections):
            connection.close(f"{self.name} is {reason}")
        self._errands.stop()
        for task in (*(task for _, task in self._diallers), self._heart):
            if task is not None:
                task.cancel()
        self.core.close()
        while self._connections and self.loop.time() < deadline + 1.0:
            await asyncio.sleep(0.005)
        if self.keeper is not None:
            await self.keeper.close()
        if self.state is not None:
            self.state.close()
        if self.journal is not None:
            self.journal.close()

    async def __aenter__(self) -> Broker:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    # ------------------------------------------------ strangers

    def _accepted(self, connection: Connection) -> None:
        if len(self._connections) >= self.settings.max_connections or self._is_stopping:
            connection.lost = lambda *_: None
            connection.close(f"{self.name} has {len(self._connections)} connections, and takes no more")
            return
        self.expect_hello(connection)

    def expect_hello(self, connection: Connection) -> None:
        """A new connection: the other side is to introduce itself before long."""
        self._connections.add(connection)
        self._strangers[connection] = self.loop.call_later(
            HELLO_PATIENCE, connection.close, f"no Hello within {HELLO_PATIENCE:g} s"
        )

    def _stranger_lost(self, connection: Connection, reason: str) -> None:
        self.forget(connection)
        log.debug("%s is gone: %s", connection.peer_name, reason)

    def forget(self, connection: Connection) -> None:
        """A connection is gone."""
        self._connections.discard(connection)
        self._unheeded.discard(connection)
        self.relieved(connection)
        self._introduced(connection)

    def _introduced(self, connection: Connection) -> None:
        timer = self._strangers.pop(connection, None)
        if timer is not None:
            timer.cancel()

    def _hello(self, connection: Connection, bodies: list[bytes]) -> None:
        hello = decode(bodies[0])
        if not isinstance(hello, Hello):
            raise WireError(f"a connection begins with Hello, not {type(hello).__name__}")
        try:
            self._check_hello(connection, hello)
            welcome = self._client_up if hello.role == "client" else self._peer_up
            welcome(connection, hello)
        except AngeliaError as error:
            log.info("refused %s: %s", connection.peer_name, error)
            connection.close(str(error), retry=isinstance(error, RoutingError))
            return
        self._introduced(connection)
        if len(bodies) > 1 and not connection.is_closing:
            connection.received(connection, bodies[1:])

    def _check_hello(self, connection: Connection, hello: Hello) -> None:
        if hello.version != VERSION:
            raise BrokerError(f"{self.name} speaks version {VERSION} of the protocol, not {hello.version}")
        if "#" in hello.name or len(hello.name) > 255 or not hello.name.isprintable():
            raise BrokerError("a name has at most 255 printable characters, and no '#'")
        if hello.role == "peer" and not hello.name:
            raise BrokerError("a peer needs a name")
        has_certificate = bool(connection.info("peercert"))
        if hello.role == "peer" and self.settings.tls_ca is not None and not has_certificate:
            raise BrokerError("a peer needs a certificate of the authority here")
        if self._tokens is not None and not (hello.role == "peer" and has_certificate):
            given = (hello.token or "").encode()
            if not sum(hmac.compare_digest(given, token) for token in self._tokens):  # all, in equal time
                raise BrokerError("the token is missing or wrong")

    def _welcome(
        self, connection: Connection, max_frame: int, client: str = "", *, is_linked: bool = False
    ) -> None:
        connection.accept(max_frame)
        connection.send(
            Welcome(
                VERSION,
                self.name,
                self.incarnation,
                self.settings.heartbeat,
                max_frame,
                client,
                str(self.address),
                is_linked,
            )
        )

    # ------------------------------------------------ clients

    def _client_up(self, connection: Connection, hello: Hello) -> None:
        name = hello.name or f"client-{secrets.token_hex(4)}"
        old = self.clients.get(name)
        if old is not None and old.incarnation == hello.incarnation:
            old.connection.close("the same client has connected again")
            self._client_lost(old, old.connection, "connected again")
        elif old is not None or name in self.core.sessions:
            raise RequestError(f"there is a client {name!r} at {self.name} already; give each its own name")
        queue, policy = hello.queue or self.settings.queue, hello.policy or self.settings.policy
        if not 1 <= queue <= self.settings.queue or policy not in _POLICIES:
            raise RequestError(
                f"a queue has 1 to {self.settings.queue} places here, and one of the policies "
                f"{', '.join(_POLICIES)}"
            )
        session = ClientSession(self, connection, name, hello.incarnation, queue, policy)
        self.clients[name] = session
        self.dispatch.forget_plans()
        connection.received = session.received
        connection.lost = lambda lost, reason: self._client_lost(session, lost, reason)
        self._welcome(connection, self.settings.max_frame, name)
        session.tell_types(tuple(map(self.node.registry.get, self.node.registry)))

    def _client_lost(self, session: ClientSession, connection: Connection, reason: str) -> None:
        self.forget(connection)
        if self.clients.get(session.name) is session:
            del self.clients[session.name]
            self.dispatch.forget_plans()
            log.debug("client %s is gone: %s", session.name, reason)
            if not self._is_stopping:
                self.handle(ClientDown(session.name))

    def client(self, name: str) -> Client:
        """A client within this process."""
        if name in self.clients:
            raise RequestError(f"there is a client {name!r} already; give each its own name")
        return Client(self.core.session(name))

    # ------------------------------------------------ peers

    def _peer_up(self, connection: Connection, hello: Hello) -> None:
        same = {hello.routing, self.settings.routing}
        if len(same) > 1 and not any(same <= group for group in _COMPATIBLE):
            raise BrokerError(f"the routing of {self.name} is {self.settings.routing}, not {hello.routing}")
        old = self.links.get(hello.name)
        if old is not None and old.incarnation != hello.incarnation:
            old.connection.close("connected again after a restart")
            self._link_lost(old, old.connection, "it was started again")
        self._welcome(connection, MAX_LINK_FRAME, is_linked=hello.name in self.links)
        self.link_up(connection, hello.name, hello.incarnation, hello.name)

    def link_up(
        self, connection: Connection, name: str, incarnation: str, dialled_by: str, *, master: bool = False
    ) -> bool:
        """A broker is at the other end. Whether it is a peer now; if it cannot be, the connection ends.

        A connection that both know stays, and another is refused: what is under way on it would be lost.
        Where two have dialled each other at once, so that each has answered before it was answered, both
        keep the connection of the one whose name is first; on the other one nothing was heard yet.
        """
        self._introduced(connection)
        link = Link(self, connection, name, incarnation, dialled_by)
        old = self.links.get(name)
        if old is not None:
            if old.dialled_by == dialled_by or dialled_by != self.name or self.name > name:
                connection.close(f"{name} and {self.name} are linked already")
                return False
            old.connection.close(f"{name} and {self.name} have another connection")
            self._link_lost(old, old.connection, "both have connected at once")
        self.links[name] = link
        before = connection.lost
        connection.received = link.received

        def lost(gone: Connection, reason: str) -> None:
            self._link_lost(link, gone, reason)
            before(gone, reason)

        connection.lost = lost
        try:
            self.handle(PeerUp(name, master))
        except RoutingError as error:
            del self.links[name]
            connection.lost = before
            connection.close(str(error))
            return False
        log.info("%s is linked with %s", self.name, name)
        return True

    def _link_lost(self, link: Link, connection: Connection, reason: str) -> None:
        self.forget(connection)
        if self.links.get(link.name) is link:
            del self.links[link.name]
            log.info("%s has lost its link with %s: %s", self.name, link.name, reason)
            if not self._is_stopping:
                self.handle(PeerDown(link.name))

    # ------------------------------------------------ the node

    def handle(self, given: Input) -> None:
        """Give the node an input, and do what it wants."""
        inside = self.perform(self.process(given), given)
        if inside:
            self.core.deliver(inside)

    def process(self, given: Input) -> list[Effect]:
        """The effects of an input, timed and counted if it is about events."""
        events = events_in(given)
        if not events:
            return self.node.handle(given, self.clock())
        started = time.perf_counter()
        effects = self.node.handle(given, self.clock())
        self.metrics.observe_match(time.perf_counter() - started, len(events))
        return effects

    def request(self, given: FromClient) -> Reply | None:
        """Have a request of a client done, all but the reply, which is returned.

        In an overlay a request may wait for what other brokers know: then there is none yet.
        """
        effects = self.process(given)
        reply = effects.pop() if effects and isinstance(effects[-1], Reply) else None
        assert reply is None or isinstance(reply, Reply)
        if reply is not None and reply.error is not None:
            return reply
        try:
            inside = self.perform(effects, given)
        except LakeError as error:
            return Reply(given.client, given.number, str(error), type(error).__name__)
        if inside:
            self.core.deliver(inside)
        return reply

    def perform(self, effects: Iterable[Effect], given: Input) -> list[Effect]:
        """Do what the node wants; returns the effects for clients within this process."""
        if self.journal is not None:
            effects = list(effects)
            self.journal.note(given, effects, self.links)
        inside = self.dispatch.perform(effects, given)
        self._tell_types()
        return inside

    def perform_rarer(self, effect: Effect) -> list[Effect]:
        """Do what has nothing to do with single events; returns the effect if it is not for here."""
        if isinstance(effect, SetTimer | Connect | Disconnect | Measure):
            self._errands.run(effect)
            return []
        if isinstance(effect, Published):
            if self.keeper is not None:
                self.keeper.append(effect.events)
            return []
        if isinstance(effect, TypeRemoved):
            for each in self.clients.values():
                each.tell_removed(effect.name)
            return [effect]
        session = self.clients.get(effect.client) if isinstance(effect, Reply | DeliverSequence) else None
        if session is None:
            return [effect]
        if isinstance(effect, Reply):
            session.answered(effect)
        elif isinstance(effect, DeliverSequence):
            session.deliver_sequence(effect.identities, effect.events)
            self.delivered += 1
        return []

    def _tell_types(self) -> None:
        """Tell clients of event types that are new, or not as they were."""
        registry = self.node.registry
        if registry.version == self._types_version:
            return
        self._types_version = registry.version
        known = {name: registry.get(name) for name in registry}
        news = tuple(each for name, each in known.items() if self._types_told.get(name) != each)
        if self.state is not None:
            self.state.keep_types(news, self._types_told.keys() - known.keys())
        self._types_told = known
        for session in self.clients.values():
            session.tell_types(news)

    # ------------------------------------------------ the slow

    def congested(self, connection: Connection) -> None:
        """Somebody is slow: hold back who publishes, but not the slow one itself, whom it may answer."""
        if connection not in self._congested:
            self._congested.add(connection)
            self._hold_back()

    def relieved(self, connection: Connection) -> None:
        """Somebody is slow no longer."""
        if connection in self._congested:
            self._congested.discard(connection)
            self._hold_back()

    def heed(self, connection: Connection, wanted: bool) -> None:
        """Read on from somebody, or not until what it asked for is answered."""
        (self._unheeded.discard if wanted else self._unheeded.add)(connection)
        self._hold_back()

    def _hold_back(self) -> None:
        for connection in self._connections:
            connection.read(connection not in self._unheeded and not self._congested - {connection})

    # ------------------------------------------------ signs of life

    async def _beat(self) -> None:
        """Give signs of life, and notice who gives none, takes nothing, or is gone."""
        heartbeat, silence = self.settings.heartbeat, self.settings.silence
        now = self.loop.time()
        while True:
            before = now
            await asyncio.sleep(heartbeat)
            now, idle = self.loop.time(), heartbeat / 2
            was_absent = now - before > 2 * heartbeat  # and has not yet read what others sent meanwhile
            for connection in list(self._connections):
                is_silent = connection.listens and now - connection.last_received > silence
                if is_silent and not was_absent:
                    connection.abort(f"no sign of life for {silence:g} s")
                elif connection not in self._strangers and now - connection.last_sent > idle:
                    connection.ping()
            for link in list(self.links.values()):
                if link.connection in self._congested and now - link.progress > self.settings.stall:
                    link.connection.abort(f"{link.name} has taken nothing for {self.settings.stall:g} s")

    # ------------------------------------------------ what there is

    @property
    def registry(self) -> TypeRegistry:
        """The event types that it knows."""
        return self.node.registry

    @property
    def needs_token(self) -> bool:
        """Whether clients have to prove who they are."""
        return self._tokens is not None

    def is_healthy(self) -> bool:
        """Whether it takes events."""
        return not self._is_stopping and self._server is not None and self._server.is_serving()

    def topology(self) -> dict[str, Any]:
        """The broker, its peers, and what it knows of the network beyond them."""
        return status.topology(self)

    def describe(self) -> dict[str, Any]:
        """The broker as numbers, for people."""
        http = self._door.url if self._door is not None else None
        return status.describe(self, http, (dialler for dialler, _ in self._diallers))


_POLICIES = ("block", "drop_oldest", "drop_newest", "disconnect")
