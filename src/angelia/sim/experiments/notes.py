"""Notes of a study: what its runs have come to, line by line, so that what was interrupted goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

__all__ = ["Notes"]


class Notes:
    """A file of notes, each a result under the text of its task; without a file, nothing is kept."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def read(self) -> dict[str, list[Any]]:
        """What is noted; a line that was not finished is left out."""
        if self._path is None or not self._path.exists():
            return {}
        lines = self._path.read_text("utf-8").splitlines(keepends=True)
        whole = [line for line in lines if line.endswith("\n")]
        if len(whole) < len(lines):
            self._path.write_text("".join(whole), "utf-8")
        return {task: result for task, *result in map(json.loads, whole)}

    def add(self, task: str, *result: Any) -> None:
        """Note a result."""
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps([task, *result]) + "\n")
