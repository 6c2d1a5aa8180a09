"""The pages that people read, and the code blocks in them.

A fenced block says its language. A comment in the line before may say more:

    <!-- file: NAME -->        the block is kept as this file in the page's scratch folder, for the shell blocks
    <!-- not run: REASON -->   it is looked at (syntax, names, targets, paths), and not run
    <!-- output -->            what the shell block before has to print: each line, in this order
"""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class Block:
    """One code block of a page."""

    def __init__(self, page, line, language, text, note):
        self.page, self.line, self.language, self.text = page, line, language, text
        kind, _, words = (note or "").partition(":")
        self.file = words.strip() if kind.strip() == "file" else None
        self.reason = words.strip() if kind.strip() == "not run" else None
        self.is_output = kind.strip() == "output"

    @property
    def where(self):
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def pages():
    found = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return found + sorted((ROOT / "bindings").glob("*/README.md"))


def blocks(page):
    text = page.read_text(encoding="utf-8")
    found = []
    for match in re.finditer(r"(?:^<!-- (?P<note>[^\n]*) -->\n+)?^```(?P<language>[^\n]*)\n(?P<text>.*?)^```$", text, re.S | re.M):
        line = text.count("\n", 0, match.start("language")) + 1
        found.append(Block(page, line, match["language"].strip(), match["text"], match["note"]))
    return found


def indented(page):
    """Blocks that are indented, as (line, text); those inside of fenced ones and of lists are left out."""
    text = page.read_text(encoding="utf-8")
    text = re.sub(r"^```.*?^```$", lambda match: re.sub(r"[^\n]", "", match[0]), text, flags=re.S | re.M)
    for match in re.finditer(r"(?:\A|(?<=\n\n))(?:    [^\n]*\n|\n(?=    ))+", text):
        before = text[: match.start()].rstrip().split("\n")[-1]
        if not before.lstrip().startswith(("* ", "- ", "1.", "2.", "3.")):
            yield text.count("\n", 0, match.start()) + 1, match[0]
