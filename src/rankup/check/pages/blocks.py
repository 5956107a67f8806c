"""A page's blocks of code, with what stands before each."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, replace
from html.parser import HTMLParser
from pathlib import Path

_RST_DIRECTIVE = re.compile(r"^\s*\.\. (?:code-block|code|sourcecode|highlight-code)::\s*(?P<label>\S*)\s*$")
_MYST_DIRECTIVE = re.compile(r"^\{(?P<name>[\w:-]+)\}")
_MYST_CODE = ("code-block", "code", "sourcecode", "code-cell", "bash", "python", "shell")
# A tab or a note of MkDocs: what it holds is indented, with fences of its own.
_CONTAINER = re.compile(r"^[ \t]*(?:===[+!]?|!!!|\?\?\?\+?)[ \t].*$", re.M)
_FENCE = re.compile(r"^[ \t]*(?:```|~~~)", re.M)
_RST_OPTION = re.compile(r"^\s*:(?P<key>[\w-]+):\s*(?P<value>.*)$")


@dataclass(frozen=True)
class Block:
    """Code of a page. ``first`` is the page's line (from 1) of its first line, ``indent`` the columns cut from each."""

    text: str
    first: int
    indent: int = 0
    label: str = ""  # the fence's words: language, title
    before: str = ""  # the last line of text before it


def blocks_of(text: str, name: str) -> list[Block]:
    """The blocks of a page, whose kind its name tells."""
    suffix = Path(name).suffix.lower()
    if suffix == ".rst":
        return list(_rst(text))
    if suffix in (".html", ".htm"):
        return _html(text)
    return list(_markdown(text))


def _markdown(text: str) -> Iterator[Block]:
    from markdown_it import MarkdownIt

    lines = text.split("\n")
    end = 0  # of what was before
    for token in MarkdownIt("commonmark").parse(_CONTAINER.sub("", text)):
        if token.map is None or token.type not in ("fence", "code_block"):
            continue
        first = token.map[0] + (token.type == "fence")
        before = _last_text(lines[end : token.map[0]])
        end = token.map[1]
        body = token.content.rstrip("\n")
        indent = len(lines[first]) - len(lines[first].lstrip()) if first < len(lines) else 0
        own = len(body) - len(body.lstrip(" \t")) if body else 0
        myst = _MYST_DIRECTIVE.match(token.info)
        is_container = token.type == "code_block" and _FENCE.search(body) is not None
        # Tabs and notes hold blocks of their own.
        if is_container or (myst and myst["name"] not in _MYST_CODE):
            cut = max(0, indent - own) if is_container else 0
            for inner in _markdown(body):
                inner_before = inner.before or before
                yield replace(
                    inner, first=inner.first + first, indent=inner.indent + cut, before=inner_before
                )
            continue
        while (
            myst
            and (not body.partition("\n")[0].strip() or _RST_OPTION.match(body.partition("\n")[0]))
            and body
        ):
            body, first = body.partition("\n")[2], first + 1
        yield Block(body, first + 1, max(0, indent - own), token.info, before)


def _rst(text: str) -> Iterator[Block]:
    lines = text.split("\n")
    number, end = 0, 0
    while number < len(lines):
        line = lines[number]
        directive = _RST_DIRECTIVE.match(line)
        literal = not directive and line.rstrip().endswith("::") and not line.lstrip().startswith("..")
        number += 1
        if not directive and not literal:
            continue
        start = number - 1
        outer = len(line) - len(line.lstrip())
        label = directive["label"] if directive else ""
        while number < len(lines) and (
            not lines[number].strip() or (directive and _RST_OPTION.match(lines[number]))
        ):
            option = _RST_OPTION.match(lines[number])
            if option and option["key"] in ("caption", "name"):
                label += f" {option['value']}"
            number += 1
        first = number
        while number < len(lines) and (not lines[number].strip() or _indent(lines[number]) > outer):
            number += 1
        body = lines[first:number]
        while body and not body[-1].strip():
            body.pop()
        if body:
            indent = min(_indent(one) for one in body if one.strip())
            before = line.rstrip(":") if literal else _last_text(lines[end:start])
            yield Block("\n".join(one[indent:] for one in body), first + 1, indent, label, before)
            end = first + len(body)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _last_text(lines: list[str]) -> str:
    """The last paragraph of ``lines``."""
    paragraphs = re.split(r"\n\s*\n", "\n".join(lines).strip())
    return paragraphs[-1].strip() if paragraphs else ""


def _html(text: str) -> list[Block]:
    reader = _Html()
    reader.feed(text)
    reader.close()
    return reader.blocks


class _Html(HTMLParser):
    """Collects ``<pre>`` elements and the text before them."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.blocks: list[Block] = []
        self._depth = 0
        self._code: list[str] = []
        self._text: list[str] = []
        self._first = 0
        self._label = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "pre":
            if not self._depth:
                self._code, self._first, self._label = [], self.getpos()[0], ""
            self._depth += 1
        elif tag in ("p", "h1", "h2", "h3", "h4", "li"):
            self._text = []
        if self._depth or tag == "div":
            self._label = next((value or "" for key, value in attrs if key == "class"), "") or self._label

    def handle_endtag(self, tag: str) -> None:
        if tag == "pre" and self._depth:
            self._depth -= 1
            body = "".join(self._code)
            if not self._depth and body.strip():
                lead = len(body) - len(body.lstrip("\n"))
                before = " ".join("".join(self._text).split())
                self.blocks.append(
                    Block(textwrap.dedent(body.strip("\n")), self._first + lead, 0, self._label, before)
                )
                self._text = []

    def handle_data(self, data: str) -> None:
        (self._code if self._depth else self._text).append(data)
