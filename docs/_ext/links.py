"""Checks that links between the pages of a built site lead to files and anchors that exist.

Started as `python docs/_ext/links.py FOLDER`. Of the pages of FORD, in FOLDER/fortran, only links
to the other pages are checked: FORD also writes links to anchors that it does not write.
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


def broken(path: Path, link: str) -> bool:
    """Return whether a link of a page leads nowhere; links to other sites are not followed."""
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return False
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if target.is_dir():
        target /= "index.html"
    if not target.exists():
        return True
    anchor = unquote(parts.fragment)
    return target.suffix == ".html" and bool(anchor) and anchor not in read(target).anchors


def checked(path: Path, folder: Path) -> set[str]:
    """Return the links of a page that are checked; a link out of FORD's folder climbs above it."""
    links = read(path).links
    if folder / "fortran" not in path.parents:
        return links
    out = "../" * (len(path.relative_to(folder).parts) - 1)
    return {link for link in links if link.startswith(out)}


def main(folder: Path) -> int:
    """Print the broken links of all pages."""
    pages = [p for p in folder.rglob("*.html") if folder / "_static" not in p.parents]
    found = [
        (page.relative_to(folder), link)
        for page in pages
        for link in checked(page, folder)
        if broken(page, link)
    ]
    for page, link in sorted(found):
        print(f"{page}: broken link: {link}", file=sys.stderr)
    print(f"{len(pages)} pages, {len(found)} broken links")
    return int(bool(found) or not pages)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
