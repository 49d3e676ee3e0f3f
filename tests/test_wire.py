"""The wire: whatever we send is read as it was, and whatever strangers send is read or refused."""

import contextlib
import struct
import time
import tracemalloc
from datetime import UTC, datetime, timedelta, timezone

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.matching.strategies import SCALARS, filters
from tests.overlay.test_on_the_wire import MESSAGES as OVERLAY_MESSAGES
from tests.types.test_type_laws import event_types

from angelia import Event, Filter
from angelia import messages as m
from angelia import wire as w
from angelia.errors import AngeliaError, EventError, WireError
from angelia.event import MAX_ATTRIBUTES, MAX_EVENT_BYTES
from angelia.filter import Advertisement
from angelia.pattern import Pattern

SOME = settings(max_examples=40, deadline=None)
INTEGER_BOUNDS = (0, -1, 2**31, 2**53 + 1, 2**63 - 1, -(2**63))

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
words = texts.filter(bool)
versions = st.integers(0, 2**63 - 1)
attribute_names = st.text("abé. 日", min_size=1, max_size=3)
values = st.one_of(
    SCALARS, st.sampled_from(INTEGER_BOUNDS), texts, st.lists(SCALARS, max_size=3), st.just(True)
)
times = st.none() | st.datetimes(
    datetime(2, 1, 1), datetime(9998, 1, 1), timezones=st.just(timezone(timedelta(hours=5, minutes=45)))
)


def _flat_event(attributes, nested, **context):
    return Event({**attributes, **({"nested": {"deep": nested}} if nested is not None else {})}, **context)


events = st.builds(
    _flat_event,
    st.dictionaries(attribute_names, values, max_size=4),
    st.none() | SCALARS,
    type=st.none() | words,
    source=st.none() | words,
    subject=st.none() | words,
    id=st.none() | words,
    time=times,
)
patterns = st.lists(filters().filter(lambda f: f.is_satisfiable), min_size=1, max_size=3).map(Pattern)
advertisements = st.one_of(
    st.sampled_from(
        ['x = 1 and x = "a" and exists y', "flights.Quote: true", "true", '@source prefix "a"', "T: x > 1.5"]
    ).map(Advertisement.parse),
    st.sampled_from(
        [Advertisement([]), Advertisement([], "T"), Advertisement(None), Advertisement(None, "T")]
    ),
)
servers = st.frozensets(texts, max_size=3)

REQUESTS = {
    m.Publish: st.builds(m.Publish, texts, events),
    m.PublishAll: st.builds(m.PublishAll, texts, st.lists(events, max_size=3).map(tuple)),
    m.Subscribe: st.builds(m.Subscribe, texts, filters()),
    m.Unsubscribe: st.builds(
        m.Unsubscribe, texts, filters(), st.lists(filters(), max_size=2).map(tuple), st.booleans()
    ),
    m.SubscribePattern: st.builds(m.SubscribePattern, texts, patterns),
    m.UnsubscribePattern: st.builds(m.UnsubscribePattern, texts, patterns),
    m.Advertise: st.builds(m.Advertise, texts, advertisements),
    m.Unadvertise: st.builds(
        m.Unadvertise, texts, advertisements, st.lists(advertisements, max_size=2).map(tuple)
    ),
    m.DefineType: st.builds(m.DefineType, texts, event_types()),
    m.RemoveType: st.builds(m.RemoveType, texts, texts, st.none() | texts),
    m.Interest: st.builds(m.Interest, texts, filters()),
}
MESSAGES = {
    **{kind: REQUESTS[kind] for kind in REQUESTS if kind in m.Message.__args__},
    m.Notify: st.builds(m.Notify, events, texts, versions),
    m.NotifySequence: st.builds(
        m.NotifySequence, patterns, st.lists(events, min_size=1, max_size=3).map(tuple)
    ),
    m.TypeDefinition: st.builds(m.TypeDefinition, event_types(), st.booleans()),
    m.Reach: st.builds(m.Reach, servers, servers, st.booleans()),
    m.LinkState: st.builds(m.LinkState, texts, versions, servers),
    m.Subscriptions: st.builds(m.Subscriptions, texts, versions, st.frozensets(filters(), max_size=3)),
    m.SubscriptionChange: st.builds(
        m.SubscriptionChange,
        texts,
        versions,
        st.frozensets(filters(), max_size=2),
        st.frozensets(filters(), max_size=2),
        versions,
    ),
    m.Versions: st.builds(m.Versions, st.dictionaries(texts, versions, max_size=3)),
}
numbers = st.integers(0, 2**40)
FRAMES = {
    w.Hello: st.builds(
        w.Hello,
        st.integers(),
        st.sampled_from(("client", "peer")),
        texts,
        texts,
        st.none() | texts,
        st.none() | st.integers(0, 9),
    ).filter(lambda hello: abs(hello.version) < 2**63),
    w.Welcome: st.builds(w.Welcome, numbers, texts, texts, st.floats(0, 9), numbers, texts),
    w.Bye: st.builds(w.Bye, texts, st.booleans()),
    w.Ping: st.just(w.Ping()),
    w.Answer: st.builds(w.Answer, numbers, st.none() | texts, st.none() | texts, st.none() | st.booleans()),
    w.Sequence_: st.builds(
        w.Sequence_, st.lists(numbers, max_size=3).map(tuple), st.lists(events, max_size=3).map(tuple)
    ),
    w.Recall: st.builds(
        w.Recall,
        numbers,
        texts,
        filters().map(lambda wanted: msgspec.Raw(msgspec.msgpack.encode(str(wanted)))),
        st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1)).map(lambda at: at.replace(tzinfo=UTC, fold=0)),
    ),
    w.Dropped: st.builds(w.Dropped, numbers),
    w.Flow: st.builds(w.Flow, st.booleans()),
    w.TypeNews: st.builds(
        w.TypeNews, st.lists(event_types(), max_size=2).map(tuple), st.lists(texts, max_size=2).map(tuple)
    ),
    w.Describe: st.builds(w.Describe, numbers),
    w.ListSubscriptions: st.builds(w.ListSubscriptions, numbers, texts),
}
BATCHED = {w.Ask, w.Upload, w.Tell, w.Forward}  # their contents are decoded apart: tests of their own


