"""Traffic from journals, against the simulator's own counts; experiments on Spark, against local runs."""

import json
import time

import pytest
from typer.testing import CliRunner

from angelia import Event, connect_sync
from angelia.local import LocalNetwork
from angelia.pipeline import read_journal, traffic
from angelia.pipeline.cli import app
from angelia.pipeline.errors import PipelineError
from angelia.pipeline.sweeping import sweep
from angelia.sim import scenario
from angelia.sim.errors import SimulationError
from angelia.sim.experiments.runners import runner
from angelia.sim.experiments.study import Plan, run_study
from angelia.sim.journal import RECORDS, Journal, Row, write

TINY = Plan(
    stub_nodes=1,
    runs=2,
    objects=(1, 3),
    parties=(1, 3),
    central=(1,),
    ignored=(1,),
    publications=20,
    lonely=(1,),
    growth=(1,),
    timing=((1,), (1,)),
    places=1,
)


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    path = tmp_path_factory.mktemp("journal")
    journal = Journal()
    asked = scenario.Scenario(brokers=12, parties=20, publishers=4, events=60, topics=5, seed=7)
    outcome = scenario.run(asked, journal)
    for name in ("journal.parquet", "journal.jsonl"):
        write(journal, path / name)
    return path, outcome, list(journal)


@pytest.fixture(scope="module")
def tables(spark, outcome):
    return {
        name: frame.toArrow().to_pylist()
        for name, frame in traffic(read_journal(spark, outcome[0] / "journal.parquet"))._asdict().items()
    }


def test_messages_are_counted_by_link_and_kind(tables, outcome):
    sent = [row for row in outcome[2] if row.record == "sent"]
    assert sum(row["sent"] for row in tables["links"]) == len(sent)
    for row in tables["links"]:
        of_link = [r for r in sent if (r.at, r.peer, r.kind) == (row["from"], row["to"], row["kind"])]
        assert row["sent"] == len(of_link)
        assert row["received"] + row["dropped"] == row["sent"]


def test_deliveries_have_the_latency_and_the_hops_that_the_simulator_measured(tables, outcome):
    _, run, _ = outcome
    everything = tables["latency"][0]
    assert everything["hops"] is None
    assert everything["deliveries"] == len(run.latencies) == sum(row["deliveries"] for row in tables["hops"])
    assert everything["mean"] == pytest.approx(sum(run.latencies) / len(run.latencies))
    assert everything["max"] == pytest.approx(max(run.latencies))
    assert sorted(run.hops) == sorted(row["hops"] for row in tables["hops"] for _ in range(row["deliveries"]))


def test_filtering_near_the_source_wastes_nothing_and_flooding_does(spark, tables, tmp_path):
    """A peer router forwards only where somebody waits; a flood goes everywhere."""
    assert sum(row["wasted"] for row in tables["waste"]) == 0
    assert sum(row["messages"] for row in tables["waste"]) > 0
    journal = Journal()
    asked = scenario.Scenario(
        routing="flooding", brokers=8, parties=2, publishers=2, events=20, topics=2, seed=3
    )
    scenario.run(asked, journal)
    write(journal, tmp_path / "flood.jsonl")
    waste = traffic(read_journal(spark, tmp_path / "flood.jsonl")).waste.collect()
    assert sum(row.messages for row in waste) >= 20 * 7
    assert sum(row.wasted for row in waste) > 20


def test_both_forms_of_a_journal_say_the_same(spark, outcome, tables):
    lines = traffic(read_journal(spark, outcome[0] / "journal.jsonl"))
    assert lines.links.toArrow().to_pylist() == tables["links"]


def test_lines_that_are_no_records_are_told(spark, outcome, tmp_path):
    whole = (outcome[0] / "journal.jsonl").read_text()
    (tmp_path / "torn.jsonl").write_text(whole + '{"time":1.5,"rec')
    result = CliRunner().invoke(app, ["traffic", str(tmp_path / "torn.jsonl")])
    assert result.exit_code == 0
    assert "left out: 1 lines" in result.stderr
    assert "latency" in result.stdout


def test_a_journal_of_another_kind_is_refused(spark, tmp_path):
    (tmp_path / "j.csv").write_text("time\n")
    with pytest.raises(PipelineError, match=r"\.jsonl or \.parquet"):
        read_journal(spark, tmp_path / "j.csv")


@pytest.fixture(scope="module")
def noted(tmp_path_factory):
    """The journals of three brokers in a line: 30 events at one end, ten of which are wanted at the other."""
    path = tmp_path_factory.mktemp("noted")
    journals = path / "journals"
    with LocalNetwork.plan(path, 3, "line", options=[f"--journal={journals}"]) as network:
        with connect_sync(network.addresses[0]) as near, connect_sync(network.addresses[2]) as far:
            there = far.subscribe("n < 10")
            deadline = time.monotonic() + 30
            while not near.interest("n = 5"):
                assert time.monotonic() < deadline
                time.sleep(0.02)
            here = near.subscribe("n >= 0")
            near.publish_all([Event({"n": n}, id=f"e{n}") for n in range(30)])
            assert [there.get(30)["n"] for _ in range(10)] == list(range(10))
            assert len(here.drain()) == 30
    return sorted(journals.iterdir())


def test_the_journals_of_brokers_have_the_fields_of_the_simulators(noted):
    assert [path.name for path in noted] == ["b1.jsonl", "b2.jsonl", "b3.jsonl"]
    rows = [json.loads(line) for path in noted for line in path.read_text().splitlines()]
    assert {tuple(row) for row in rows} == {Row._fields}
    assert {row["record"] for row in rows} <= set(RECORDS)


def test_the_journals_of_brokers_fit_together(spark, noted):
    tables = traffic(read_journal(spark, *noted))
    notified = {
        (r["from"], r["to"]): (r.sent, r.received) for r in tables.links.collect() if r.kind == "Notify"
    }
    assert notified == {("b1", "b2"): (10, 10), ("b2", "b3"): (10, 10)}
    assert {row.hops: row.deliveries for row in tables.hops.collect()} == {0: 30, 2: 10}
    latency = {row.hops: row for row in tables.latency.collect()}
    assert latency[None].deliveries == 40
    assert 0 <= latency[0].p50 < latency[2].p50 < 30
    assert [(row.messages, row.wasted) for row in tables.waste.collect()] == [(10, 0), (10, 0)]


def test_an_experiment_on_spark_equals_the_local_one_seed_by_seed(spark):
    local = run_study(TINY, seed=5, jobs=1)
    elsewhere = run_study(TINY, seed=5, jobs=1, runner=lambda function, work: sweep(spark, function, work))
    assert elsewhere == local
    assert run_study(TINY, seed=6, jobs=1) != local


def test_an_unknown_place_for_an_experiment_is_refused():
    with pytest.raises(SimulationError, match="local or spark"):
        runner("moon", 1)
