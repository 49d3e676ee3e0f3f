"""The guide tells the truth: its example is run."""

import re
from datetime import timedelta
from pathlib import Path

from tests.pipeline.worlds import START

from angelia import Event
from angelia.store import LakeWriter

PAGE = Path(__file__).parents[2] / "docs" / "pipeline.md"


def test_the_example_of_the_guide_runs(spark, tmp_path):
    (code,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    with LakeWriter(tmp_path / "lake", "b1") as writer:
        for number, hours in enumerate((0, 1, 9, 10)):
            attributes = {"origin": "JFK", "dep_delay": 50.0 + 10 * number, "tailnum": "N1"}
            at = START + timedelta(hours=hours)
            writer.append([Event(attributes, type="flights.Departure", id=f"e{number}", time=at)])
    code = code.replace('"lake", "lake"', f'"lake", {str(tmp_path / "lake")!r}')
    names = {}
    exec(compile(code, str(PAGE), "exec"), names)
    assert sorted(row.event_id for row in names["pairs"].collect()) == ["e2", "e3"]
    assert [row.event_ids for row in names["twice"].collect()] == [["e2", "e3"]]
