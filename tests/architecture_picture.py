"""The picture of packages in docs/architecture.md, from the import table on that page.

    python tests/architecture_picture.py        # writes the picture again after a change of the table

An arrow leads from a package to one that it may import. Arrows that follow from others are not drawn.
"""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "architecture.md"
_BEGIN, _END = "<!-- picture written by tests/architecture_picture.py -->", "<!-- end of picture -->"


def layers(page: str) -> dict[str, set[str]]:
    """The table of the page: {package: packages that it may import}."""
    rows = re.findall(r"(?m)^\| `(\w+)` \|.*\| ([\w -]+) \|$", page)
    return {package: set(allowed.replace("-", " ").split()) for package, allowed in rows}


def reduced(allowed: dict[str, set[str]]) -> dict[str, set[str]]:
    """The transitive reduction of a graph without cycles."""
    below: dict[str, set[str]] = {}

    def reach(package: str) -> set[str]:
        if package not in below:
            below[package] = set().union(*({other} | reach(other) for other in allowed[package]))
        return below[package]

    return {
        package: {one for one in own if not any(one in reach(other) for other in own)}
        for package, own in allowed.items()
    }


def picture(page: str) -> str:
    """A Mermaid graph of the table."""
    arrows = [
        f"    {package} --> {' & '.join(sorted(others))}"
        for package, others in reduced(layers(page)).items()
        if others
    ]
    return "\n".join([_BEGIN, "```mermaid", "graph TD", *arrows, "```", _END])


def with_picture(page: str) -> str:
    """The page with the picture of its table."""
    return re.sub(f"(?s){re.escape(_BEGIN)}.*{re.escape(_END)}", lambda _: picture(page), page)


if __name__ == "__main__":
    PAGE.write_text(with_picture(PAGE.read_text()))
