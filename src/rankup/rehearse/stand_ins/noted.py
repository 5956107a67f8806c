"""Commands that are noted and not done: modules, conda, the network, installers, and what is not on this machine."""

from __future__ import annotations

import sys

from rankup.rehearse.stand_ins.context import Here

_GIT_NETWORK = ("clone", "fetch", "pull", "push", "lfs", "submodule", "remote", "ls-remote")


def main(here: Here) -> int:
    words = " ".join([here.name, *here.args])[:200]
    if here.name == "module":
        return _module(here, words)
    if here.name in ("conda", "mamba", "micromamba"):
        return _conda(here, words)
    if here.name == "git":
        command = next((word for word in here.args if not word.startswith("-")), "")
        if command not in _GIT_NETWORK:
            here.run_real("git")
    if here.name == "unknown-command":
        name = here.args[0] if here.args else ""
        here.note(f"{name} is not on this machine: it was taken for a command that works", "unknown")
        return 0
    here.note(f"{words}: noted, not done")
    return 0


def _module(here: Here, words: str) -> int:
    if here.args[:1] in (["list"], ["avail"], ["spider"], ["show"], ["whatis"]):
        print("Currently Loaded Modules: not known in a rehearsal", file=sys.stderr)
        return 0
    here.note(f"{words}: sets nothing here", "module")
    return 0


def _conda(here: Here, words: str) -> int:
    if here.args[:1] == ["shell.bash"] or here.args[:2] == ["shell.bash", "hook"]:
        print(": # conda's functions are those of the rehearsal")
        return 0
    if here.args[:1] == ["info"] and "--base" in here.args:
        print("/opt/conda")
        return 0
    if here.args[:1] == ["run"]:
        rest = here.args[1:]
        while rest and rest[0].startswith("-"):
            takes = rest[0] in ("-n", "--name", "-p", "--prefix", "--cwd")
            rest = rest[2:] if takes else rest[1:]
        here.note(f"{words}: runs with the Python of this machine")
        import os

        os.execvpe(rest[0], rest, here.env)
    here.note(f"{words}: sets nothing here", "module")
    return 0
