"""Checks that links between the pages of a built site lead to files and anchors that exist.

Started as `python docs/_ext/links.py FOLDER`. The pages of FORD, in FOLDER/fortran, are checked
after `ford_anchors.py` has corrected their anchors.
"""

from __future__ import annotations

import functools
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """Anchors and links of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect what a tag names and what it leads to."""
        for name, value in attrs:
            if value and (name == "id" or (tag == "a" and name == "name")):
                self.anchors.add(value)
            elif value and name in ("href", "src"):
                self.links.add(value)


@functools.cache
def read(path: Path) -> Page:
    """Return the page of a file."""
    return Page(path.read_text())


@functools.cache
def found(folder: Path, link: str) -> Path | None:
    """Return the file that a link of the pages in a folder leads to, None if there is none."""
    target = (folder / link).resolve()
    if target.is_dir():
        target /= "index.html"
    return target if target.exists() else None


def broken(path: Path, link: str) -> bool:
    """Return whether a link of a page leads nowhere; links to other sites are not followed."""
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return False
    target = found(path.parent, unquote(parts.path)) if parts.path else path
    if target is None:
        return True
    anchors = {parts.fragment, unquote(parts.fragment)}  # browsers look for both
    return target.suffix == ".html" and anchors != {""} and not anchors & read(target).anchors


def main(folder: Path) -> int:
    """Print the broken links of all pages."""
    pages = [p for p in folder.rglob("*.html") if folder / "_static" not in p.parents]
    dead = [
        (page.relative_to(folder), link)
        for page in pages
        for link in read(page).links
        if broken(page, link)
    ]
    for page, link in sorted(dead):
        print(f"{page}: broken link: {link}", file=sys.stderr)
    print(f"{len(pages)} pages, {len(dead)} broken links")
    return int(bool(dead) or not pages)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
