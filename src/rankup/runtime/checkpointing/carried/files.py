"""Files that the loop of a script writes by itself: a log of losses, a counter, the best loss in JSON, rows of SQLite.

No snapshot has them. After a kill, the steps that follow the snapshot are trained again: appended lines come twice, and
a file that is read and written again has counted these steps already. A file that the script opens anew before the loop
loses what was in it. Rank 0 says so in the resume, from the script's source.
"""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from rankup.runtime.call_site import place
from rankup.runtime.checkpointing.carried.messages import listed, warn
from rankup.runtime.checkpointing.carried.syntax import FUNCTIONS, dotted, loops_around, parsed
from rankup.runtime.tracing.script_variables import script_frames

_OPEN = ("open", "io.open", "gzip.open", "bz2.open", "lzma.open", "codecs.open")
_READ = ("torch.load", "np.load", "numpy.load")
_WRITTEN = {"torch.save": 1, "np.save": 0, "numpy.save": 0, "np.savez": 0, "numpy.savez": 0}  # which argument


@dataclass(frozen=True)
class WrittenFiles:
    """Lines of the script that write files in the loop at ``loop``. ``appended``: at their end. ``counted``: what was
    read from them before. ``emptied``: opened anew before the loop."""

    loop: int
    appended: tuple[int, ...]
    counted: tuple[int, ...]
    emptied: tuple[int, ...]


def warn_of_files(snapshot: str, *, stopped: bool) -> None:
    """In a resume from ``snapshot``, on rank 0. ``stopped``: no step was trained after it."""
    for frame in script_frames():
        path = frame.f_code.co_filename
        found = written_files("".join(linecache.getlines(path, frame.f_globals)), frame.f_lineno)
        if found is None:
            continue
        said = []
        if found.appended and not stopped:
            said.append(f"what was appended at {_at(path, found.appended)} since then comes twice")
        if found.counted and not stopped:
            said.append(
                f"what is read and written again at {_at(path, found.counted)} has counted these steps already"
            )
        if found.emptied:
            said.append(
                f'the file opened at {_at(path, found.emptied)} is emptied by that (mode "a" appends)'
            )
        if said:
            again = "" if stopped else f", and the steps after {snapshot} that were done are trained again"
            warn(
                f"the loop at {place(path, found.loop)} writes files that no snapshot has{again}: {'; '.join(said)}. "
                "run.register what the training reads, write run.global_step into each line and drop those of later "
                'steps, or log by run.log and rankup.init(log="csv")'
            )
        return


def _at(path: str, lines: Sequence[int]) -> str:
    return listed([place(path, line) for line in lines])


@lru_cache(maxsize=16)
def written_files(source: str, line: int) -> WrittenFiles | None:
    """Of the outermost loop around ``line``; None without one."""
    tree = parsed(source)
    loops, scope = loops_around(tree, line)
    if not loops:
        return None
    loop = loops[-1]
    appended: set[int] = set()
    counted: set[int] = set()
    parts = list(_parts(tree, loop))
    for part in parts:
        uses = [(call, *use) for call in _calls(part) if (use := _use(call)) is not None]
        appended |= {call.lineno for call, _, mode in uses if mode == "a"}
        for at, (call, file, mode) in enumerate(uses):
            earlier = [other for other, its, how in uses[:at] if its == file and how == "r"]
            if mode == "w" and any(not _exclusive(part, other, call) for other in earlier):
                counted.add(call.lineno)
    names = {
        name
        for part in parts
        for statement in part
        for each in ast.walk(statement)
        if isinstance(each, (ast.Name, ast.Attribute)) and (name := dotted(each))
    }
    opened = _opened_before(scope, loop)
    appended |= {at for name, (at, mode) in opened.items() if mode == "a" and name in names}
    emptied = {at for name, (at, mode) in opened.items() if mode == "w" and name in names}
    return WrittenFiles(loop.lineno, *(tuple(sorted(each)) for each in (appended, counted, emptied)))


def _parts(tree: ast.Module, loop: ast.For | ast.AsyncFor | ast.While) -> Iterator[list[ast.stmt]]:
    """The loop's body, and the functions of the script that it calls, by their last names."""
    known = {
        each.name: each
        for each in ast.walk(tree)
        if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef))
    }
    waiting, seen = [loop.body], set[str]()
    while waiting:
        part = waiting.pop()
        yield part
        for call in _calls(part):
            name = call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")
            if name in known and name not in seen:
                seen.add(name)
                waiting.append(known[name].body)


