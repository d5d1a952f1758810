"""Corrects the anchors of FORD's pages of interfaces, which have other ids than its links name.

Started as `python docs/_ext/ford_anchors.py FOLDER`, the folder of FORD's pages. The links
`#moduleprocedure-NAME` lead to the element `proc-NAME`, whose name may lack the number after the
tilde. Procedures that have the id of their interface are linked by the list of all procedures.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

LINK = re.compile(r'(href="[^"#]*)#moduleprocedure-([^"]+)"')


def corrected(text: str) -> str:
    """Return the text of a page, whose links of this kind lead to the page itself."""
    anchors = set(re.findall(r'\bid="([^"]+)"', text))

    def link(found: re.Match[str]) -> str:
        name = found[2]
        wanted = f"proc-{name}", f"proc-{name.partition('~')[0]}", "modprocs-0"
        anchor = next((a for a in wanted if a in anchors), None)
        return f'{found[1]}#{anchor}"' if anchor else found[0]

    return LINK.sub(link, text)


def main(folder: Path) -> None:
    """Correct the pages of all interfaces."""
    for path in sorted((folder / "interface").glob("*.html")):
        text = path.read_text()
        if (new := corrected(text)) != text:
            path.write_text(new)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
