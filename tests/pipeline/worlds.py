"""Events, subscriptions and oracles that the tests of the pipeline share."""

import random
from datetime import UTC, datetime, timedelta

import pyarrow as pa

from angelia import Event, Filter
from angelia.event import CONTEXT

START = datetime(2026, 3, 1, 22, 0, tzinfo=UTC)
AIRPORTS = ("JFK", "LGA", "EWR", "DEN", "SFO")


def quotes(count, seed=1, step=timedelta(seconds=1), **context):
    """Random events of one shape, `step` apart, some without a price."""
    rng = random.Random(seed)
    made = []
    for number in range(count):
        attributes = {
            "origin": rng.choice(AIRPORTS),
            "price": rng.randrange(1000) if rng.random() < 0.9 else None,
            "order.total": rng.random() * 100,
            "urgent": rng.random() < 0.1,
        }
        made.append(
            Event(
                attributes,
                type=context.get("type", "flights.Quote"),
                source=rng.choice(("feeds/a", "feeds/b")),
                id=f"{context.get('prefix', 'e')}{number:05d}",
                time=START + step * number,
            )
        )
    return made


def subscriptions(count, seed=1):
    """Random filters of different kinds by id."""
    rng = random.Random(seed)
    forms = (
        lambda: f'origin = "{rng.choice(AIRPORTS)}" and price < {rng.randrange(1000)}',
        lambda: f"price > {rng.randrange(1000)}",
        lambda: f'origin prefix "{rng.choice("JLES")}" and order.total <= {rng.randrange(100)}',
        lambda: f'flights.Quote: urgent = true and @source = "feeds/{rng.choice("ab")}"',
        lambda: "not exists price",
        lambda: (
            f'origin in ("{rng.choice(AIRPORTS)}", "{rng.choice(AIRPORTS)}") or price = {rng.randrange(1000)}'
        ),
    )
    return {f"s{number}": rng.choice(forms)() for number in range(count)}


def arrow(events):
    """Events as a table, one column an attribute."""
    names = list(dict.fromkeys(name for event in events for name in event))
    columns = {f"@{name}": [getattr(event, name) for event in events] for name in CONTEXT}
    columns |= {name: [event.get(name) for event in events] for name in names}
    return pa.table(columns)


def frame(spark, events):
    """Events as a data frame."""
    return spark.createDataFrame(arrow(events))


def expected_pairs(events, filters, registry=None):
    """What direct evaluation says."""
    parsed = {id_: Filter.parse(text) for id_, text in filters.items()}
    return {(e.id, id_) for e in events for id_, f in parsed.items() if f.matches(e, registry)}


def pairs_of(result):
    """The pairs of a result; each must be there once."""
    rows = [(row.event_id, row.subscription_id) for row in result.collect()]
    assert len(rows) == len(set(rows))
    return set(rows)
