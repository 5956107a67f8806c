"""What rankup says under a code, read from the places of its own source that say it: no text is written twice.

A place is a call (``RankupError("in-use", …)``), a row in Python that begins with a code, or a table in TOML. What is
known only when it is said has a name in ``<>``, or is ``…``; a text of nothing else is left out.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from rankup.core.toml_file import read_toml

PACKAGE = Path(__file__).parents[1]
#: Who says something under a code → the names of its first arguments.
_SPEAKERS = {
    "RankupError": ("code", "message"),
    "Finding": ("code", "severity", "message", "place", "why", "fix"),
    "Refusal": ("code", "message", "hint"),
    "ErrorRow": ("pattern", "code", "message", "hint"),
    "only_one": (),
    "take": (),
}
#: The fields of ``Said`` → what the speakers, and the tables in TOML, call them.
_FIELDS = {"message": ("message", "busy", "what"), "why": ("why", "cause"), "hint": ("hint", "fix")}
_LATER = re.compile(r"<\w+>|…")
_CODE = re.compile(r"[a-z0-9]+(-([a-z0-9]+|<\w+>|…))*")
_COMPOSED = r'(RankupError|Finding)\(\s*f"'  # a code of which a part is known only when it is said
_LABEL = re.compile(r"\{(?:\w+\.)*(\w+)[^}\n]*\}")  # of str.format

Scope = Mapping[str, list[ast.expr]]


@dataclass(frozen=True)
class Said:
    """One text, as the place has it. ``source`` is the file, below the package."""

    code: str
    message: str
    why: str
    hint: str
    source: str

    def lines(self) -> list[str]:
        texts = {"": self.message, "why:   ": self.why, "hint:  ": self.hint, "from:  ": self.source}
        return [f"  {label}{text}" for label, text in texts.items() if text]


def page_of(code: str, said: Iterable[Said]) -> str:
    """What ``rankup explain CODE`` prints."""
    return "\n".join([code, *(line for one in said for line in one.lines())])


def said_under(code: str) -> list[Said]:
    """The texts under ``code``; [] if nobody says it."""
    exactly = [one for one in _said(re.escape(code)) if one.code == code]
    return exactly or [one for one in _said(_COMPOSED) if _stands_for(one.code, code)]


def all_said() -> dict[str, list[Said]]:
    """code → its texts, by the names of the codes."""
    found: dict[str, list[Said]] = {}
    for one in _said(""):
        found.setdefault(one.code, []).append(one)
    return dict(sorted(found.items()))


def _stands_for(pattern: str, code: str) -> bool:
    return re.fullmatch(_LATER.sub(".+", pattern), code) is not None


def _said(words: str) -> list[Said]:
    """Each text once, of the files in which the pattern ``words`` is found."""
    found: dict[Said, None] = {}
    for path in sorted(PACKAGE.rglob("*")):
        if path.suffix in (".py", ".toml") and re.search(words, text := path.read_text()):
            source = path.relative_to(PACKAGE).as_posix()
            said = said_in_python(text, source) if path.suffix == ".py" else _said_in_toml(path, source)
            found.update(dict.fromkeys(said))
    worded = {one.code for one in found if one.message or one.why or one.hint}
    return [one for one in found if one.message or one.why or one.hint or one.code not in worded]


def _said_in_toml(path: Path, source: str) -> Iterator[Said]:
    for code, row in read_toml(path, "table").items():
        if isinstance(row, dict):
            texts = {
                field: next((_spaced(row[name]) for name in names if isinstance(row.get(name), str)), "")
                for field, names in _FIELDS.items()
            }
            if texts["message"]:
                yield Said(code, **texts, source=source)


def said_in_python(text: str, source: str) -> Iterator[Said]:
    """What a module says, by calls and by rows that begin with a code."""
    tree = ast.parse(text)
    for given, scope in _places(tree, tree):
        names = _assigned(scope)
        codes = _texts(given.get("code"), names)
        if not any(map(_CODE.fullmatch, codes)):
            continue
        passed = {**_passed(scope, tree), **names}
        texts = [dict.fromkeys(filter(None, _texts(given.get(name), passed))) for name in _FIELDS]
        message, why, hint = (" | ".join(filter(_has_words, one)) for one in texts)
        for code in codes:
            if _CODE.fullmatch(code) and texts[0]:
                yield Said(code, message, why, hint, source)


def _has_words(text: str) -> bool:
    """Whether something of ``text`` is known before it is said."""
    return re.search(r"\w", _LATER.sub("", text)) is not None


def _places(node: ast.AST, scope: ast.AST) -> Iterator[tuple[dict[str, ast.expr], ast.AST]]:
    """What each place within ``node`` gives, and the function or module in which it is."""
    for child in ast.iter_child_nodes(node):
        if given := _given(child):
            yield given, scope
        yield from _places(child, child if isinstance(child, ast.FunctionDef) else scope)


def _given(node: ast.AST) -> dict[str, ast.expr]:
    """code, message, why and hint, as far as ``node`` is a place that gives them; {} for any other."""
    if isinstance(node, ast.Tuple):
        texts = [one for one in node.elts if isinstance(one, (ast.Constant, ast.JoinedStr, ast.Name))]
        begins = len(texts) > 2 and isinstance(texts[0], ast.Constant) and "-" in str(texts[0].value)
        sentence = begins and any(" " in text for text in _texts(texts[1], {}))
        return dict(zip(("code", "message", "hint"), texts, strict=False)) if sentence else {}
    if not isinstance(node, ast.Call):
        return {}
    speaker = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if speaker not in _SPEAKERS:
        return {}
    given = dict(zip(_SPEAKERS[speaker], node.args, strict=False))
    given |= {one.arg: one.value for one in node.keywords if one.arg}
    known = {field: given[name] for field, names in _FIELDS.items() for name in names if name in given}
    return known | {"code": given["code"]} if "code" in given else {}


def _assigned(scope: ast.AST) -> Scope:
    """name → what is assigned to it in ``scope``."""
    found: dict[str, list[ast.expr]] = {}
    for node in ast.walk(scope):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                pairs = [(target, node.value)]
                if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                    pairs = list(zip(target.elts, node.value.elts, strict=False))
                for name, value in pairs:
                    if isinstance(name, ast.Name):
                        found.setdefault(name.id, []).append(value)
    return found


def _passed(scope: ast.AST, tree: ast.AST) -> Scope:
    """parameter → what the calls of the function ``scope`` within its module pass, in words of their own places."""
    if not isinstance(scope, ast.FunctionDef):
        return {}
    found: dict[str, list[ast.expr]] = {}
    for caller in (
        node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node is not scope
    ):
        for call in ast.walk(caller):
            if isinstance(call, ast.Call) and getattr(call.func, "id", "") == scope.name:
                given = dict(zip((one.arg for one in scope.args.args), call.args, strict=False))
                given |= {one.arg: one.value for one in call.keywords if one.arg}
                for name, value in given.items():
                    found.setdefault(name, []).extend(map(ast.Constant, _texts(value, _assigned(caller))))
    return found


def _texts(node: ast.expr | None, names: Scope) -> list[str]:
    """The texts that an expression may be."""
    if node is None:
        return []
    if isinstance(node, ast.Constant):
        return [_spaced(str(node.value))] if node.value is not None else []
    if isinstance(node, ast.JoinedStr):
        return [_spaced("".join(map(_filled_in, node.values)))]
    if isinstance(node, ast.IfExp):
        return [*_texts(node.body, names), *_texts(node.orelse, names)]
    if isinstance(node, ast.BoolOp):
        return [text for value in node.values for text in _texts(value, names)]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = _texts(node.left, names)[:1], _texts(node.right, names)[:1]
        return [_spaced("".join([*left, *right]))]
    if isinstance(node, ast.Name) and node.id in names:
        others = {name: values for name, values in names.items() if name != node.id}
        return [text for value in names[node.id] for text in _texts(value, others)]
    return [_filled_in(node)]


def _filled_in(node: ast.expr) -> str:
    """A part of a text: itself, or the name of what comes there."""
    if isinstance(node, ast.FormattedValue):
        return _filled_in(node.value)
    if isinstance(node, ast.Constant):
        return str(node.value)
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    return f"<{name.strip('_')}>" if name else "…"


def _spaced(text: str) -> str:
    """``text`` on one line, with names in ``<>`` for the labels of ``str.format``."""
    return " ".join(_LABEL.sub(r"<\1>", text).split())
