"""Topics: a selection model for clients that want no more (the slides' topic- and hierarchy-based selection).

The topic of an event is its attribute `topic`, such as `sports/football/uk`; it may have several. A
subscription to `sports/football` is for that topic, one to `sports/football/#` for it and all below it, and
one to `#` for everything. `topic_filter` makes a filter of it, for any router. The router `scribe` has
groups for topics and for subtrees, and finds in any filter which groups it needs.
"""

from __future__ import annotations

from angelia.errors import FilterError
from angelia.event import Event, Kind
from angelia.filter.domain import Domain
from angelia.filter.filter import Filter
from angelia.filter.parser import print_literal

__all__ = ["EVERYTHING", "MAX_LEVELS", "TOPIC", "groups_of", "groups_wanted", "topic_filter"]

TOPIC = "topic"  # the attribute
EVERYTHING = "#"
MAX_LEVELS = 16  # subtrees that have a group of their own; what is deeper shares that of the last


def topic_filter(topic: str) -> Filter:
    """The filter of a topic, or of a topic and all below it: `topic_filter("sports/football/#")`."""
    subtree, mark, rest = topic.partition(EVERYTHING)
    if not topic or rest or (mark and subtree and not subtree.endswith("/")):
        raise FilterError(f"{topic!r} is no topic; write 'sports/football', 'sports/football/#' or '#'")
    if not mark:
        return Filter.parse(f"{TOPIC} = {print_literal(topic)}")
    if not subtree:
        return Filter()
    top = subtree.removesuffix("/")
    return Filter.parse(f"{TOPIC} = {print_literal(top)} or {TOPIC} prefix {print_literal(subtree)}")


def groups_of(event: Event) -> list[str]:
    """The groups that an event is for: its topics, the subtrees that these are in, and everything."""
    value = event.get(TOPIC)
    values = value if isinstance(value, tuple) else (value,)
    groups: dict[str, None] = {}
    for topic in values:
        if isinstance(topic, str):
            groups[topic] = None
            groups |= dict.fromkeys(_subtree(topic, level) for level in range(1, _depth(topic) + 1))
    return [*(group for group in groups if group != EVERYTHING), EVERYTHING]


def groups_wanted(filter: Filter) -> frozenset[str]:  # noqa: A002 - what it is
    """Groups that together have every event that a filter matches, and few others."""
    groups: set[str] = set()
    for conjunction in filter.conjunctions:
        condition = conjunction.conditions.get(TOPIC)
        groups |= _wanted(None if condition is None else condition.some)
    if EVERYTHING in groups:
        return frozenset((EVERYTHING,))
    return frozenset(group for group in groups if _subtree(group, _depth(group)) not in groups)


def _wanted(domain: Domain | None) -> set[str]:
    if domain is None or domain.kind is not Kind.STRING:
        return {EVERYTHING}
    if domain.points is not None:
        return {topic for topic in domain.points if isinstance(topic, str)} - {EVERYTHING} or {EVERYTHING}
    above, slash, _ = domain.common_prefix.rpartition("/")
    return {_subtree(above, _depth(above))} if slash else {EVERYTHING}


def _depth(topic: str) -> int:
    return min(topic.count("/") + 1, MAX_LEVELS)


def _subtree(topic: str, level: int) -> str:
    """The subtree of the first levels of a topic."""
    return f"{'/'.join(topic.split('/', level)[:level])}/{EVERYTHING}"
