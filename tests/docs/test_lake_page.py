"""The Python of docs/lake.md runs as it stands."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs/lake.md"


def test_the_python_of_the_lake_page_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code = "\n".join(re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE))
    assert code
    exec(compile(code, str(PAGE), "exec"), {"__name__": "page"})
