"""Small tables on a terminal."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from rich.console import Console
from rich.table import Table

__all__ = ["print_frame"]

MOST = 40  # rows


def print_frame(title: str, rows: pa.Table) -> None:
    """Print a table, cut to a readable length."""
    table = Table(title=title, title_justify="left")
    for field in rows.schema:
        is_text = pa.types.is_string(field.type)
        table.add_column(field.name, justify="left" if is_text else "right")
    for row in rows.slice(0, MOST).to_pylist():
        table.add_row(*map(_cell, row.values()))
    console = Console()
    console.print(table)
    if rows.num_rows > MOST:
        console.print(f"and {rows.num_rows - MOST:,} more")


def _cell(value: Any) -> str:
    if value is None:
        return "all"
    return (
        f"{value:,.4f}"
        if isinstance(value, float)
        else f"{value:,}"
        if isinstance(value, int)
        else str(value)
    )
