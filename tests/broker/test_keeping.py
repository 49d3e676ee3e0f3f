"""A broker with a lake and with the HTTP door: real sockets, real files, in one process."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import httpx
import pytest

from angelia import Event, connect
from angelia.broker.broker import Broker
from angelia.broker.settings import load
from angelia.errors import DisconnectedError, RequestError
from angelia.store import Lake


def broker(name: str, **options) -> Broker:
    return Broker(load(listen="127.0.0.1:0", name=name, **options))


def run(scenario) -> None:
    asyncio.run(asyncio.wait_for(scenario, 60))


def test_what_clients_publish_is_in_the_lake_once_with_the_ids_that_subscribers_see(tmp_path):
    async def scenario():
        async with (
            broker("a", lake=tmp_path) as one,
            broker("b", lake=tmp_path, peers=[str(one.address)]) as two,
        ):
            while not two.links:
                await asyncio.sleep(0.01)
            async with connect(str(one.address)) as near, connect(str(two.address)) as far:
                async with far.subscribe("x > 0") as seen:
                    while not await near.interest("x > 0"):
                        await asyncio.sleep(0.01)
                    await near.publish_all([Event({"x": x}, type="t.A") for x in range(3)])
                    await far.publish(Event({"x": 9}))
                    got = [await seen.get() for _ in range(3)]
        kept = list(Lake(tmp_path).events())
        assert sorted(event["x"] for event in kept) == [0, 1, 2, 9]
        assert {event.id for event in got} == {event.id for event in kept if event["x"] > 0}

    run(scenario())


def test_a_subscription_since_a_time_has_the_past_of_all_brokers_and_then_the_present_each_once(tmp_path):
    async def scenario():
        async with (
            broker("a", lake=tmp_path) as one,
            broker("b", lake=tmp_path, peers=[str(one.address)]) as two,
        ):
            async with connect(str(one.address)) as near, connect(str(two.address)) as far:
                before = datetime.now(UTC) - timedelta(seconds=1)
                await near.publish_all([Event({"x": x}) for x in range(700)])
                await far.publish_all([Event({"x": x}) for x in range(700, 800)])
                async with far.subscribe("x >= 0", since=before, size=10_000) as seen:
                    for x in range(800, 840):  # while history is read
                        await near.publish(Event({"x": x}))
                        await asyncio.sleep(0.04)
                    got = [(await seen.get())["x"] for _ in range(840)]
                    assert sorted(got) == list(range(840))
                    await near.publish(Event({"x": 1000}))
                    assert (await seen.get())["x"] == 1000

    run(scenario())


def test_a_past_longer_than_the_queue_at_the_broker_is_told_without_drops(tmp_path):
    async def scenario():
        async with broker("a", lake=tmp_path, queue=50) as one, connect(str(one.address)) as bus:
            await bus.publish_all([Event({"x": x}) for x in range(2000)])
            async with bus.subscribe("true", since="2020-01-01T00:00:00Z", size=10) as seen:
                assert [(await seen.get())["x"] for _ in range(2000)] == list(range(2000))
            assert bus.dropped == 0

    run(scenario())


def test_a_broker_without_a_lake_has_no_past_and_a_pattern_has_none_either(tmp_path):
    async def scenario():
        async with broker("a") as one, connect(str(one.address)) as bus:
            with pytest.raises(RequestError, match="--lake"):
                await bus.subscribe("true", since="2020-01-01T00:00:00Z")
            with pytest.raises(RequestError, match="pattern"):
                bus.subscribe("x = 1 then x = 2", since="2020-01-01T00:00:00Z")
            with pytest.raises(RequestError, match="time zone"):
                bus.subscribe("true", since=datetime(2020, 1, 1))
            async with bus.subscribe("true") as live:  # the client goes on
                await bus.publish(Event({"x": 1}))
                assert (await live.get())["x"] == 1

    run(scenario())


def test_a_damaged_past_ends_the_client_with_a_reason(tmp_path, monkeypatch):
    async def scenario():
        async with broker("a", lake=tmp_path) as one, connect(str(one.address)) as bus:
            await bus.publish(Event({"x": 1}))
            monkeypatch.setattr(one.keeper, "directory", tmp_path / "events.json")
            (tmp_path / "events.json").write_text("no directory")
            seen = await bus.subscribe("true", since="2020-01-01T00:00:00Z")
            with pytest.raises(DisconnectedError, match="past could not be read"):
                await asyncio.wait_for(seen.get(), 5)

    run(scenario())


def test_http_and_tcp_are_doors_to_the_same_service(tmp_path):
    async def scenario():
        async with broker("a", http="127.0.0.1:0", lake=tmp_path) as one, connect(str(one.address)) as bus:
            async with (
                bus.subscribe("door.Bell: rings > 1") as seen,
                httpx.AsyncClient(base_url=one.describe()["http"], trust_env=False) as http,
            ):
                for rings in (1, 2):
                    answer = await http.post(
                        "/events",
                        headers={"content-type": "application/cloudevents+json"},
                        json={
                            "specversion": "1.0",
                            "id": str(rings),
                            "type": "door.Bell",
                            "source": "gate",
                            "data": {"rings": rings},
                        },
                    )
                    assert answer.status_code == 202
                assert (await seen.get())["rings"] == 2
                metrics = (await http.get("/metrics")).text
                assert 'angelia_events_in_total{type="door.Bell"} 2.0' in metrics
                assert 'angelia_events_filtered_total{type="door.Bell"} 1.0' in metrics
                assert 'angelia_events_out_total{type="door.Bell"} 1.0' in metrics
                assert "angelia_clients 1.0" in metrics
                topology = (await http.get("/topology")).json()
                assert (topology["name"], topology["routing"], topology["peers"]) == ("a", "peer", {})
        assert [event["rings"] for event in Lake(tmp_path).events()] == [1, 2]

    run(scenario())
