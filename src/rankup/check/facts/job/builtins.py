"""Builtins of the shell that change what follows: cd, set, source, eval, trap, read, export."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from rankup.check.facts.job.commands import EMPTY, Command, Output, Value, Variable
from rankup.check.facts.job.launches import path_of
from rankup.check.facts.job.shell import ShellReader
from rankup.check.facts.job.source import joined
from rankup.check.facts.job.words import fields

#: Variables that hold the folder from which the job was submitted.
HERE = frozenset({"SLURM_SUBMIT_DIR", "PBS_O_WORKDIR", "PWD", "LS_SUBCWD"})

#: Ends of files that set up an environment, and nothing that rules ask for.
_SETTING_UP = ("activate", "conda.sh", "bashrc", ".bash_profile", "lmod.sh")

_QUIET = frozenset(
    {"echo", "module", "ml", "mkdir", "sleep", "wait", "exit", "true", "false", ":", "rm", "cp", "mv"}
)
#: Commands that prepare a job and start nothing.
SETTINGS = _QUIET | frozenset(
    {
        "cd", "pushd", "popd", "set", "source", ".", "export", "unset", "declare", "readonly", "ulimit", "umask",
        "conda",
        "mamba", "hostname", "date", "scontrol", "head", "cat", "which", "nvidia-smi", "rocm-smi", "pwd", "ls", "env",
        "printenv", "printf", "setenv", "limit", "test", "[", "awk", "sed", "grep", "sort", "uniq", "wc", "cut", "tr",
        "shuf", "expr", "seq", "tail", "uname", "whoami", "id", "nproc", "df", "free", "dirname", "basename",
        "realpath",
    }
)  # fmt: skip


def builtin(runner: ShellReader, command: Command) -> bool:
    """Builtins that change what follows. Whether the command is one."""
    name, argv, state = command.name, command.argv, runner.state
    if name in ("cd", "pushd"):
        state.folder = _folder(argv, state.folder)
    elif name == "set":
        _set(runner, command)
    elif name in ("source", "."):
        target = argv[1] if len(argv) > 1 else EMPTY
        content = runner.files.get(target.text)
        if content is not None:
            runner.text(content)
        elif not target.tail.endswith(_SETTING_UP) and not runner.include(target):
            runner.sources_files = True
            path = path_of(target, state.folder, HERE)
            if path and path[0] != "/" and not state.conditional:  # others are the system's
                runner.not_found(target)
    elif name in ("setenv", "set") and len(argv) > 1 and (name == "setenv" or "=" in argv[1].head):  # csh
        known, equals, _ = argv[1].head.partition("=")
        value = argv[1].after(len(known) + 1) if equals else argv[2] if len(argv) > 2 else EMPTY
        runner.bind(known, value, argv[1].span, export=name == "setenv")
    elif name == "eval":
        with runner.changed(parent=command):
            runner.text(joined(argv[1:]))
    elif name == "trap":
        if len(argv) > 2 and argv[1].known != "-":
            with runner.changed(parent=command, function="trap"), runner.branch(), runner.own_scope():
                runner.text(argv[1])
    elif name in ("read", "mapfile", "readarray", "getopts", "printf"):
        names = (
            argv[2:3]
            if name == "printf" and command.args[:1] == ("-v",)
            else argv[1:]
            if name != "printf"
            else ()
        )
        for word in names:
            if re.fullmatch(r"[A-Za-z_]\w*", word.known or ""):
                runner.bind(word.known or "", EMPTY, word.span, certain=False)
        return name != "printf"
    elif name == "shift" and "@" in state.scope and not (state.in_loop or state.conditional):
        count = (command.args[0] if command.args else "1") or ""
        words = fields(list(state.scope["@"].value.atoms))
        runner.parameters(words[int(count) :] if re.fullmatch("[0-9]{1,3}", count) else [])
    elif name in ("unset", "shift", "export", "declare", "local", "typeset", "readonly"):
        for word in argv[1:]:  # `export "$X"` and the like, which the tree takes for a command
            known, _, _ = word.head.partition("=")
            if re.fullmatch(r"[A-Za-z_]\w*", known) and "=" in word.head:
                runner.bind(known, word.after(len(known) + 1), word.span, export=name == "export")
    else:
        return name in _QUIET
    return True


#: The letter and the name of an option of the shell → what of the state it sets.
_OPTIONS = {
    "e": "exits_on_error", "errexit": "exits_on_error", "u": "nounset", "nounset": "nounset", "a": "export_all",
    "allexport": "export_all", "pipefail": "pipefail",
}  # fmt: skip


def _set(runner: ShellReader, command: Command) -> None:
    args = [arg or "" for arg in command.args]
    for index, arg in enumerate(args):
        if re.fullmatch(r"[-+][a-zA-Z]+", arg):
            named = args[index + 1 : index + 2] if arg.endswith("o") else []
            for option in (*arg[1:], *named):
                if option in _OPTIONS:
                    setattr(runner.state, _OPTIONS[option], arg.startswith("-"))


def _folder(argv: tuple[Value, ...], folder: str | None) -> str | None:
    """The working directory after ``cd``, relative to the submit folder; None if nobody knows."""
    target = argv[1] if len(argv) > 1 else EMPTY
    atoms = target.atoms
    if atoms and isinstance(atoms[0], Variable) and atoms[0].name in HERE:
        rest = Value(atoms[1:]).known
        return (
            str(PurePosixPath(rest.lstrip("/")))
            if rest and rest.strip("/")
            else ""
            if rest is not None
            else None
        )
    if len(atoms) == 1 and isinstance(atoms[0], Output):
        return ""  # $(dirname "$0") and the like mean the script's folder
    known = target.known
    if known is None or known.startswith(("/", "~", "-")) or folder is None or not known:
        return None
    return str(PurePosixPath(folder, known)) if known not in (".", "./") else folder
