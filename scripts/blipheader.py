"""Reads blip.h: its groups, and in each the constants, types, callbacks and functions with their doc blocks.

The header is the only list of what there is. What checks it, draws manuals from it or makes other lists starts here.
"""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HEADER = ROOT / "Include" / "blip.h"
MAXIMUM_ABSTRACT = 150

# What follows a doc block: a define, or a declaration up to its semicolon (a structure's has some inside).
ITEM = re.compile(
    r"(?P<comment>/\*\*(?:(?!\*/).)*\*/\s*)?"
    r"(?:^#[ \t]*define[ \t]+(?P<constant>BLIP_\w+)[ \t]+(?P<value>\S[^\n]*)$"
    r"|^(?P<declaration>(?:typedef[^;{]*(?:\{[^}]*\}[^;]*)?|[a-z][\w *]*\bblip_\w+\([^;{]*);))",
    re.S | re.M,
)


def split_parameters(text):
    depth, start, parts = 0, 0, []
    for index, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if character == "," and depth == 0:
            parts.append(text[start:index].strip())
            start = index + 1
    parts.append(text[start:].strip())
    return [] if parts == ["void"] else parts


def parameter_name(parameter):
    match = re.search(r"\(\*(\w+)\)", parameter) or re.search(r"(\w+)$", parameter)
    return match[1]


class Item:
    """A documented thing: its kind, name, result, parameters and doc block."""

    def __init__(self, match, line):
        self.line = line
        self.result, self.parameters = "", []
        self.doc = clean(match["comment"] or "")
        self.source = (match["declaration"] or f"#define {match['constant']} {match['value']}").strip()
        declaration = " ".join((match["declaration"] or "").split())
        function = re.fullmatch(r"(?:typedef )?(.+?[ *])(?:\(\*(blip_\w+)\)|(blip_\w+))\((.*)\);", declaration)
        if match["constant"]:
            self.kind, self.name = "constant", match["constant"]
        elif function:
            self.kind = "callback" if function[2] else "function"
            self.name, self.result = function[2] or function[3], function[1].strip()
            self.parameters = split_parameters(function[4])
        else:
            self.kind, self.name = "type", re.search(r"(\w+);$", declaration)[1]

    @property
    def since(self):
        match = re.search(r"\bSince (\d+\.\d+)\.$", self.doc)
        return match[1] if match else None

    def transfers(self):
        """Whether somebody has to know who owns something that passes."""
        what = [self.result, *(re.sub(r"\w+$", "", text).strip() for text in self.parameters[1:])]
        if self.parameters and not re.match(r"blip_\w+ \*\w+$", self.parameters[0]):
            what.append(re.sub(r"\w+$", "", self.parameters[0]).strip())
        numbers = r"(bool|size_t|u?int\d*(_t)?|blip_status) \*"
        return any(("*" in text and not re.fullmatch(numbers, text)) or "blip_slice" in text for text in what)

    def findings(self):
        if not self.doc:
            return ["has no doc block"]
        found = []
        abstract = " ".join(self.doc.split("\n\n")[0].split()).removesuffix(f" Since {self.since}.")
        if len(re.split(r"(?<=\.)\s", abstract)[0]) > MAXIMUM_ABSTRACT or not abstract.endswith("."):
            found.append(f"does not begin with a sentence of at most {MAXIMUM_ABSTRACT} characters")
        if self.since is None:
            found.append('does not end with "Since VERSION."')
        if self.kind in ("constant", "type"):
            return found
        names = [parameter_name(text) for text in self.parameters]
        documented = re.findall(r"^@param (\w+) \S", self.doc, re.M)
        if documented != names:
            found.append(f"documents the parameters {documented}, and has {names}")
        if (self.result != "void") != bool(re.search(r"^@return \S", self.doc, re.M)):
            found.append("must document its result, and only if it has one")
        if not re.search(r"^Threads: \[(any|object|callback)\].* Since", self.doc, re.M):
            found.append("has no thread tag")
        if self.transfers() and not re.search(r"^Ownership: \S", self.doc, re.M):
            found.append("does not say who owns what it takes or gives")
        if self.kind == "function" and self.result == "blip_status":
            said = re.search(r"^@return (.*?)(\n\n|\Z)", self.doc, re.M | re.S)
            handles = any(re.match(r"blip_(?!slice|status)\w+ \*\w+$", text) for text in self.parameters)
            if said and handles and not {"BLIP_ERROR_HANDLE", "BLIP_ERROR_FORKED"} <= set(re.findall(r"\w+", said[1])):
                found.append("does not say that a handle may not be good")
        return found


class Group:
    """A chapter of the header: its name, title, text and items."""

    def __init__(self, name, title, text):
        self.name, self.title, self.text = name, title, text
        self.items = []


def clean(comment):
    """The text of a comment without its stars."""
    lines = comment.strip().removeprefix("/**").removesuffix("*/").strip().split("\n")
    return "\n".join(re.sub(r"^[ \t]*\* ?", "", text) for text in lines).strip()


def read_items(text):
    return [Item(match, text.count("\n", 0, match.end()) + 1) for match in ITEM.finditer(text)]