def _calls(part: Sequence[ast.stmt]) -> list[ast.Call]:
    """In the order of the text."""
    found = [each for statement in part for each in ast.walk(statement) if isinstance(each, ast.Call)]
    return sorted(found, key=lambda call: (call.lineno, call.col_offset))


def _use(call: ast.Call) -> tuple[str, str] | None:
    """(the file as the script writes it, "r", "w" or "a"); None if ``call`` opens none."""
    name, method = dotted(call.func), getattr(call.func, "attr", "")
    if name in _OPEN:
        return (ast.dump(call.args[0]), _mode(call, 1)) if call.args else None
    if name in _READ:
        return (ast.dump(call.args[0]), "r") if call.args else None
    if name in _WRITTEN:
        at = _WRITTEN[name]
        return (ast.dump(call.args[at]), "w") if len(call.args) > at else None
    if not isinstance(call.func, ast.Attribute):
        return None
    file = ast.dump(call.func.value)
    if method == "open":
        return file, _mode(call, 0)
    if method in ("read_text", "read_bytes"):
        return file, "r"
    if method in ("write_text", "write_bytes"):
        return file, "w"
    if method in ("execute", "executemany") and call.args:
        text = call.args[0].value if isinstance(call.args[0], ast.Constant) else ""
        return (file, "a") if str(text).lstrip().lower().startswith("insert into") else None
    return None


def _mode(call: ast.Call, at: int) -> str:
    given = (
        call.args[at]
        if len(call.args) > at
        else next((k.value for k in call.keywords if k.arg == "mode"), None)
    )
    mode = str(given.value) if isinstance(given, ast.Constant) else "r"
    return "a" if "a" in mode else "w" if "w" in mode else "r"


def _exclusive(part: Sequence[ast.stmt], read: ast.Call, write: ast.Call) -> bool:
    """Whether a pass that reads the file does not write it: a cache."""
    for each in (each for statement in part for each in ast.walk(statement)):
        if isinstance(each, (ast.If, ast.IfExp)):
            branches = (
                [[each.body], [each.orelse]] if isinstance(each, ast.IfExp) else [each.body, each.orelse]
            )
            held = [{id(inner) for one in branch for inner in ast.walk(one)} for branch in branches]
            for here, there, branch in ((held[0], held[1], branches[0]), (held[1], held[0], branches[1])):
                leaves = branch and isinstance(branch[-1], (ast.Return, ast.Continue))
                if id(read) in here and (id(write) in there or (leaves and id(write) not in here)):
                    return True
    return False


def _opened_before(scope: ast.AST, loop: ast.stmt) -> dict[str, tuple[int, str]]:
    """Names that hold a file that is opened before ``loop``, or a writer of one → (line, "a" or "w")."""
    found: dict[str, tuple[int, str]] = {}
    inner = {
        id(one)
        for each in ast.walk(scope)
        if isinstance(each, FUNCTIONS) and each is not scope
        for one in ast.walk(each)
    }
    for each in sorted(ast.walk(scope), key=lambda each: getattr(each, "lineno", 0)):
        if getattr(each, "lineno", loop.lineno) >= loop.lineno:
            continue
        pairs: list[tuple[ast.expr, ast.expr]] = []
        if isinstance(each, ast.Assign):
            pairs = [(target, each.value) for target in each.targets]
        elif isinstance(each, ast.With):
            inside = loop.lineno <= (each.end_lineno or 0)  # else it is closed by then
            pairs = [
                (item.optional_vars, item.context_expr)
                for item in each.items
                if item.optional_vars and inside
            ]
        for target, value in pairs:
            name = dotted(target)
            of_function = id(each) in inner and "." not in name
            if not name or of_function or not isinstance(value, ast.Call) or _has_own_name(value):
                continue
            use = _use(value)
            if use is not None and use[1] in "aw":
                found[name] = (value.lineno, use[1])
            elif holder := next((dotted(one) for one in value.args if dotted(one) in found), ""):
                found[name] = found[holder]
    return found


def _has_own_name(call: ast.Call) -> bool:
    """Whether each attempt seems to open another file: ``open(f"log-{time.time()}.csv", "w")``."""
    text = ast.unparse(call).lower()
    return any(word in text for word in ("time", "now(", "uuid", "getpid", "attempt", "restart"))
