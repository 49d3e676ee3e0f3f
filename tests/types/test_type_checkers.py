"""Type checkers understand event classes: what is right passes, what is wrong is found where it is."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent.parent


def mypy(example):
    """The places, as (line, code), where mypy finds an error in an example."""
    run = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            "--strict",
            "--no-error-summary",
            "--follow-imports=silent",
            str(example),
        ],
        cwd=ROOT,
        env=os.environ | {"MYPYPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode in (0, 1), run.stderr
    return [(int(line), code) for line, code in re.findall(r":(\d+): error: .*\[([a-z-]+)\]", run.stdout)]


@pytest.fixture(autouse=True)
def _needs_mypy():
    pytest.importorskip("mypy")


def test_event_classes_check_strictly():
    assert mypy(HERE / "typed_example.py") == []


def test_mistakes_with_event_classes_are_found():
    example = HERE / "typed_mistakes.py"
    marked = [
        (number, code)
        for number, line in enumerate(example.read_text().splitlines(), 1)
        for code in re.findall("# error: ([a-z-]+)", line)
    ]
    assert set(mypy(example)) == set(marked)
