"""The examples of the guide and the example programs run, and say what they should."""

import ast
import asyncio
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GUIDE = (ROOT / "docs" / "bus.md").read_text()
BLOCKS = [
    (GUIDE.count("\n", 0, found.start()) + 2, found[1])
    for found in re.finditer(r"^```python\n(.*?)^```", GUIDE, re.M | re.S)
]

OUTPUTS = {
    "flights.py": [
        "bargain:    LAX 250",
        "everything: AA 250",
        "everything: UA 310",
        "everything: UA 420",
    ],
    "brokers.py": ["alarms: [35, 40]", "messages between brokers: 8 of 20 with flooding"],
    "script.py": [f"done: {number}" for number in range(5)],
}


@pytest.mark.filterwarnings("error")
def test_the_examples_of_the_guide_hold():
    async def run():
        names = {"__name__": "guide"}
        for line, block in BLOCKS:
            code = compile("\n" * line + block, "bus.md", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            result = eval(code, names)
            if inspect.isawaitable(result):
                await result

    assert len(BLOCKS) > 8
    asyncio.run(run())


@pytest.mark.parametrize("name", OUTPUTS)
def test_the_example_programs_run(name):
    done = subprocess.run(
        [sys.executable, "-W", "error", str(ROOT / "examples" / name)],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert done.stderr == ""
    assert sorted(done.stdout.splitlines()) == OUTPUTS[name]


def test_every_example_program_is_tested():
    elsewhere = {"http_door.py", "webhook_sink.py"}  # in tests/broker/http/test_limits.py
    assert {path.name for path in (ROOT / "examples").glob("*.py")} == set(OUTPUTS) | elsewhere
