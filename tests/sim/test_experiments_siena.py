"""The study of SIENA 6.2 as a program: scenarios, tables, figures, command line."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet
import pytest
from typer.testing import CliRunner

from angelia.sim.experiments import cli
from angelia.sim.experiments.figures import FIGURES, draw
from angelia.sim.experiments.siena import Scenario, simulate
from angelia.sim.experiments.study import FULL, QUICK, Study, run_study, tasks
from angelia.sim.experiments.wide_area import ARCHITECTURES, Sites
from angelia.sim.topology import transit_stub

TINY = replace(
    QUICK,
    stub_nodes=1,
    runs=1,
    objects=(1, 2),
    parties=(1, 3),
    central=(1, 3),
    ignored=(1,),
    publications=10,
    lonely=(1, 2),
    growth=(1, 2),
    timing=((1,), (1,)),
    places=1,
)


@pytest.fixture(scope="module")
def sites() -> Sites:
    return Sites.of(transit_stub(2, stub_nodes=2))


@pytest.fixture(scope="module")
def tiny() -> Study:
    return run_study(TINY, seed=3, jobs=1)


# ---------------------------------------------------------------- one scenario


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_requests_are_those_of_the_sequences(architecture: str, sites: Sites) -> None:
    outcome = simulate(architecture, Scenario(objects=4, parties=5, m=2, n=6, p=2, q=3), sites, "1")
    assert (outcome.advertised, outcome.published, outcome.unadvertised) == (8, 48, 8)
    assert (outcome.subscribed, outcome.unsubscribed, outcome.received) == (10, 10, 30)
    assert outcome.requests == 84


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_same_seed_same_cost_and_another_seed_another(architecture: str, sites: Sites) -> None:
    def cost(places: str, times: str | None = None) -> list[float]:
        return simulate(architecture, Scenario(3, 4), sites, places, times).account.sites

    assert cost("1") == cost("1") == cost("1", "1")
    assert cost("1") != cost("2")


def test_every_message_is_paid_at_both_its_ends(sites: Sites) -> None:
    account = simulate("as", Scenario(2, 3), sites, "1").account
    assert sum(account.sites) == pytest.approx(2 * account.total)


def test_within_one_site_nothing_costs() -> None:
    alone = Sites.of(transit_stub(1, transit_nodes=1, stubs_per_transit_node=0))
    for architecture in ARCHITECTURES:
        outcome = simulate(architecture, Scenario(2, 3), alone, "1")
        assert outcome.account.total == 0
        assert outcome.received == 300


def test_lone_subscription_goes_to_every_site_among_peers_and_to_the_root_in_a_hierarchy(
    sites: Sites,
) -> None:
    scenario = Scenario(0, 1)
    depth = {sites.root: 0}
    for child, parent in sites.tree:
        depth[child] = depth[parent] + 1
    peers = simulate("as", scenario, sites, "1").account.messages
    hierarchy = simulate("hs", scenario, sites, "1").account.messages
    assert peers == {"Subscribe": len(depth) - 1}
    assert hierarchy["Subscribe"] in depth.values()
    assert simulate("aa", scenario, sites, "1").account.messages == {}


def test_centralized_cost_is_the_way_to_the_server_and_back(sites: Sites) -> None:
    """With one sequence of one publication and one receipt, six messages, one of them to the party."""
    account = simulate("ce", Scenario(1, 1, m=1, n=1, p=1, q=1), sites, "4").account
    kinds = ("Advertise", "Publish", "Unadvertise", "Subscribe", "Notify", "Unsubscribe")
    assert account.messages == dict.fromkeys(kinds, 1)
    assert account.sites[sites.root] == pytest.approx(account.total)


# ---------------------------------------------------------------- tables and figures


def test_full_plan_is_the_papers() -> None:
    assert (FULL.runs, FULL.objects, min(FULL.parties), max(FULL.parties)) == (
        10,
        (1, 10, 100, 1000),
        1,
        10_000,
    )
    assert Scenario(1, 1) == Scenario(1, 1, m=10, n=10, p=10, q=10, t=(2.0, 2.5))
    sites = 4 * (1 + 3 * FULL.stub_nodes)
    assert sites == 100


def test_architectures_meet_the_same_places_and_times() -> None:
    seeds: dict[tuple[object, ...], set[tuple[str, str]]] = {}
    for task in tasks(TINY, 1):
        seeds.setdefault((task.study, task.scenario, task.stub_nodes), set()).add((task.places, task.times))
    assert all(len(found) == 1 for found in seeds.values())


def test_tables_have_one_row_a_run_and_one_a_site(tiny: Study) -> None:
    assert len(tiny.runs) == len(list(tasks(TINY, 3)))
    assert len(tiny.sites) == 16 * 2 * 2 * 4
    for row in tiny.runs:
        parts = row["subscription_cost"] + row["notification_cost"] + row["advertisement_cost"]
        assert parts == pytest.approx(row["cost"])


def test_processes_find_what_one_finds(tiny: Study) -> None:
    assert run_study(TINY, seed=3, jobs=2) == tiny


def test_tables_survive_files(tiny: Study, tmp_path: Path) -> None:
    tiny.save(tmp_path)
    assert Study.load(tmp_path) == tiny
    for name in ("runs", "sites"):
        with (tmp_path / f"{name}.csv").open() as file:
            rows = list(csv.DictReader(file))
        table = pyarrow.parquet.read_table(tmp_path / f"{name}.parquet")
        assert len(rows) == table.num_rows
        assert list(rows[0]) == table.column_names


def test_same_data_draw_the_same_pictures(tiny: Study, tmp_path: Path) -> None:
    one, other = draw(tiny, tmp_path / "one"), draw(tiny, tmp_path / "other")
    assert len(one) == 2 * len(FIGURES)
    for first, second in zip(one, other, strict=True):
        assert first.read_bytes() == second.read_bytes()


def test_command_writes_figures_and_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "QUICK", TINY)
    result = CliRunner().invoke(
        cli.app,
        ["siena", "--quick", "--runs", "2", "--jobs", "1", "--seed", "5", "--out", str(tmp_path / "out")],
    )
    assert result.exit_code == 0, result.output
    assert (tmp_path / "out/figures/figure-19.svg").read_text().startswith("<?xml")
    assert (tmp_path / "out/figures/figure-25.png").stat().st_size > 10_000
    found = Study.load(tmp_path / "out/data")
    assert len(found.runs) == len(list(tasks(replace(TINY, runs=2), 5)))
    assert f"{len(found.runs)} runs" in result.output


@pytest.mark.parametrize("bad", [["--runs", "0"], ["--jobs", "0"], ["--quickly"]])
def test_command_refuses_nonsense(bad: list[str]) -> None:
    assert CliRunner().invoke(cli.app, ["siena", *bad]).exit_code == 2


def test_a_study_goes_on_where_it_was_interrupted(tiny: Study, tmp_path: Path) -> None:
    notes = tmp_path / "runs.jsonl"
    assert run_study(TINY, seed=3, jobs=1, notes=notes) == tiny
    lines = notes.read_text().splitlines(keepends=True)
    notes.write_text("".join(lines[:5]) + lines[5][:40])  # the sixth was being written
    again: list[int] = []
    study = run_study(
        TINY, seed=3, jobs=1, done=lambda: again.append(len(notes.read_text().splitlines())), notes=notes
    )
    assert study == tiny
    assert sorted(notes.read_text().splitlines(keepends=True)) == sorted(lines)
    assert again[:5] == [5] * 5
    assert len(again) == len(lines)
