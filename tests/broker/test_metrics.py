"""Metrics: counted cheaply, bounded in number, read by Prometheus."""

from prometheus_client.parser import text_string_to_metric_families

from angelia.broker.metrics import MAX_LABELS, OTHER, Metrics


def families(metrics):
    text = metrics.exposition()[0].decode()
    return {family.name: family for family in text_string_to_metric_families(text)}


def values(family):
    return {tuple(sample.labels.values()): sample.value for sample in family.samples}


def test_events_are_counted_by_type():
    metrics = Metrics()
    metrics.count_in("a")
    metrics.count_in("a", 4)
    metrics.count_in(None)
    metrics.count_out("b", 2)
    metrics.count_filtered("c")
    metrics.count_drop("queue", 7)
    found = families(metrics)
    assert values(found["angelia_events_in"]) == {("a",): 5, ("(none)",): 1}
    assert values(found["angelia_events_out"]) == {("b",): 2}
    assert values(found["angelia_events_filtered"]) == {("c",): 1}
    assert values(found["angelia_dropped_events"]) == {("queue",): 7}


def test_of_very_many_types_the_others_are_counted_together():
    metrics = Metrics()
    for number in range(MAX_LABELS + 500):
        metrics.count_in(f"type{number}")
    metrics.count_in("x" * 1000)
    counted = values(families(metrics)["angelia_events_in"])
    assert len(counted) == MAX_LABELS + 1
    assert counted[OTHER,] == 501
    assert sum(counted.values()) == MAX_LABELS + 501


def test_the_time_of_a_batch_counts_for_each_of_its_events():
    metrics = Metrics()
    metrics.observe_match(20e-6, 10)  # 2 microseconds each
    metrics.observe_match(0.5)
    metrics.observe_match(0.5, 0)
    histogram = families(metrics)["angelia_match_seconds"]
    buckets = {sample.labels["le"]: sample.value for sample in histogram.samples if "le" in sample.labels}
    assert buckets["1e-06"] == 0
    assert buckets["2.5e-06"] == 10
    assert buckets["0.1"] == 10
    assert buckets["+Inf"] == 11
    assert {sample.name: sample.value for sample in histogram.samples if "le" not in sample.labels} == {
        "angelia_match_seconds_count": 11,
        "angelia_match_seconds_sum": 0.50002,
    }


def test_gauges_are_read_when_asked_and_one_that_fails_hides_no_other(caplog):
    metrics = Metrics()
    depths = {"b1": 3.0}
    metrics.gauge("angelia_links", "Links", lambda: len(depths))
    metrics.gauge("angelia_broken", "Broken", lambda: 1 / 0)
    metrics.gauge("angelia_link_queue_events", "Queues", lambda: depths, "peer")
    depths["b2"] = 4.0
    found = families(metrics)
    assert values(found["angelia_links"]) == {(): 2}
    assert values(found["angelia_link_queue_events"]) == {("b1",): 3, ("b2",): 4}
    assert "angelia_broken" not in found
    assert "angelia_broken" in caplog.text


def test_labels_of_strangers_are_escaped():
    metrics = Metrics()
    metrics.count_in('a"b\\c\nd')
    assert values(families(metrics)["angelia_events_in"]) == {('a"b\\c\nd',): 1}
