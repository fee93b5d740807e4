"""Markdown tables that are also readable as plain text."""

from __future__ import annotations


def markdown_table(head: list[str], rows: list[list[str]]) -> str:
    """A table with columns padded to their widest cells."""
    widths = [max(map(len, column)) for column in zip(head, *rows)]
    lines = [head, ["-" * width for width in widths], *rows]
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths)) + " |" for line in lines
    )


def value_range(values) -> str:
    """`least - greatest` of two numbers, to two places."""
    return f"{values[0]:.2f} - {values[1]:.2f}"
