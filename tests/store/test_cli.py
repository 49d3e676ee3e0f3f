"""`angelia lake` as a user runs it: real processes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.store.helpers import damage, events, ids, lake_of
from typer.testing import CliRunner

from angelia.store import Lake
from angelia.store.cli import app

CSV = "time,id,n\n2026-01-01T12:00:00Z,a,1\nnever,b,2\n2026-01-02T12:00:00Z,c,3\n"


def run(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, arguments)
    return done.exit_code, done.output


def test_import_list_replay_and_verify(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(CSV)
    lake = str(tmp_path / "lake")
    done = subprocess.run(
        [sys.executable, "-m", "angelia", "lake", "import", "a.csv", "--lake", lake, "--type", "T"],
        capture_output=True, text=True, cwd=tmp_path, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "read 3 = imported 2 + rejected 1"
    status, output = run("ls", "--lake", lake)
    assert status == 0
    assert output.splitlines()[-1].startswith("1 types, 2 events")
    assert json.loads(run("ls", "--lake", lake, "--json")[1])["rows"] == 2
    assert run("verify", "--lake", lake) == (0, "ok: 2 files, 0 segments, 2 events\n")
    out = tmp_path / "out.jsonl"
    status, output = run("replay", "n > 2", "--lake", lake, "--out", str(out))
    assert status == 0
    assert [json.loads(line) for line in out.read_text().splitlines()] == [
        {"@type": "T", "@id": "c", "@time": "2026-01-02T12:00:00Z", "n": 3}
    ]
    status, output = run("import", str(out), "--lake", str(tmp_path / "other"))
    assert output.splitlines()[-1] == "read 1 = imported 1 + rejected 0"
    assert ids(Lake(tmp_path / "other").events("T")) == ["c"]


def test_verify_tells_of_what_is_corrupted_and_half_written(tmp_path: Path) -> None:
    lake = lake_of(tmp_path, events(0, 30), events(30, 60))
    first, second, third = lake.files()[:3]
    Path(first.path).write_bytes(Path(first.path).read_bytes()[:-10])
    damage(second.path)
    half = Path(third.path).with_name(f"_{Path(third.path).name}.99999.tmp")
    half.write_bytes(b"PAR1")
    wal = tmp_path / "wal" / "b9"
    wal.mkdir()
    (wal / "0000000000000001.wal").write_bytes(b"\xa7WAL\x10\0\0\0")
    status, output = run("verify", "--lake", str(tmp_path))
    assert status == 1
    lines = output.splitlines()
    assert lines[-1].startswith("FAILED: 4 problems")
    told = {line.partition(": ")[0]: line.partition(": ")[2] for line in lines[:-1]}
    assert told.keys() == {first.path, second.path, str(half), str(wal / "0000000000000001.wal")}
    assert told[first.path].startswith("corrupted")
    assert told[second.path].startswith("corrupted")
    assert "half-written" in told[str(half)]
    assert "half-written" in told[str(wal / "0000000000000001.wal")]
    status, output = run("replay", "true", "--lake", str(tmp_path))
    assert status == 1
    assert "left out" in output
    run("compact", "--lake", str(tmp_path))
    assert not half.exists()


def test_compact_says_what_it_did(tmp_path: Path) -> None:
    lake_of(tmp_path, events(0, 6), events(6, 12))
    status, output = run("compact", "--lake", str(tmp_path))
    assert status == 0
    assert output.startswith("6 files became 3 (12 events)")


def test_a_lake_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    for command in ("ls", "verify", "compact"):
        done = CliRunner().invoke(app, [command, "--lake", str(tmp_path / "no")])
        assert done.exit_code == 1
        assert "there is no lake" in str(done.exception)
