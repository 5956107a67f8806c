"""Completion in the real shells: commands, options, choices, sites and runs; a Tab starts no Python."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from rankup.cli.completion import SHELLS, script_for

BASH = """
source "$SCRIPT"
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _rankup; printf '%s\\n' "${COMPREPLY[@]}"
"""

CASES = [
    (["rankup", "sna"], {"snapshots"}, set()),
    (["rankup", "snapshots", ""], {"ls", "verify", "diff", "export"}, {"run"}),
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
    """A folder with a script, a profile of a site and a run; without Python on PATH."""
    for name in ("train.py", ".rankup/sites/mine.toml", "runs/bert/20260301-101500-a1b2/job.toml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "bin").mkdir()
    for tool in ("sort", "bash", "uname", "mkdir"):
        (tmp_path / "bin" / tool).symlink_to(shutil.which(tool))
    return tmp_path


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
    assert output([shutil.which("bash"), "-c", BASH, "bash", *words], scripts / "bash", project) == {"olivia"}


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


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_zsh_reads_the_script_and_declares_a_function_for_each_command(scripts, project):
    code = (
        'autoload -Uz compinit; compinit -u -D; source "$SCRIPT"; '
        "print -l ${(k)functions[(I)_rankup*]}; print $_comps[rankup]"
    )
    found = output([shutil.which("zsh"), "-f", "-c", code], scripts / "zsh", project)
    assert {"_rankup", "_rankup_command_run", "_rankup_command_snapshots_ls", "_rankup_sites"} <= found


def test_the_bash_script_is_one_that_bash_can_read(scripts):
    for shell in SHELLS:
        if shutil.which(shell):
            subprocess.run([shell, "-n", str(scripts / shell)], check=True, env=dict(os.environ))
