"""The public interface, call by call, as programs elsewhere rely on it; and what is said of a mistake."""

import asyncio

import pyarrow as pa
import pytest
from tests.broker.helpers import address, asynchronous, broker

import angelia
from angelia import Bus, Event, Filter, Matcher, SyncBus, connect, connect_sync
from angelia.errors import AngeliaError

E = Event({"airline": "UA", "dest": "DEN", "price": 420}, type="flights.Quote", source="feeds/united")
F = Filter.parse('airline = "UA" and price < 500')
G = Filter.parse('airline = "UA" and price < 300')


def test_filters_match_cover_overlap_and_print():
    assert F.matches(E)
    assert not G.matches(E)
    assert F.covers(G)
    assert not G.covers(F)
    assert F.overlaps(G)
    assert Filter.parse(str(F)) == F


@pytest.mark.parametrize("engine", ["auto", "pure", "compiled"])
def test_a_matcher_finds_explains_and_forgets(engine):
    matcher = Matcher(engine=engine)
    matcher.add("s1", F)
    matcher.add("s2", G)
    assert matcher.match(E) == ["s1"]
    table = pa.table({"airline": ["UA", "AA", "UA"], "price": [420, 1, 20]})
    for batch in (table, table.to_batches()[0]):
        offsets, ids = matcher.match_batch(batch)
        assert [sorted(ids[offsets[i] : offsets[i + 1]]) for i in range(3)] == [["s1"], [], ["s1", "s2"]]
    assert [(each.constraint, each.held) for each in matcher.explain("s2", E).alternatives[0]] == [
        ('airline = "UA"', True),
        ("price < 300", False),
    ]
    matcher.remove("s1")
    assert matcher.match(E) == []


async def publish_and_read(bus):
    await bus.publish(E)  # nobody wants it yet
    async with bus.subscribe('flights.Quote: airline = "UA"') as notifications:
        await bus.publish(E)
        return await anext(aiter(notifications))


@asynchronous
async def test_a_bus_and_a_broker_are_used_alike():
    async with Bus() as bus, broker() as it, connect(address(it)) as client:
        for event in (await publish_and_read(bus), await publish_and_read(client)):
            assert event.attributes == E.attributes
            assert (event.type, event.source) == (E.type, E.source)
            assert event.id is not None
            assert event.time is not None


def published_synchronously(where):
    with where as bus, bus.subscribe('flights.Quote: airline = "UA"') as notifications:
        bus.publish(E)
        return notifications.get(timeout=5).attributes == E.attributes


@asynchronous
async def test_the_same_without_asyncio():
    async with broker() as it:
        assert await asyncio.to_thread(published_synchronously, SyncBus())
        assert await asyncio.to_thread(lambda: published_synchronously(connect_sync(address(it))))


def test_a_filter_is_asked_about_attributes_as_well():
    f = Filter.parse("order.total < 5")
    assert f.matches({"order": {"total": 4}})
    assert not f.matches({"order": {"total": 5}})
    assert not f.explain({"order.total": 5}).matched


def test_every_name_is_documented():
    assert all(getattr(angelia, name).__doc__ for name in angelia.__all__)


MISTAKES = {
    "Filter('x = 1')": "Filter.parse",
    "F.matches('UA')": "an Event or a mapping, not str",
    "F.explain(5)": "an Event or a mapping, not int",
    "F.covers('price < 300')": "a Filter, not str",
    "F.overlaps(None)": "a Filter, not NoneType",
    "attr('x').in_([1, 2])": r"in_\(\*values\)",
    "attr('x') == [1]": "of type list is not allowed: use a string, a number, a boolean or a datetime",
    "Matcher(engine='fast')": "no engine 'fast'; there are auto, pure, compiled",
    "Matcher().add('s1', 'x = 1')": "Filter.parse",
    "Matcher().remove('s1')": "no filter with the id 's1'",
    "Matcher().match(5)": "not int",
    "Matcher().match_batch([E])": "a batch is a pyarrow Table",
    "TypeRegistry().add('T')": "an EventType, not str",
    "TypeRegistry().add_class(E)": "not Event",
    "EventType('T', {'x': 'strng'})": "'strng' is not a datatype",
    "connect(['tcp://127.0.0.1:7400', 'tcp://127.0.0.1:7401'])": "a text, not list",
    "SyncBus().publish({'x': 1})": r"Event\(\{…\}\) makes one",
    "SyncBus().define(5)": "not int",
    "SyncBus().subscribe(5)": "not int",
    "SyncBus(routing='magic')": "no routing 'magic'",
}


@pytest.mark.parametrize("call", MISTAKES)
def test_a_mistake_is_told_in_one_sentence(call):
    with pytest.raises(AngeliaError, match=MISTAKES[call]) as caught:
        eval(call, vars(angelia) | {"E": E, "F": F})
    assert "\n" not in str(caught.value)
