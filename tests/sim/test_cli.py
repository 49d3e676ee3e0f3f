"""`angelia sim` as a user runs it: real processes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from angelia.sim.cli import app
from angelia.sim.errors import SimulationError

SMALL = ("run", "--brokers", "6", "--parties", "20", "--publishers", "3", "--events", "30")


def sim(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "angelia", "sim", *arguments],
        capture_output=True,
        text=True,
        encoding="utf-8",
        cwd=cwd,
        timeout=120,
    )


def test_check_ends_with_a_verdict_in_one_line() -> None:
    result = sim("check", "--router", "peer", "--seeds", "60", "--first-seed", "40", "--jobs", "2")
    assert result.returncode == 0, result.stderr
    (verdict,) = result.stdout.splitlines()
    assert verdict.startswith("ok: peer passed 60 seeds from 40")


def test_check_on_one_topology() -> None:
    result = sim("check", "--router", "general", "--topology", "ring", "--seeds", "5")
    assert result.returncode == 0
    assert result.stdout.startswith("ok: general passed 5 seeds from 0")


def test_run_prints_a_summary() -> None:
    result = sim(*SMALL)
    assert result.returncode == 0, result.stderr
    for word in ("peer", "Notify", "Subscribe", "per event", "p99 ms", "a second of wall time"):
        assert word in result.stdout


def test_run_writes_journal_summary_and_picture_to_a_directory(tmp_path: Path) -> None:
    result = sim(*SMALL, "--out", str(tmp_path / "new"))
    assert result.returncode == 0, result.stderr
    table = pq.read_table(tmp_path / "new" / "journal.parquet")
    figures = json.loads((tmp_path / "new" / "summary.json").read_text())
    deliveries = [row for row in table.to_pylist() if row["record"] == "delivery"]
    assert figures["deliveries"] == len(deliveries) > 0
    assert (tmp_path / "new" / "topology.png").read_bytes().startswith(b"\x89PNG")


def test_the_same_seed_writes_the_same_files(tmp_path: Path) -> None:
    for name in ("a", "b"):
        sim(*SMALL, "--seed", "7", "--out", f"{name}.jsonl", "--picture", f"{name}.svg", cwd=tmp_path)
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    assert b"<svg" in (tmp_path / "a.svg").read_bytes()


@pytest.mark.parametrize("topology", ["line", "star", "ring", "random"])
def test_every_topology_can_be_drawn(topology: str, tmp_path: Path) -> None:
    picture = tmp_path / "p.png"
    options = ("--routing", "flooding", "--topology", topology, "--picture", str(picture))
    assert CliRunner().invoke(app, [*SMALL, *options]).exit_code == 0
    assert picture.stat().st_size > 10_000


def test_faults_happen_when_told(tmp_path: Path) -> None:
    faults = ("--fault", "crash b1 at 0.05", "--fault", "restart b1 at 0.1", "--fault", "delay b1 b0 1 at 0")
    result = sim(*SMALL, *faults, "--out", str(tmp_path / "j.jsonl"))
    assert result.returncode == 0, result.stderr
    rows = [json.loads(line) for line in (tmp_path / "j.jsonl").read_text("utf-8").splitlines()]
    told = [(row["kind"], row["at"]) for row in rows if row["record"] == "fault" and row["kind"] != "join"]
    assert told == [("delay", "b1"), ("crash", "b1"), ("restart", "b1")]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("check", "--router", "none"), "there is no router 'none'"),
        (("check", "--router", "peer", "--topology", "ring"), "peer is for line, star, tree"),
        (("check", "--router", "peer", "--out", "x.csv"), "ends in .jsonl or .parquet"),
        (("run", "--routing", "none"), "there is no routing 'none'"),
        (("run", "--topology", "ring"), "peer is for the topologies line, star, tree"),
        (("run", "--brokers", "0"), "at least one of brokers"),
        (("run", "--parties", "-1"), "there cannot be -1 parties"),
        (("run", "--rate", "0"), "above 0"),
        (("run", "--brokers", "50", "--physical", "25"), "do not fit"),
        (("run", "--bandwidth", "-5"), "bandwidth"),
        (("run", "--fault", "crash b1"), "write a fault as 'crash b3 at 2.5'"),
        (("run", "--fault", "melt b1 at 1"), "there is no fault 'melt'"),
        ((*SMALL, "--fault", "crash b99 at 0"), "there is no broker 'b99'"),
        ((*SMALL, "--fault", "reorder b1 b0 1 at 0"), "in order and once"),
        (("run", "--out", "nowhere/x.jsonl"), "there is no directory nowhere"),
        (("run", "--picture", "x.gif"), "ends in .png or .svg"),
    ],
)
def test_an_error_says_what_is_wrong(
    arguments: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, arguments)
    assert isinstance(result.exception, SimulationError)
    assert message in str(result.exception)
    assert "\n" not in str(result.exception)


def test_an_error_is_one_clear_line_and_exit_status_1() -> None:
    result = sim("check", "--router", "none")
    assert result.returncode == 1
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: there is no router 'none'; there are flooding,")


@pytest.mark.parametrize("arguments", [(), ("check",), ("run",)])
def test_help_is_there_for_all(arguments: tuple[str, ...]) -> None:
    result = sim(*arguments, "--help")
    assert result.returncode == 0
    assert "Usage" in result.stdout