def shown(value):
    """The value as text that is equal for equal values, NaN included, whatever the order of sets."""
    if isinstance(value, Event):
        context = (value.type, value.source, value.subject, value.id, value.time)
        return repr((sorted((name, repr(one)) for name, one in value.attributes.items()), context))
    if isinstance(value, msgspec.Struct):
        fields = ((name, shown(getattr(value, name))) for name in value.__struct_fields__)
        return f"{type(value).__name__}{tuple(fields)}"
    if isinstance(value, msgspec.Raw):
        return repr(bytes(value))
    if isinstance(value, frozenset):
        return repr(sorted(map(shown, value)))
    if isinstance(value, tuple | list):
        return repr([shown(one) for one in value])
    return repr(value)


def body(frame):
    (only,) = w.Frames().feed(frame)
    return only


def raw(value):
    return msgspec.Raw(msgspec.msgpack.encode(value))


# ---------------------------------------------------------------- there and back


def test_every_frame_message_and_request_is_tested_here():
    # Those of overlays are in tests/overlay/test_on_the_wire.py; some travel in others.
    inside = [getattr(one, name) for one in OVERLAY_MESSAGES for name in one.__struct_fields__]
    of_overlays = set(map(type, [*OVERLAY_MESSAGES, *inside])) & set(w.Frame.__args__)
    assert {*FRAMES, *MESSAGES} | BATCHED | of_overlays == set(w.Frame.__args__)
    assert set(REQUESTS) == set(m.Request.__args__)


@pytest.mark.parametrize("kind", [*FRAMES, *MESSAGES], ids=lambda kind: kind.__name__)
def test_a_frame_comes_out_as_it_went_in(kind):
    @settings(max_examples=15, deadline=None)
    @given({**FRAMES, **MESSAGES}[kind])
    def check(frame):
        read = w.decode(body(w.encode(frame)))
        assert type(read) is type(frame)
        assert shown(read) == shown(frame)

    check()


@pytest.mark.parametrize("kind", REQUESTS, ids=lambda kind: kind.__name__)
def test_a_request_comes_out_as_it_went_in(kind):
    @settings(max_examples=15, deadline=None)
    @given(numbers, REQUESTS[kind])
    def check(number, request):
        ask = w.decode(body(w.encode_request(number, request)))
        assert ask.number == number
        assert shown(w.decode_request(ask.request)) == shown(request)

    check()


@SOME
@given(numbers, st.lists(events, max_size=20))
def test_an_upload_comes_out_as_it_went_in(number, published):
    upload = w.decode(body(w.encode_upload(number, [w.encode_event(event) for event in published])))
    assert upload.number == number
    assert shown(w.decode_events(upload.events)) == shown(published)
    apart = [w.decode_events(msgspec.Raw(b"\x91" + bytes(one))) for one in w.split_events(upload.events)]
    assert shown([event for (event,) in apart]) == shown(published)


