"""The sequence matcher against the definition of SIENA 3.3."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from angelia import Event, EventType, TypeRegistry
from angelia.pattern import Pattern, SequenceMatcher

START = datetime(2001, 8, 1, tzinfo=UTC)


def event(what: str, time: int | None, type: str | None = None) -> Event:
    when = None if time is None else START + timedelta(seconds=time)
    return Event({"what": what}, id=f"{what}{time}", time=when, type=type)


def run(text: str, events) -> list[list[str]]:
    matcher = SequenceMatcher.of(Pattern.parse(text))
    found = [matcher.see(each) for each in events]
    return [[each.id for each in match] for match in found if match]


def pattern_text(letters: str) -> str:
    return " then ".join(f'what = "{letter}"' for letter in letters)


def defined(letters: str, events: list[Event]) -> list[list[str]]:
    """The definition, read as a search: for each match, the first A, then the first later B after it, …"""
    matches, start = [], 0
    while True:
        match: list[Event] = []
        for letter in letters:
            fitting = (
                i
                for i in range(start, len(events))
                if events[i]["what"] == letter and (not match or events[i].time > match[-1].time)
            )
            at = next(fitting, None)
            if at is None:
                return matches
            match.append(events[at])
            start = at + 1
        matches.append([each.id for each in match])


@given(
    st.sampled_from(["AB", "AA", "ABA", "ABC", "A"]),
    st.lists(st.tuples(st.sampled_from("ABC"), st.integers(0, 12)), max_size=25),
)
def test_matches_are_those_of_the_definition(letters, drawn):
    events = [event(*each) for each in drawn]
    assert run(pattern_text(letters), events) == defined(letters, events)


def test_one_event_is_not_two_steps_of_a_sequence():
    assert run(pattern_text("AA"), [event("A", 1)]) == []
    assert run(pattern_text("AA"), [event("A", 1), event("A", 2), event("A", 3)]) == [["A1", "A2"]]


def test_what_was_generated_at_the_same_time_does_not_follow():
    assert run(pattern_text("AB"), [event("A", 1), event("B", 1), event("B", 2)]) == [["A1", "B2"]]


def test_events_without_a_time_follow_as_they_come():
    assert run(pattern_text("AB"), [event("A", None), event("B", None)]) == [["ANone", "BNone"]]


def test_types_are_asked_of_the_registry():
    registry = TypeRegistry([EventType("Top"), EventType("Sub", parent="Top")])
    matcher = SequenceMatcher.of(Pattern.parse("Top: then Top:"))
    assert matcher.see(event("A", 1, "Sub"), registry) is None
    assert matcher.see(event("A", 2, "Sub")) is None
    assert len(matcher.see(event("A", 3, "Sub"), registry)) == 2


def test_a_part_that_is_recognised_elsewhere_is_heard_not_seen():
    part = Pattern.parse(pattern_text("AB"))
    matcher = SequenceMatcher([part, Pattern.parse(pattern_text("C"))])
    a, b, c = (event(letter, time) for time, letter in enumerate("ABC"))
    assert matcher.see(a) is matcher.see(b) is matcher.see(c) is None
    assert matcher.hear(Pattern.parse(pattern_text("BA")), (b, a)) is None
    assert matcher.hear(part, (a, b)) is None
    assert matcher.hear(part, (a, b)) is None, "it waits for the next part now"
    assert matcher.see(c) == (a, b, c)
    assert matcher.hear(part, (a, b)) is None, "and begins anew"
    assert matcher.see(c) == (a, b, c)