def read_groups(text):
    """All groups in order, each with its items in order."""
    groups, starts = [], []
    for match in re.finditer(r"/\*\*(?:(?!\*/).)*?@defgroup (\w+) ([^\n]+)(?:(?!\*/).)*\*/", text, re.S):
        body = clean(match[0]).split("\n", 1)[1].replace("@{", "").strip()
        groups.append(Group(match[1], match[2].strip(), body))
        starts.append(text.count("\n", 0, match.end()) + 1)
    for item in read_items(text):
        before = [group for group, start in zip(groups, starts) if start <= item.line]
        if before:
            before[-1].items.append(item)
    return groups


def introduction(text):
    """The text at the head of the header, without the file mark."""
    match = re.search(r"/\*\*\s*\n \* @file(?:(?!\*/).)*\*/", text, re.S)
    return clean(match[0]).removeprefix("@file").strip()


class Doc:
    """A doc block taken apart: abstract, paragraphs, parameters, result, notes (Ownership, Source, Threads), since."""

    TAG = re.compile(r"^(@param (?P<parameter>\w+) |@return |(?P<note>Ownership|Threads|Source): )")

    def __init__(self, item):
        self.abstract, self.paragraphs, self.result = "", [], ""
        self.parameters, self.notes, self.since = [], {}, item.since
        text = re.sub(r"\s*\bSince \d+\.\d+\.$", "", item.doc)
        for block in re.split(r"\n\s*\n", text):
            self.take(block)
        if self.paragraphs:
            # A sentence is a title; what follows it in the same paragraph is text.
            title, *rest = re.split(r"(?<=\.)\s+(?=[A-Z])", self.paragraphs[0], maxsplit=1)
            self.abstract = title
            self.paragraphs[:1] = rest

    def take(self, block):
        pieces = []
        for line in block.split("\n"):
            match = self.TAG.match(line)
            if match:
                pieces.append([match, line[match.end():]])
            elif pieces:
                pieces[-1][1] += " " + line.strip()
            else:
                pieces.append([None, line])
        for match, words in pieces:
            words = words.strip() if match else words
            if match is None:
                self.paragraphs.append(words if words.startswith("    ") else block_words(block))
                return
            if match["parameter"]:
                self.parameters.append((match["parameter"], words))
            elif match["note"]:
                self.notes[match["note"]] = words
            else:
                self.result = words


def block_words(block):
    """A paragraph on one line; one that is indented is code and stays as it is."""
    lines = block.split("\n")
    if all(line.startswith("    ") for line in lines):
        return block
    return " ".join(line.strip() for line in lines)


class Header:
    """The whole header: introduction, groups, items and their docs by name, and what follows from them together."""

    def __init__(self, path=HEADER):
        text = path.read_text(encoding="utf-8")
        self.introduction, *chapters = re.split(r"^@par ", introduction(text), flags=re.M)
        self.chapters = [tuple(chapter.split("\n", 1)) for chapter in chapters]
        self.groups = read_groups(text)
        self.items = {item.name: item for group in self.groups for item in group.items}
        self.docs = {name: Doc(item) for name, item in self.items.items()}

    def constants_of(self, item):
        """The constants that have to be explained with an item: those it names, families where it says "and so on"."""
        text = " ".join(item.doc.split())
        names = {}
        for match in re.finditer(r"\b(BLIP_[A-Z0-9_]*[A-Z0-9])\b( and so on)?", text):
            constant = match[1]
            if constant not in self.items or constant.startswith("BLIP_ERROR_") or constant == "BLIP_OK":
                continue
            whole = match[2] or f"from {constant} to" in text
            family = re.match(r"BLIP_[A-Z]+_", constant)
            for name in [name for name in self.items if name.startswith(family[0])] if whole else [constant]:
                names[name] = None
        return list(names)

    def value_of(self, constant):
        return self.items[constant].source.split(None, 2)[2].strip("()")

    def results_of(self, doc):
        """What a function returns: pairs of a status (None for other results) and a sentence."""
        parts = re.split(r"; (?=BLIP_|or why|or what|negative)", doc.result.rstrip("."))
        if not doc.result:
            return []
        if len(parts) < 2 or not parts[0].startswith("BLIP_"):
            return [(None, doc.result)]
        results = []
        for part in parts:
            names, colon, words = part.partition(":")
            if not re.fullmatch(r"(BLIP_\w+)(, BLIP_\w+)*", names):
                results.append((None, capital(part.removeprefix("or "), doc.parameters) + "."))
                continue
            for name in names.split(", "):
                said = words.strip() if colon else self.docs[name].abstract.rstrip(".")
                results.append((name, capital(said, doc.parameters) + "."))
        return results


def split_blocks(text):
    """Paragraphs, each on one line; indented ones are code and stay as they are."""
    blocks = [block for block in re.split(r"\n\s*\n", text.strip("\n")) if block.strip()]
    return [block_words(block) for block in blocks]


def capital(text, parameters=()):
    """A sentence begins big, unless with the name of a parameter."""
    first = re.match(r"\w*", text)[0]
    return text if first in dict(parameters) else text[:1].upper() + text[1:]
