"""Completion in the real shells: commands, options, choices, sites and runs; a Tab starts no Python."""

from __future__ import annotations

import contextlib
import os
import pty
import shutil
import subprocess
import threading

import pytest

from rankup.cli.completion import SHELLS, script_for

BASH = """
source "$SCRIPT"
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _rankup; printf '%s\\n' "${COMPREPLY[@]}"
"""

#: zsh completes only in its line editor. This completes each line of $LINES once the first prompt is there, and writes
#: the matches to $FOUND, below a line with "@@".
ZSHRC = """
autoload -Uz compinit; compinit -u -D; source "$SCRIPT"
compadd() {
    local -a matches
    [[ " $* " == *" -"[OAD]" "* ]] || { builtin compadd -A matches "$@"; print -rl -- $matches >> $FOUND }
    builtin compadd "$@"
}
zle-line-init() {
    for BUFFER in "${(@f)LINES_TO_COMPLETE}"; do
        CURSOR=$#BUFFER; print @@ >> $FOUND; zle list-choices
    done
    exit
}
zle -N zle-line-init
"""

CASES = [
    (["rankup", "sna"], {"snapshots"}, set()),
    (["rankup", "snapshots", ""], {"list", "verify", "diff", "export"}, {"run"}),
    (["rankup", "submit", "--gpus"], {"--gpus-per-node"}, {"--nodes"}),
    (["rankup", "submit", "--site", ""], {"olivia", "mine"}, {"train.py"}),
    (["rankup", "train", "mnist-cnn", "--precision", "b"], {"bf16"}, {"fp32"}),
    (["rankup", "train", ""], {"mnist-cnn"}, set()),
    (["rankup", "logs", ""], {"bert", "20260301-101500-a1b2"}, set()),
    (["rankup", "logs", "-f", ""], {"bert"}, set()),
    (["rankup", "snapshots", "export", "--part", "ema", ""], {"bert"}, set()),
    (["rankup", "sites", "show", ""], {"mine", "slurm"}, set()),
    (["rankup", "data", "fetch", "cif"], {"cifar100"}, {"mnist"}),
    (["rankup", "run", "--nproc-per-node", "2", "tr"], {"train.py"}, set()),
    (["rankup", "completion", ""], set(SHELLS), set()),
]


@pytest.fixture(scope="module")
def scripts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("completion")
    for shell in SHELLS:
        (folder / shell).write_text(script_for(shell))
    return folder


@pytest.fixture
def project(tmp_path):
    return make_project(tmp_path)


def make_project(folder):
    """A folder with a script, a profile of a site and a run; without Python on PATH."""
    for name in ("train.py", ".rankup/sites/mine.toml", "runs/bert/20260301-101500-a1b2/job.toml"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    (folder / "bin").mkdir()
    for tool in ("sort", "bash", "uname", "mkdir"):
        (folder / "bin" / tool).symlink_to(shutil.which(tool))
    return folder


def output(words, script, folder):
    env = {
        "PATH": str(folder / "bin"),
        "HOME": str(folder / "home"),
        "SCRIPT": str(script),
        "LC_ALL": "C.UTF-8",
    }
    done = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    return {line.partition("\t")[0] for line in done.stdout.splitlines()}


@pytest.mark.parametrize(("words", "among", "without"), CASES)
def test_bash(scripts, project, words, among, without):
    found = output([shutil.which("bash"), "-c", BASH, "bash", *words], scripts / "bash", project)
    assert among <= found
    assert not without & found


def test_bash_takes_a_value_behind_an_equals_sign(scripts, project):
    """Bash gives ``--site=ol`` as three words."""
    words = ["rankup", "submit", "--site", "=", "ol"]
    found = output([shutil.which("bash"), "-c", BASH, "bash", *words], scripts / "bash", project)
    assert found == {"olivia", "olivia@eessi", "olivia@module"}


def test_bash_leaves_the_arguments_of_a_script_to_files(scripts, project):
    words = ["rankup", "run", "--nproc-per-node", "2", "train.py", "--n"]
    assert output([shutil.which("bash"), "-c", BASH, "bash", *words], scripts / "bash", project) == {""}


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
@pytest.mark.parametrize(("words", "among", "without"), CASES)
def test_fish(scripts, project, words, among, without):
    line = " ".join(words)
    command = [shutil.which("fish"), "--no-config", "-c", f"source $SCRIPT; complete -C '{line}'"]
    found = output(command, scripts / "fish", project)
    assert among <= found
    assert not without & found


@pytest.fixture(scope="module")
def zsh(scripts, tmp_path_factory):
    """What zsh completes in each of ``CASES``, from one shell on a terminal of its own."""
    folder = make_project(tmp_path_factory.mktemp("zsh"))
    (folder / ".zshrc").write_text(ZSHRC)
    env = {
        "PATH": str(folder / "bin"),
        "HOME": str(folder),
        "ZDOTDIR": str(folder),
        "TERM": "dumb",
        "LC_ALL": "C.UTF-8",
        "SCRIPT": str(scripts / "zsh"),
        "FOUND": str(folder / "found"),
        "LINES_TO_COMPLETE": "\n".join(" ".join(words) for words, _, _ in CASES),
    }
    screen, terminal = pty.openpty()
    reader = threading.Thread(target=lambda: read_all(screen))  # a terminal that nobody reads fills up
    reader.start()
    try:
        done = [shutil.which("zsh"), "--no-global-rcs", "-i"]
        subprocess.run(
            done,
            cwd=folder,
            env=env,
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            start_new_session=True,
        )
    finally:
        os.close(terminal)
        reader.join()
        os.close(screen)
    _, *found = (folder / "found").read_text().split("@@\n")
    return [set(one.splitlines()) for one in found]


def read_all(screen):
    with contextlib.suppress(OSError):  # the other end is closed
        while os.read(screen, 4096):
            pass


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
@pytest.mark.parametrize("index", range(len(CASES)))
def test_zsh(zsh, index):
    words, among, without = CASES[index]
    assert among <= zsh[index], words
    assert not without & zsh[index]


def test_the_bash_script_is_one_that_bash_can_read(scripts):
    for shell in SHELLS:
        if shutil.which(shell):
            subprocess.run([shell, "-n", str(scripts / shell)], check=True, env=dict(os.environ))
