"""TLS for links and clients, with certificates that the `certs` command made."""

import os
import ssl
import stat
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest
from tests.broker.helpers import FAST, Raw, address, asynchronous, broker, linked, quote, until

from angelia import wire
from angelia.broker.certs import make_certificates
from angelia.client import connect, connect_sync
from angelia.errors import BrokerError


@pytest.fixture(scope="module")
def certs(tmp_path_factory):
    """A directory with an authority, a certificate of a broker, and one of a client."""
    place = tmp_path_factory.mktemp("certs")
    done = subprocess.run(
        [sys.executable, "-m", "angelia", "certs", str(place), "--name", "broker", "--name", "app"],
        capture_output=True,
        text=True,
        check=True,
    )
    names = {"ca.pem", "ca-key.pem", "broker.pem", "broker-key.pem", "app.pem", "app-key.pem"}
    assert {os.path.basename(line) for line in done.stdout.split()} == names
    assert {path.name for path in place.iterdir()} == names
    return place


def tls(certs, **more):
    return {
        "tls_cert": certs / "broker.pem",
        "tls_key": certs / "broker-key.pem",
        "tls_ca": certs / "ca.pem",
        **FAST,
        **more,
    }


def test_keys_are_readable_by_their_owner_alone(certs):
    for key in certs.glob("*-key.pem"):
        assert stat.S_IMODE(key.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("name", "host"),
    [("../broker", "localhost"), ("ca", "localhost"), ("", "localhost"), ("broker", "no host")],
)
def test_names_and_hosts_that_cannot_be_are_refused(name, host, tmp_path):
    with pytest.raises(BrokerError, match=r"cannot name a certificate|neither a host name nor an address"):
        make_certificates(tmp_path / "certs", [name], [host], 1, datetime.now(UTC))
    assert not list(tmp_path.rglob("broker*"))


@asynchronous
async def test_events_go_from_client_to_broker_to_broker_to_client_over_tls(certs):
    ca = certs / "ca.pem"
    async with broker(name="b1", **tls(certs)) as one:
        assert address(one).startswith("tls://")
        async with broker(name="b2", **tls(certs, peers=[address(one)])) as two:
            await linked(one, two)
            async with (
                connect(address(one), ca=ca) as publisher,
                connect(address(two), ca=ca) as reader,
                reader.subscribe("flights.Quote: true") as got,
            ):
                while not await publisher.interest("flights.Quote: true"):
                    pass
                await publisher.publish_all(map(quote, range(1000)))
                assert [(await got.get())["price"] for _ in range(1000)] == list(range(1000))


@asynchronous
async def test_a_client_does_not_trust_a_broker_of_an_unknown_authority(certs):
    async with broker(**tls(certs)) as it:
        with pytest.raises(BrokerError, match="certificate verify failed"):
            await connect(address(it))


@asynchronous
async def test_a_certificate_is_valid_for_its_hosts_alone(certs, tmp_path):
    make_certificates(tmp_path, ["broker"], ["example.org"], 1, datetime.now(UTC))
    async with broker(**tls(tmp_path)) as it:
        with pytest.raises(BrokerError, match=r"not valid for '127\.0\.0\.1'"):
            await connect(address(it), ca=tmp_path / "ca.pem")


@asynchronous
async def test_a_certificate_has_an_end(tmp_path):
    make_certificates(tmp_path, ["broker"], ["127.0.0.1"], 1, datetime.now(UTC) - timedelta(days=2))
    async with broker(**tls(tmp_path)) as it:
        with pytest.raises(BrokerError, match="expired"):
            await connect(address(it), ca=tmp_path / "ca.pem")


@asynchronous
async def test_a_client_without_tls_is_no_client_of_a_broker_with_it(certs):
    async with broker(**tls(certs)) as it:
        with pytest.raises(BrokerError, match="cannot connect"):
            await connect(address(it).replace("tls://", "tcp://"), timeout=1)
        raw = await Raw.at(it)
        raw.write(b"GET / HTTP/1.0\r\n\r\n")
        with pytest.raises((ConnectionError, AssertionError)):
            await raw.bye()
        raw.close()
        async with connect(address(it), ca=certs / "ca.pem") as bus:
            await bus.publish(quote(1))


@asynchronous
async def test_a_peer_needs_a_certificate_of_the_authority(certs, tmp_path):
    make_certificates(tmp_path, ["broker"], ["127.0.0.1"], 1, datetime.now(UTC))  # of another authority
    async with broker(name="b1", **tls(certs)) as it:
        context = ssl.create_default_context(cafile=certs / "ca.pem")
        raw = await Raw.at(it, ssl=context)
        raw.send(wire.Hello(wire.VERSION, "peer", "b2", "1", routing="peer"))
        assert (await raw.bye()).reason == "a peer needs a certificate of the authority here"
        foreign = {**tls(tmp_path), "tls_ca": certs / "ca.pem"}
        async with broker(name="b3", **{**foreign, "peers": [address(it)]}) as other:
            await until(lambda: "not connected yet" not in str(other.describe()["unconnected"]))
            assert not other.links
            assert not it.links


@asynchronous
async def test_a_certificate_stands_for_the_token_of_a_peer_but_not_of_a_client(certs, tmp_path):
    (tmp_path / "tokens").write_text("secret\n")
    async with broker(name="b1", **tls(certs, tokens=tmp_path / "tokens")) as one:
        async with broker(name="b2", **tls(certs, peers=[address(one)])) as two:
            await linked(one, two)
        own = {"ca": certs / "ca.pem", "cert": certs / "app.pem", "key": certs / "app-key.pem"}
        with pytest.raises(BrokerError, match="token"):
            await connect(address(one), **own)
        async with connect(address(one), token="secret", **own) as bus:
            await bus.publish(quote(1))


@asynchronous
async def test_certificates_that_cannot_be_used_are_told(certs, tmp_path):
    (tmp_path / "bad.pem").write_text("no certificate")
    with pytest.raises(BrokerError, match=r"cannot use the certificates .*bad\.pem"):
        await broker(tls_cert=tmp_path / "bad.pem", tls_key=certs / "broker-key.pem").start()
    with pytest.raises(BrokerError, match=r"cannot use the certificates .*bad\.pem"):
        await connect("tls://127.0.0.1:1", ca=tmp_path / "bad.pem")


def test_the_same_without_asyncio(certs):
    import asyncio
    import threading

    ready, done = threading.Event(), threading.Event()
    found = []

    async def serve():
        async with broker(**tls(certs)) as it:
            found.append(address(it))
            ready.set()
            await asyncio.to_thread(done.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert ready.wait(10)
        with connect_sync(found[0], ca=certs / "ca.pem") as bus, bus.subscribe("true") as got:
            bus.publish(quote(7))
            assert got.get(timeout=5)["price"] == 7
    finally:
        done.set()
        thread.join()


def test_an_authority_that_is_there_is_used_again_and_a_damaged_one_is_told(tmp_path):
    now = datetime.now(UTC)
    first = make_certificates(tmp_path, ["a"], ["localhost"], 1, now)
    authority = (tmp_path / "ca.pem").read_bytes()
    second = make_certificates(tmp_path, ["b"], ["localhost"], 1, now)
    assert len(first) == 4
    assert len(second) == 2
    assert (tmp_path / "ca.pem").read_bytes() == authority
    (tmp_path / "ca-key.pem").write_text("nothing")
    with pytest.raises(BrokerError, match="not usable"):
        make_certificates(tmp_path, ["c"], ["localhost"], 1, now)