@SOME
@given(st.lists(st.tuples(st.lists(numbers, max_size=20), events), max_size=20))
def test_what_is_told_comes_out_as_it_went_in(items):
    encoded = [
        w.told([w.encode_number(number) for number in given], w.encode_event(event)) for given, event in items
    ]
    tell = w.decode(body(w.encode_told(encoded)))
    found = [(item.numbers, item.event) for item in w.decode_told(tell.events)]
    assert shown(found) == shown([(tuple(given), event) for given, event in items])


@SOME
@given(st.lists(MESSAGES[m.Notify], max_size=20))
def test_notifications_come_out_as_they_went_in(sent):
    encoded = [w.notified(notification, w.encode_event(notification.event)) for notification in sent]
    forward = w.decode(body(w.encode_forward(encoded)))
    assert shown(w.decode_notifications(forward.notifications)) == shown(sent)


def test_an_advertisement_of_nothing_is_not_one_of_everything():
    for advertisement in (
        Advertisement([]),
        Advertisement([], "T"),
        Advertisement(None),
        Advertisement(None, "T"),
    ):
        read = w.decode(body(w.encode(m.Advertise("p", advertisement)))).advertisement
        assert read == advertisement
        assert read.advertises(Event({"x": 1}, type="T")) == advertisement.advertises(
            Event({"x": 1}, type="T")
        )


def test_the_ends_of_the_integers_travel_and_what_is_beyond_is_refused():
    for value in INTEGER_BOUNDS:
        (event,) = w.decode_events(raw([[{"x": value}]]))
        assert event["x"] == value
        assert type(event["x"]) is int
    for value in (2**63, 2**64 - 1):
        with pytest.raises(EventError, match="64 bits"):
            w.decode_events(raw([[{"x": value}]]))
        with pytest.raises(EventError, match="64 bits"):  # once the name is known, too
            w.decode_events(raw([[{"x": 1}], [{"x": value}]]))


def test_lists_nested_maps_and_nulls_are_made_flat_as_an_event_does_it():
    parts = {"a": {"b": [1, "x"], "c": None}, "d": 2}
    (event,) = w.decode_events(raw([[parts]]))
    assert event == Event(parts)
    assert event["a.b"] == (1, "x")


@SOME
@given(st.binary(max_size=200).map(w._framed) | st.just(w.encode(w.Ping())), st.data())
def test_frames_are_the_same_in_whatever_pieces_they_come(frame, data):
    stream = frame * 5 + frame[: len(frame) // 2]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    frames, found = w.Frames(), []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        found += frames.feed(stream[start:end])
    assert found == w.Frames().feed(stream) == [frame[4:]] * 5


# ---------------------------------------------------------------- garbage


def outcome(data):
    """Decode bytes in every way there is; only our own errors come out."""
    for decode in (
        w.decode,
        lambda data: w.decode_events(msgspec.Raw(data)),
        lambda data: w.decode_told(msgspec.Raw(data)),
        lambda data: w.decode_notifications(msgspec.Raw(data)),
        lambda data: w.decode_request(msgspec.Raw(data)),
        lambda data: w.split_events(msgspec.Raw(data)),
    ):
        with contextlib.suppress(WireError, EventError):
            decode(data)


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=80))
def test_random_bytes_are_refused(data):
    outcome(data)


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | texts
    | st.binary(max_size=4),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts | st.integers(0, 9), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from([kind.__name__.rstrip("_") for kind in w.Frame.__args__]),
    st.dictionaries(
        st.sampled_from([name for kind in w.Frame.__args__ for name in kind.__struct_fields__]),
        plain | events,
        max_size=4,
    ),
)
def test_frames_with_wrong_contents_are_refused_or_read(kind, fields):
    outcome(msgspec.msgpack.encode({"type": kind, **fields}))


@SOME
@given(st.lists(st.lists(plain, max_size=8), max_size=3))
def test_batches_with_wrong_contents_are_refused_or_read(items):
    outcome(msgspec.msgpack.encode(items))


@SOME
@given(st.one_of(list(MESSAGES.values())), st.data())
def test_a_frame_that_was_cut_or_damaged_is_refused_or_read(frame, data):
    whole = body(w.encode(frame))
    with pytest.raises(WireError):
        w.decode(whole[: data.draw(st.integers(0, len(whole) - 1))])
    place = data.draw(st.integers(0, len(whole) - 1))
    outcome(whole[:place] + bytes([data.draw(st.integers(0, 255))]) + whole[place + 1 :])


