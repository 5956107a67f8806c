"""The blocks of a page → the job scripts and programs that a reader makes of them.

Labels of fences are often wrong, so the content decides. Code is often shown in pieces: the pieces of one program are
joined, and a program or a script of which a piece seems to be missing is marked as not complete.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from rankup.check.document import Document
from rankup.check.inputs import STARTS_RANKS, parses
from rankup.check.pages.blocks import Block, blocks_of
from rankup.check.pages.names import bound_names, undefined_names
from rankup.check.pages.notebook import KERNEL, notebook_page

_DIRECTIVE = re.compile(r"^\s*#(SBATCH|PBS|BSUB)\s", re.M)
_CODE = re.compile(r"^\s*(import|from|def|class|for|with|if|while)\s|[\w)\]]\s*=\s*|\w\(", re.M)
_BAD = re.compile(
    r"\b(don'?t|do not|never|avoid|incorrect(ly)?|wrong(ly)?|bad|broken|fails?|buggy|mistake|anti-?pattern|not work|"
    r"before:|instead of)\b|❌|✗|👎",
    re.I,
)
_OTHER = re.compile(
    r"\b(output|console|pycon|json|ya?ml|toml|ini|diff|c\+\+|cpp|dockerfile|makefile|xml|julia|r)\b", re.I
)
_ELLIPSIS = re.compile(r"^\s*(#\s*)?(\.\.\.|…|\[\.\.\.\]|<snip>)|(\.\.\.|…)\s*$", re.M)
_OF_A_PAGE = re.compile(r"^[ \t]*(- |```)", re.M)  # a list, another fence: no command begins so
_TO_FILL_IN = re.compile(r"(?<![<\w])<[A-Za-z][\w \-/.]*>")  # in a program; a shell has redirections besides
# A name that stands for a word that the reader fills in.
_FILLED_IN = re.compile(r"_\w+_|YOUR_\w+|[Yy]our_\w+|XXX+")
# What begins no line of Python: a session's prompt or output, a table.
_NO_CODE = re.compile(r"^\s*(?:>+ |\$ |\| |\+[-=]{3}|[-=]{4,}\s*$|Traceback \()", re.M)
_HERE = re.compile(
    r"^\s*cat\s*(?:>\s*(?P<a>\S+)\s*<<|<<)-?\s*(?P<q>['\"]?)(?P<end>\w+)(?P=q)\s*(?:>\s*(?P<b>\S+))?\s*$"
)
_SUBMIT = re.compile(
    r"^\s*(?:[$>%]\s*)?(?:sbatch|qsub)\s(?:.*\s)?(?P<name>[\w./-]+\.(?:sh|sbatch|slurm|pbs|job|bash))\s*$",
    re.M,
)
_SCRIPTS = (".sh", ".sbatch", ".slurm", ".pbs", ".job", ".bash")
#: What a page says before the next piece of a script that it has begun.
_GOES_ON = re.compile(
    r"\b(continu(e|es|ed|ing|ation)|go(es|ing)? on|(add|append)\b.*\bto|rest of)\b", re.I | re.S
)
_FILE_WORD = re.compile(r"[\w./-]+\.(?:py|sh|sbatch|slurm|pbs|job|bash)\b")


@dataclass(frozen=True)
class Piece:
    """A block of a page that is, or belongs to, a file."""

    block: Block
    name: str
    kind: str  # "job", "shell" or "program"


def page_documents(page: Document) -> tuple[list[Document], list[Document]]:
    """The job scripts and the programs of a page."""
    name = page.name or page.path
    if name.lower().endswith(".ipynb"):
        text, cells = notebook_page(page.text)
        page, name = replace(page, text=text, cells=cells), "notebook.md"
    scripts: list[tuple[list[Piece], bool]] = []  # and whether the page says that the pieces are one script
    groups: list[list[Piece]] = []
    last: Piece | None = None
    for piece in _pieces(blocks_of(page.text.replace("\r\n", "\n"), name)):
        latest = scripts[-1][0] if scripts else []
        if piece.kind == "program":
            _group(groups, piece)
        elif script := next(
            (one for one, _ in reversed(scripts) if _continues(one, piece, one is latest)), None
        ):
            script.append(piece)
        elif piece.kind == "job":
            scripts.append(([piece], True))
        elif latest and latest[-1] is last and not _commands(_text(latest)):
            scripts[-1] = [*latest, piece], False
        last = piece
    jobs = [_joined(page, script, complete=complete) for script, complete in scripts]
    if len(jobs) == 1 and len(submitted := _submitted(page)) == 1:
        jobs = [replace(jobs[0], submitted=submitted.pop())]
    return jobs, [document for group in groups for document in _programs(page, group)]


def _continues(script: list[Piece], piece: Piece, latest: bool) -> bool:
    """Whether the page says that a piece goes on with a script, by its name or by words.

    A script that starts ranks is whole: what follows is a variant of a part.
    """
    text, known = piece.block.text, script[0].name
    if STARTS_RANKS.search(_text(script)) or re.search(r"^#!", text, re.M) or _SUBMIT.search(text):
        return False
    if piece.kind == "job" and _commands(_text(script)):
        return False
    if own := _name(replace(piece.block, before=""), _SCRIPTS):
        return own == known and known not in text.partition("\n")[2]
    said = piece.block.before
    names = [word for word in _FILE_WORD.findall(said) if word.endswith(_SCRIPTS)]
    meant = (
        known in names if known and names else latest and (names or re.search(r"\b(script|job|file)\b", said))
    )
    return bool(meant and _GOES_ON.search(said))


def _text(pieces: list[Piece]) -> str:
    return "\n".join(piece.block.text for piece in pieces)


def _submitted(page: Document) -> set[str]:
    """The names of the scripts that a page submits."""
    return {match["name"] for match in _SUBMIT.finditer(page.text)}


def _pieces(blocks: Iterable[Block]) -> Iterator[Piece]:
    for outer in blocks:
        if _bad(outer):
            continue
        for block in _here_documents(outer):
            text = block.text
            if re.search(r"^>>> ", text, re.M):
                continue
            if _OF_A_PAGE.search(text):
                continue
            if _DIRECTIVE.search(text):
                yield Piece(block, _name(block, _SCRIPTS), "job")
            elif _OTHER.search(block.label):
                continue
            elif KERNEL in block.label:
                yield Piece(block, KERNEL, "program")
            elif _is_program(block):
                yield Piece(block, _name(block, (".py",)), "program")
            elif not re.search(r"^\s*[$>%] ", text, re.M):
                yield Piece(block, "", "shell")


def _bad(block: Block) -> bool:
    """Whether the page says that this is how one must not write it."""
    sentence = re.split(r"(?<=[.!?])\s+", block.before)[-1] if block.before else ""
    first = block.text.lstrip().split("\n", 1)[0]
    return bool(
        _BAD.search(sentence)
        or (first.startswith("#") and _BAD.search(first))
        or "bad" in block.label.split()
    )


def _is_program(block: Block) -> bool:
    text = block.text
    says_python = re.search(r"\b(python|py|python3|ipython)\b", block.label, re.I)
    if re.search(r"^\s*(import|from)\s+\w", text, re.M) and re.search(
        r"\btorch\b|\blightning\b|\baccelerat", text
    ):
        return bool(says_python) or parses(text)
    return bool(_CODE.search(text)) and (parses(text) if not says_python else True) and "(" in text


def _name(block: Block, suffixes: tuple[str, ...]) -> str:
    """The file name that the page gives to a block: in the fence, in its first comment, or just before it."""
    first = block.text.lstrip().split("\n", 1)[0]
    heads = [
        block.label.replace(":", " ").replace("=", " ").replace('"', " "),
        first if first.startswith("#") else "",
    ]
    heads.append(block.before.split("\n")[-1])
    for head in heads:
        found = [word for word in _FILE_WORD.findall(head) if word.endswith(suffixes)]
        if len(set(found)) == 1 and not head.startswith("#!"):
            return str(found[0])
    return ""


def _here_documents(block: Block) -> Iterator[Block]:
    """The files that a block of shell commands writes by ``cat > FILE <<EOF``, or the block itself."""
    lines = block.text.split("\n")
    found = False
    number = 0
    while number < len(lines):
        match = _HERE.match(lines[number])
        number += 1
        if match is None or not (name := match["a"] or match["b"]):
            continue
        first = number
        while number < len(lines) and lines[number].strip() != match["end"]:
            number += 1
        found = True
        body = "\n".join(lines[first:number])
        if not match["q"]:  # the shell takes one backslash away
            body = re.sub(r"\\([$`\\])", r"\1", body)
        yield replace(block, text=body, first=block.first + first, label=name, before="")
    if not found:
        yield block


def _group(groups: list[list[Piece]], piece: Piece) -> None:
    """Put a piece of a program to those it belongs to."""
    if piece.name:
        for group in groups:
            if group[0].name == piece.name and (piece.name == KERNEL or not _whole(piece.block.text)):
                group.append(piece)
                return
        groups.append([piece])
    elif not groups or _begins(piece.block.text) or not _belongs(groups[-1], piece):
        groups.append([piece])
    else:
        groups[-1].append(piece)


def _belongs(group: list[Piece], piece: Piece) -> bool:
    """Whether a piece uses what the pieces before it define, or the other way round; if it can be read alone."""
    before = _text(group)
    if not parses(before) or not parses(piece.block.text):
        return True
    first, second = ast.parse(before), ast.parse(piece.block.text)
    return bool(undefined_names(second) & bound_names(first) or undefined_names(first) & bound_names(second))


def _begins(text: str) -> bool:
    """Whether a piece begins a program: it imports torch, or it is one by itself."""
    return bool(
        re.search(r"^(import torch\b|from torch\b|import lightning|from accelerate)", text, re.M)
    ) or _whole(text)


def _whole(text: str) -> bool:
    if not parses(text):
        return False
    tree = ast.parse(text)
    imports = any(isinstance(node, (ast.Import, ast.ImportFrom)) for node in tree.body)
    return imports and all(_FILLED_IN.fullmatch(name) for name in undefined_names(tree))


def _filled_in(text: str) -> str:
    """A program with a name that nobody knows for each word to fill in; those inside of texts are part of them."""
    if parses(text):
        return text
    filled = _TO_FILL_IN.sub(lambda found: re.sub(r"\W", "_", found[0]), text)
    return filled if parses(filled) else text


def _programs(page: Document, group: list[Piece]) -> Iterator[Document]:
    """One program of all pieces; if they do not fit together, each piece alone."""
    together = _joined(page, group, complete=True)
    if parses(together.text):
        yield replace(together, complete=together.complete and _whole(together.text))
        return
    alone_and_whole = len(group) == 1 and _begins(together.text) and together.complete
    if alone_and_whole and together.text.count("\n") >= 10 and not _NO_CODE.search(together.text):
        yield together  # a whole program that is not Python: what a reader copies does not start
        return
    for piece in group:
        alone = _joined(page, [piece], complete=False)
        if parses(alone.text):
            yield alone


def _joined(page: Document, pieces: list[Piece], *, complete: bool) -> Document:
    lines = [
        piece.block.first + number for piece in pieces for number in range(piece.block.text.count("\n") + 1)
    ]
    text = _text(pieces) + "\n"
    whole = complete and not _ELLIPSIS.search(text)
    if pieces[0].kind == "program":
        text = _filled_in(text)
    name = next((piece.name for piece in pieces if piece.name), "")
    return Document(page.path, text, whole, (*lines, lines[-1]), page.cells, pieces[0].block.indent, name)


def _commands(text: str) -> bool:
    """Whether a job script has anything beside directives, comments and settings of the environment."""
    return any(line.strip() and not line.lstrip().startswith("#") for line in text.split("\n"))
