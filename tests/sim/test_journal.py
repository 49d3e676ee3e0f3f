"""The journal: the same seed, the same bytes; JSON lines and Parquet say the same."""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from angelia.sim import journal as journals
from angelia.sim.conformance import Case, run_case
from angelia.sim.errors import SimulationError
from angelia.sim.journal import RECORDS, Journal, Row, write, write_lines

CASES = [Case("peer", "tree", 3), Case("general", "random", 8), Case("advertisement", "star", 5)]


def text(case: Case) -> str:
    journal, file = Journal(), io.StringIO()
    run_case(case, journal)
    write_lines(journal, file)
    return file.getvalue()


@pytest.mark.parametrize("case", CASES)
def test_the_same_seed_gives_the_same_bytes(case: Case) -> None:
    assert text(case) == text(case)


def test_other_seeds_give_other_runs() -> None:
    assert len({text(Case("peer", "tree", seed)) for seed in range(5)}) == 5


@pytest.mark.parametrize("case", CASES)
def test_another_process_with_other_hashes_gives_the_same_bytes(case: Case) -> None:
    program = (
        "import sys, io\n"
        "from angelia.sim.conformance import Case, run_case\n"
        "from angelia.sim.journal import Journal, write_lines\n"
        f"journal = Journal(); run_case(Case{tuple(case)!r}, journal); write_lines(journal, sys.stdout)\n"
    )
    digests = {
        hashlib.sha256(
            subprocess.run(
                [sys.executable, "-c", program],
                env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONIOENCODING": "utf-8"},
                capture_output=True,
                check=True,
            ).stdout
        ).hexdigest()
        for seed in ("1", "2")
    }
    assert digests == {hashlib.sha256(text(case).encode()).hexdigest()}


def test_lines_and_parquet_have_the_same_records(tmp_path: Path) -> None:
    journal = Journal()
    run_case(CASES[0], journal)
    write(journal, tmp_path / "j.jsonl")
    write(journal, tmp_path / "j.parquet")
    lines = [json.loads(line) for line in (tmp_path / "j.jsonl").read_text("utf-8").splitlines()]
    table = pq.read_table(tmp_path / "j.parquet")
    assert table.column_names == list(lines[0]) == list(Row._fields)
    assert table.to_pylist() == lines == [row._asdict() for row in journal]
    assert {line["record"] for line in lines} <= set(RECORDS)


def test_a_journal_longer_than_a_chunk_keeps_its_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journals, "_CHUNK", 10)
    journal = Journal()
    for number in range(35):
        journal.add(number / 10, "sent", f"b{number % 3}", "b", "Notify", number, 1, 0, f'"{number}"\n')
    assert len(journal) == 35
    assert [row.number for row in journal] == list(range(35))
    assert [row.detail for row in journal] == [f'"{number}"\n' for number in range(35)]
    assert len(list(journal.chunks())) == 4


def test_an_empty_journal_can_be_written(tmp_path: Path) -> None:
    write(Journal(), tmp_path / "j.jsonl")
    write(Journal(), tmp_path / "j.parquet")
    assert (tmp_path / "j.jsonl").read_bytes() == b""
    assert pq.read_table(tmp_path / "j.parquet").num_rows == 0


@pytest.mark.parametrize("name", ["j.csv", "j", "nowhere/j.jsonl"])
def test_a_file_that_cannot_be_is_one_clear_error(name: str, tmp_path: Path) -> None:
    with pytest.raises(SimulationError):
        write(Journal(), tmp_path / name)