@pytest.mark.parametrize(
    "parts",
    [
        [{"": 1}],
        [{"@id": 1}],
        [{"a\n": 1}],
        [{"a": b"bytes"}],
        [{"a": [[1]]}],
        [{"a": [{"b": 1}]}],
        [{"a": {1: 2}}],
        [{"a": 1, "b": {"c": 2}, "b.c": 3}],
        [{"a": 1}, ""],
        [{"a": 1}, "T", "", None, "id"],
        [{"a": 1}, None, None, None, None, datetime(2026, 1, 1)],
        [{"a": msgspec.msgpack.Ext(7, b"x")}],
        [{"x" * 300: 1}],
        [{f"a{number}": 1 for number in range(MAX_ATTRIBUTES + 1)}],
        [{"a": "x" * MAX_EVENT_BYTES}],
        [{"a": 1}, None, None, None, None, None, "one too many"],
    ],
    ids=lambda parts: repr(parts)[:30],
)
def test_an_invalid_event_in_a_valid_frame_is_refused_with_its_place(parts):
    good = [{"a": 1}]
    with pytest.raises((EventError, WireError)) as caught:
        w.decode_events(raw([good, parts]))
    if isinstance(caught.value, EventError):
        assert str(caught.value).startswith("event 2 of 2: ")
    with pytest.raises(WireError):
        w.decode_told(raw([[[1], parts]]))
    with pytest.raises(WireError):
        w.decode_notifications(raw([["b1", 1, parts]]))
    with pytest.raises(WireError):
        w.decode(msgspec.msgpack.encode({"type": "Notify", "event": parts, "origin": "b1", "sequence": 1}))


def test_text_that_is_no_unicode_is_refused():
    surrogate = b"\xa3\xed\xa0\x80"  # a string of three bytes: half of a pair
    outcome(b"\x91\x91\x81\xa1a" + surrogate)
    with pytest.raises(WireError):
        w.decode_events(msgspec.Raw(b"\x91\x91\x81\xa1a" + surrogate))


def test_invalid_filters_and_patterns_within_frames_are_refused_with_their_reason():
    for kind, field, text in (
        ("Subscribe", "filter", "price <"),
        ("SubscribePattern", "pattern", "a = 1 then"),
        ("Subscribe", "filter", "(" * 50_000),
    ):
        with pytest.raises(WireError, match="column"):
            w.decode(msgspec.msgpack.encode({"type": kind, "identity": "1", field: text}))
    with pytest.raises(WireError):
        w.decode(msgspec.msgpack.encode({"type": "Advertise", "identity": "1", "advertisement": ["x"]}))


@pytest.mark.parametrize("opening", [b"\x91", b"\x81\xa1a", b"\x92\x01"])
def test_deep_nesting_is_refused(opening):
    outcome(opening * 100_000 + b"\xc0")
    with pytest.raises(AngeliaError):
        w.decode_events(msgspec.Raw(b"\x91\x91\x81\xa1a" + opening * 100_000 + b"\xc0"))


def test_a_huge_claimed_length_is_refused_before_anything_is_kept():
    tracemalloc.start()
    with pytest.raises(WireError, match="4294967295 bytes; at most 1048576"):
        w.Frames().feed(struct.pack(">I", 2**32 - 1))
    for claim in (
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\xdb\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
    ):
        outcome(claim)
        outcome(b"\x91\x91\x81\xa1a" + claim)
        outcome(b"\x81\xa4type" + claim)
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


def test_names_of_strangers_are_not_kept_without_bound():
    for start in range(0, 2 * w._MAX_NAMES, 128):
        w.decode_events(raw([[{f"n{number}": 1 for number in range(start, start + 128)}]]))
    assert len(w._names) <= w._MAX_NAMES + MAX_ATTRIBUTES


def test_a_stream_of_tiny_pieces_costs_no_more_than_its_bytes():
    """A large frame that comes in many pieces is not copied with each of them."""
    frame = w._framed(bytes(1 << 20))
    frames, found = w.Frames(), []
    started = time.process_time()
    for start in range(0, len(frame), 256):
        found += frames.feed(frame[start : start + 256])
    assert len(found) == 1
    assert time.process_time() - started < 0.5


def test_a_filter_travels_as_text():
    frame = msgspec.msgpack.decode(body(w.encode(m.Subscribe("1", Filter.parse("a=1 and b=2")))))
    assert frame == {"type": "Subscribe", "identity": "1", "filter": "a = 1 and b = 2", "by": "both"}


def test_who_connects_to_the_wrong_port_is_told_that_it_is_http():
    with pytest.raises(WireError, match="this is HTTP"):
        w.Frames().feed(b"HTTP/1.1 400 Bad Request\r\n\r\n")
