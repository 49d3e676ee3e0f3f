"""Summaries, against what plain Python counts."""

from collections import Counter
from datetime import timedelta

import pytest
from tests.pipeline.worlds import START, expected_pairs, frame, quotes, subscriptions

from angelia import Event, Filter
from angelia.pipeline import PipelineError, summarise
from angelia.pipeline.relations import merged, saved
from angelia.pipeline.report import Facts, collect, render

EVENTS = quotes(300, step=timedelta(minutes=2)) + quotes(100, seed=3, type="Other", prefix="o")


@pytest.fixture(scope="module")
def filters():
    texts = subscriptions(40) | {"all": "true", "none": "price > 5000"}
    return texts, {id_: Filter.parse(text) for id_, text in texts.items()}


@pytest.fixture(scope="module")
def summary(spark, filters):
    return summarise(frame(spark, EVENTS), filters[1])


def test_volume_is_counted_by_type_source_and_hour(summary):
    counted = {(row.type, row.source, row.start.isoformat()): row.events for row in summary.volume.collect()}
    wanted = Counter(
        (e.type, e.source, e.time.replace(minute=0, second=0, tzinfo=None).isoformat()) for e in EVENTS
    )
    assert counted == wanted


def test_attributes_have_statistics(summary):
    rows = {(row.type, row.attribute): row for row in summary.attributes.collect()}
    prices = [e["price"] for e in EVENTS if e.type == "Other" and "price" in e]
    price = rows["Other", "price"]
    assert (price.events, price.present) == (100, len(prices))
    assert (price.least, price.greatest) == (str(min(prices)), str(max(prices)))
    assert price.mean == pytest.approx(sum(prices) / len(prices))
    origins = Counter(e["origin"] for e in EVENTS if e.type == "flights.Quote")
    (value, count), *_ = origins.most_common(1)
    top = rows["flights.Quote", "origin"]
    assert (top.top[0]["value"], top.top[0]["count"]) == (value, count)
    assert top.top_share == pytest.approx(count / 300)


def test_subscriptions_are_counted_and_judged(summary, filters):
    counts = Counter(subscription for _, subscription in expected_pairs(EVENTS, filters[0]))
    rows = {row.subscription_id: row for row in summary.subscriptions.collect()}
    assert {id_: row.matches for id_, row in rows.items()} == {id_: counts[id_] for id_ in filters[0]}
    assert rows["all"].verdict == "always"
    assert rows["all"].selectivity == 1
    assert {id_ for id_, row in rows.items() if row.verdict == "never"} == set(filters[0]) - set(counts)
    over_time = summary.matches.groupBy("subscription_id").sum("matches").collect()
    assert {row[0]: row[1] for row in over_time} == dict(counts)


def test_what_covers_what_is_what_filters_say(summary, filters):
    for row in summary.covering.collect():
        assert filters[1][row.subscription_id].covers(filters[1][row.covers])
    rows = {row.subscription_id: row for row in summary.subscriptions.collect()}
    assert [id_ for id_, row in rows.items() if row.is_root] == ["all"]


def test_merging_keeps_the_meaning():
    texts = ["x = 1", "x = 2", "x = 3 and y > 1", "x = 4 and y > 1", "x = 4 and y > 1 and z = 1", "y < 0"]
    filters = [Filter.parse(text) for text in texts]
    fewer = merged(filters)
    assert len(fewer) < 5
    for x in range(5):
        for y in range(-1, 3):
            for z in range(2):
                event = Event({"x": x, "y": y, "z": z})
                assert any(f.matches(event) for f in fewer) == any(f.matches(event) for f in filters)
    steps = saved([*filters, filters[0]], None).to_pylist()
    assert [row["filters"] for row in steps] == [7, 6, 5, 3]


def test_a_report_shows_strange_names_as_text(spark):
    odd = Event({"<b>": "<script>"}, type="a<b", source="<i>", id="1", time=START)
    page = render(collect(summarise(frame(spark, [odd]), {"<s>": Filter.parse('x = "<script>"')}), "<t>"))
    assert "<script>" not in page
    assert "&lt;script&gt;" in page


def test_a_report_of_nothing_is_a_page():
    assert "no events" in render(Facts("empty", [], []))


def test_an_unknown_bucket_is_refused(spark):
    with pytest.raises(PipelineError, match="minute, hour, day"):
        summarise(frame(spark, EVENTS[:1]), bucket="week")
