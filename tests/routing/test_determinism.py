"""The same inputs have the same effects, in the same order, in every process."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from tests.routing.network import ALL
from tests.routing.test_against_direct_evaluation import Run

KEYS = ("filter", "advertisement", "pattern", "origin", "version", "event_type")


def trace(routing: str) -> list[str]:
    """Who sent what to whom in a random run, as text without sets."""
    run = Run(routing, 1)
    run.net.subscribe_pattern("b0", "ann", "exists x then x > 1")
    run.net.subscribe_pattern("b5", "bob", "exists x then x > 1 then exists y")
    for _ in range(60):
        run.step()
    return [
        f"{a} {b} {type(m).__name__} {[str(getattr(m, key)) for key in KEYS if hasattr(m, key)]}"
        for a, b, m in run.net.sent
    ]


@pytest.mark.parametrize("routing", ALL)
def test_effects_do_not_depend_on_the_hashes_of_a_process(routing):
    paths = os.pathsep.join([os.getcwd(), *filter(None, [os.environ.get("PYTHONPATH")])])
    code = f"from {__name__} import trace; print(*trace({routing!r}), sep=chr(10))"
    other = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=True,
    )
    assert other.stdout.splitlines() == trace(routing)
