"""A door on a real port, over a bus in this process; and little servers for webhooks to call."""

import asyncio
import contextlib
import functools
import json
import ssl
from datetime import UTC, datetime, timedelta

import httpx
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from angelia import Bus
from angelia.broker.http import Outside, Settings, create_app, serve
from angelia.broker.metrics import Metrics
from angelia.testing import VirtualClock

LOCAL = ("127.0.0.0/8",)


class BusService:
    """A bus, as what the door takes for a broker."""

    def __init__(self, bus):
        self.bus = bus
        self.name = "b1"
        self.metrics = Metrics()
        self.healthy = True

    @property
    def registry(self):
        return self.bus.registry

    def client(self, name):
        return self.bus.client(name)

    def topology(self):
        return {"broker": self.name, "peers": [], "brokers": list(self.bus.brokers)}

    def is_healthy(self):
        return self.healthy


class Opened:
    """A door, its bus, and an HTTP client for it."""

    def __init__(self, bus, service, server, http):
        self.bus = bus
        self.service = service
        self.server = server
        self.url = server.url
        self.port = server.port
        self.http = http
        self.door = server._door


@contextlib.asynccontextmanager
async def door(outside=None, *, bus=None, **settings):
    async with bus or Bus() as bus:
        service = BusService(bus)
        app = create_app(service, Settings(**settings), outside or Outside())
        async with (
            await serve(app) as server,
            httpx.AsyncClient(base_url=server.url, trust_env=False, timeout=10) as http,
        ):
            yield Opened(bus, service, server, http)


def asynchronous(test):
    """A test that is a coroutine; none may take long."""

    @functools.wraps(test)
    def wrapper(*arguments, **named):
        async def limited():
            async with asyncio.timeout(30):
                return await test(*arguments, **named)

        return asyncio.run(limited())

    return wrapper


def cloudevent(**changes):
    """A CloudEvent in the JSON format; None leaves an attribute out."""
    base = {"specversion": "1.0", "id": "1", "source": "/tests", "type": "test.Event", "data": {"x": 1}}
    return {name: value for name, value in (base | changes).items() if value is not None}


STRUCTURED = {"Content-Type": "application/cloudevents+json"}
BATCH = {"Content-Type": "application/cloudevents-batch+json"}


async def post(opened, document, **headers):
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    return await opened.http.post("/events", content=body, headers={**STRUCTURED, **headers})


async def eventually(condition, timeout=15.0):
    """Wait until something is so that other tasks bring about."""
    async with asyncio.timeout(timeout):
        while not condition():
            await asyncio.sleep(0.002)


class Sse:
    """A reader of server-sent events that does not rely on our own code."""

    def __init__(self, response):
        self._lines = response.aiter_lines()

    async def next(self):
        """The next event, as a dictionary of its fields; comments are under the key None."""
        found = {}
        async for line in self._lines:
            if not line:
                if found:
                    return found
                continue
            name, _, value = line.partition(":")
            found.setdefault(name or None, value.removeprefix(" "))
        return None


@contextlib.asynccontextmanager
async def sse(opened, wanted=None, last_id=None, **parameters):
    params = parameters | ({"filter": wanted} if wanted is not None else {})
    headers = {"Last-Event-ID": last_id} if last_id else {}
    async with opened.http.stream("GET", "/events", params=params, headers=headers) as response:
        assert response.status_code == 200, await response.aread()
        reader = Sse(response)
        hello = await reader.next()
        assert hello["retry"] == "1000"
        yield reader


class Sink:
    """A little HTTP server that keeps what it is sent, and answers as it is told."""

    def __init__(self):
        self.requests = []  # (method, path, headers, body)
        self.permission = {"WebHook-Allowed-Origin": "*", "WebHook-Allowed-Rate": "*"}
        self.answers = []  # (status, headers) for the next deliveries; 204 after them
        self.hold = None  # an asyncio.Event that answers wait for
        self.hold_permission = None  # likewise

    @property
    def deliveries(self):
        return [request for request in self.requests if request[0] != "OPTIONS"]

    async def _serve(self, reader, writer):
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                method, path, _ = head[0].split(" ")
                headers = dict(line.split(": ", 1) for line in head[1:] if line)
                headers = {name.lower(): value for name, value in headers.items()}
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                self.requests.append((method, path, headers, body))
                writer.write(await self._answer(method))
                await writer.drain()
        writer.close()

    async def _answer(self, method):
        if method == "OPTIONS":
            if self.hold_permission is not None:
                await self.hold_permission.wait()
            status, extra = 200, self.permission
        else:
            if self.hold is not None:
                await self.hold.wait()
            status, extra = self.answers.pop(0) if self.answers else (204, {})
        lines = [f"HTTP/1.1 {status} X", *(f"{name}: {value}" for name, value in extra.items())]
        return ("\r\n".join([*lines, "Content-Length: 0", "", ""])).encode()

    @contextlib.asynccontextmanager
    async def open(self):
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hook"
        try:
            yield self
        finally:
            server.close()


class Played:
    """A world outside in which time stands still until somebody sleeps."""

    def __init__(self):
        self.clock = VirtualClock()
        self.sleeps = []
        self.jitter = 1.0
        self.names = {}

    async def sleep(self, seconds):
        self.sleeps.append(seconds)
        self.clock.advance(seconds)
        await asyncio.sleep(0)

    async def resolve(self, host, port):
        answer = self.names.get(host, [host])
        return answer.pop(0) if answer and isinstance(answer[0], list) else answer

    def outside(self):
        return Outside(
            now=lambda: self.clock.now, sleep=self.sleep, jitter=lambda: self.jitter, resolve=self.resolve
        )


def certificate(folder, name):
    """A server's TLS context with a certificate for a name, and the file of who signed it: itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    authority, private = folder / f"{name}.pem", folder / f"{name}.key"
    authority.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority, private)
    return context, authority
