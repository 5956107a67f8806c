"""What a job runs, read from its files: whether it is there, what it imports, and for which machines it was built.

``PROGRAM`` finds what is wrong with it as far as a login node can tell.
"""

from __future__ import annotations

import ast
import importlib.machinery
import importlib.util
import re
import shutil
import struct
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from rankup.core import shell
from rankup.core.nearest import nearest
from rankup.findings.engine import Source
from rankup.findings.finding import Finding, Severity
from rankup.resolve.resolved import Resolved
from rankup.spec.jobspec import JobSpec

# e_machine in the header of an ELF file → uname -m.
_MACHINES = {0x3E: "x86_64", 0xB7: "aarch64", 0x15: "ppc64le"}


def _script(job: Resolved) -> Iterator[Finding]:
    """A script that does not exist, or a program that nothing could bring."""
    spec = job.spec
    first = spec.command[0]
    path = spec.folder / first
    if first == "-m" or (Path(first).is_absolute() and spec.container):
        return
    if path.exists() and (spec.is_python or not path.is_dir()):
        return
    is_program = "/" not in first and path.suffix != ".py" and first not in {".", ".."}
    if is_program and (_brings_programs(spec) or shutil.which(first, path=job.env.get("PATH", ""))):
        return
    yield script_not_found(spec.folder, first)


def _module(job: Resolved) -> Iterator[Finding]:
    """A module that this Python does not find, if this Python runs the job."""
    spec = job.spec
    if spec.command[0] != "-m":
        return
    if len(spec.command) == 1:
        yield Finding(
            "no-script",
            Severity.ERROR,
            "-m requires the name of a module",
            fix="rankup submit -m package.module",
        )
    elif spec.python == sys.executable and not (
        _brings_programs(spec) or spec.env.keys() & {"PYTHONPATH"} or "PYTHONPATH" in job.env
    ):
        module = spec.command[1]
        if not has_module(module, [str(spec.folder), *sys.path]):
            yield Finding(
                "module-not-found",
                Severity.ERROR,
                f"module not found: {module!r}",
                place=f"looked in {spec.folder} and in {spec.python}",
                fix="--venv, --conda, --module or --container, if the job's environment has it",
            )


def _text(job: Resolved) -> Iterator[Finding]:
    """A script and a job.toml are UTF-8; ``rankup run`` takes any bytes."""
    spec = job.spec
    paths = (str(spec.folder), str(spec.runs_root))
    for text in (*spec.command, *spec.env.values(), *spec.pre, spec.python, *paths):
        if any(0xD800 <= ord(c) < 0xE000 for c in text):
            yield Finding(
                "bad-text",
                Severity.ERROR,
                f"{text!r} is not UTF-8, which a job's script and its job.toml must be",
                fix="give it another name; rankup run takes it as it is",
            )


def _bash(job: Resolved) -> Iterator[Finding]:
    """Lines of bash that the job's bash cannot read: a quote without its end hides all that follows in the script."""
    for key, name in (("pre_modules", "--pre-modules"), ("pre", "--pre")):
        if lines := getattr(job.spec, key):
            done = shell.run(["bash", "-n"], stdin="\n".join(lines) + "\n", timeout=10)
            if done.code == 2:
                yield Finding(
                    "bad-bash",
                    Severity.ERROR,
                    f"{name} is not valid bash",
                    place=f"{key}: {job.origin[key]}",
                    why=done.err.strip().rpartition("\n")[2].removeprefix("bash: "),
                    fix="all lines together must be complete: quotes, if … fi",
                )


PROGRAM: Mapping[str, Source[Resolved]] = {
    "script-not-found": _script,
    "module-not-found": _module,
    "bad-text": _text,
    "bad-bash": _bash,
}


def script_not_found(folder: Path, script: str) -> Finding:
    """What ``script`` lacks: the file itself, or, if it is a folder, the file that Python would start."""
    path = folder / script
    if not path.is_dir():
        message = f"script not found: {script!r}{nearest_script(Path(script), folder)}"
        return Finding("script-not-found", Severity.ERROR, message, place=f"looked in {path.parent}")
    message = f"script not found: {script!r} is a folder without __main__.py"
    scripts = sorted(str(Path(script) / beside.name) for beside in path.glob("*.py"))[:3]
    fix = f"name the script in it{': ' if scripts else ''}{' or '.join(scripts)}"
    return Finding("script-not-found", Severity.ERROR, message, place=f"looked in {path.resolve()}", fix=fix)


def nearest_script(script: Path, folder: Path) -> str:
    """``"; did you mean 'train.py'?"`` for the file beside ``script`` with the nearest name; "" if none is near."""
    beside = (folder / script).parent
    names = [path.name for path in beside.iterdir() if path.is_file()] if beside.is_dir() else []
    close = nearest(script.name, names)
    return f"; did you mean {str(script.with_name(close))!r}?" if close else ""


def has_module(name: str, path: Iterable[str]) -> bool:
    """Whether the package that ``name`` (dotted) begins with is in the folders of ``path``, or known to this Python."""
    top = name.partition(".")[0]
    if top in sys.modules or importlib.machinery.PathFinder.find_spec(top, [*path]):
        return True
    return (
        bool(top) and importlib.util.find_spec(top) is not None
    )  # editable installs have finders of their own


def _brings_programs(spec: JobSpec) -> bool:
    """Whether something that the job sets up may bring programs and modules that are not here."""
    return bool(spec.modules or spec.venv or spec.conda or spec.pixi or spec.container or spec.pre)


def imports_rankup(command: tuple[str, ...], folder: Path) -> bool:
    """Whether ``command`` starts a Python file, or ``-m`` a module below ``folder``, that imports rankup itself."""
    source = _source(command, folder)
    if source is None:
        return command[0] == "-m" and "".join(command[1:2]).partition(".")[0] == "rankup"
    try:
        tree = ast.parse(source.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return False  # unreadable here, or not Python
    return any("rankup" in _packages(node) for node in ast.walk(tree))


def _source(command: tuple[str, ...], folder: Path) -> Path | None:
    if command[0] == "-m":
        path = folder.joinpath(*command[1].split(".")) if len(command) > 1 else folder
        candidates = [path.with_suffix(".py"), path / "__main__.py"]
    else:
        path = folder / command[0]
        candidates = [path / "__main__.py", *([path] if path.suffix == ".py" else [])]
    return next((file for file in candidates if file.is_file()), None)


def _packages(node: ast.AST) -> set[str]:
    """The packages that a statement imports: their first names."""
    if isinstance(node, ast.Import):
        return {alias.name.partition(".")[0] for alias in node.names}
    if isinstance(node, ast.ImportFrom) and not node.level:
        return {(node.module or "").partition(".")[0]}
    return set()


def environment_version(venv: Path) -> str:
    """The Python of a virtual environment: ``3.11.7`` from its ``pyvenv.cfg``; "" if that does not say."""
    try:
        text = (venv / "pyvenv.cfg").read_text()
    except OSError:
        return ""
    version = re.search(r"^version(?:_info)?\s*=\s*([\d.]+)", text, re.MULTILINE)
    return version[1].rstrip(".") if version else ""


def architecture(program: Path) -> str:
    """What ``uname -m`` prints on machines that ``program`` runs on; "" for a file that is not an ELF program."""
    try:
        with program.open("rb") as file:
            header = file.read(20)
    except OSError:
        return ""
    if len(header) < 20 or header[:4] != b"\x7fELF":
        return ""
    order = "<" if header[5] == 1 else ">"
    return _MACHINES.get(struct.unpack_from(f"{order}H", header, 18)[0], "")
