"""The script of ``rankup env create``: in a real bash, with a real pip for the good case and stand-ins for bad ones."""

from __future__ import annotations

import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from rankup.errors import RankupError
from rankup.script.env_build import Environment, render

ARCH = platform.machine()
# A Python that makes "environments" of itself, and whose torch is what $FAKE_TORCH says.
PYTHON = """\
#!/usr/bin/env bash
case "$*" in
  *"-m venv "*) mkdir -p "${@: -1}/bin" && cp "$0" "${@: -1}/bin/python" ;;
  *"-m pip"*"install"*) printf '%s\\n' "$@" >>"$CALLS"; exit "$FAKE_PIP" ;;
  *"-m pip"*) printf 'numpy==2.0\\ntorch==2.6.0\\ntorchvision==0.21\\n' ;;
  *find_spec*) echo "$FAKE_TORCH" ;;
  *) exec REAL "$@" ;;
esac
"""
NVIDIA_SMI = """\
#!/usr/bin/env bash
if [ "$*" = --list-gpus ]; then echo "GPU 0: NVIDIA GH200 (UUID: GPU-1)"; echo "GPU 1: NVIDIA GH200 (UUID: GPU-2)"
else echo "| NVIDIA-SMI 535.104   Driver Version: 535.104   CUDA Version: 12.2     |"; fi
"""


def program(folder: Path, name: str, text: str) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(text.replace("REAL", sys.executable))
    path.chmod(0o755)
    return path


def wheel(folder: Path, name: str, version: str, source: str) -> Path:
    """A package of one module as pip installs it, without a network."""
    path = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(f"{name}.py", source)
        file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{info}/RECORD", "")
    return path


@pytest.fixture
def build(tmp_path):
    """Runs the script with a stand-in for Python; returns what it said, and leaves pip's calls in ``calls``."""

    def run(
        found: str, *, gpus: bool = False, fake_pip: str = "0", **asked
    ) -> subprocess.CompletedProcess[str]:
        python = program(tmp_path / "bin", "python-of-a-test", PYTHON)
        program(tmp_path / "bin", "nvidia-smi", NVIDIA_SMI if gpus else "#!/bin/sh\nexit 9\n")
        program(tmp_path / "bin", "nvcc", "#!/bin/sh\necho Cuda compilation tools, release 11.8, V11.8.89\n")
        env = {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin", "CALLS": str(tmp_path / "calls")}
        env |= {"FAKE_TORCH": found, "FAKE_PIP": fake_pip, "HOME": str(tmp_path)}
        asked = {"folder": tmp_path / "envs", "name": "e", "python": str(python), **asked}
        script = render(Environment(**asked))
        return subprocess.run(["bash", "-c", script], env=env, capture_output=True, text=True, timeout=240)

    return run


@pytest.mark.slow
def test_a_real_environment_holds_the_chosen_torch_and_the_requirements(tmp_path):
    torch = wheel(tmp_path, "torch", "9.9", "import types; __version__ = '9.9+cpu'\n"
                  "version = types.SimpleNamespace(cuda=None)\n"
                  "cuda = types.SimpleNamespace(is_available=lambda: False)\n")  # fmt: skip
    other = wheel(tmp_path, "torch", "10.0", "raise SystemError('the wrong torch')")
    extra = wheel(tmp_path, "extra", "1.0", "")
    requirements = tmp_path / "requirements.txt"
    requirements.write_text("extra\ntorch\n")
    environment = Environment(
        folder=tmp_path / "my envs", name="e", python=sys.executable, torch=(str(torch),), cuda="cpu",
        requirements=requirements, wheels=tmp_path,
    )  # fmt: skip
    env = {**os.environ, "PIP_CONFIG_FILE": os.devnull}  # this machine's may forbid such a torch
    done = subprocess.run(
        ["bash", "-c", render(environment)], env=env, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert other.exists() and extra.exists()
    path = tmp_path / "my envs" / f"e-{ARCH}"
    facts = json.loads((path / "environment.json").read_text())
    assert facts["path"] == str(path) and facts["arch"] == ARCH
    assert (facts["torch"], facts["cuda"], facts["gpu_available"]) == ("9.9+cpu", None, False)
    assert facts["python"] == platform.python_version()
    code = "import extra, torch, sys; print(torch.__version__, sys.prefix)"
    asked = subprocess.run([path / "bin" / "python", "-c", code], capture_output=True, text=True)
    assert asked.stdout.split(maxsplit=1) == ["9.9+cpu", f"{path}\n"]


def test_torch_comes_from_its_index_and_requirements_may_not_replace_it(build, tmp_path):
    (tmp_path / "r.txt").write_text("numpy\n")
    done = build("2.6.0 12.6 no", torch=("torch==2.6.*", "torchvision"), torch_index="https://mirror.test/cu126",
                 requirements=tmp_path / "r.txt", cuda="12.6")  # fmt: skip
    assert done.returncode == 0, done.stderr
    first, second = (tmp_path / "calls").read_text().split("-m\npip\n")[1:]
    assert first.splitlines()[-4:] == [
        "--index-url",
        "https://mirror.test/cu126",
        "torch==2.6.*",
        "torchvision",
    ]
    assert "--index-url" not in second
    path = tmp_path / "envs" / f"e-{ARCH}"
    assert second.splitlines()[-4:] == [
        "--constraint",
        f"{path}/torch.txt",
        "--requirement",
        f"{tmp_path}/r.txt",
    ]
    assert (path / "torch.txt").read_text() == "torch==2.6.0\ntorchvision==0.21\n"


@pytest.mark.parametrize(
    ("torch", "gpus", "cuda", "why"),
    [
        ("2.9.0 13.0 no", True, "auto", "the driver here runs CUDA 12.2: too old for torch 2.9.0"),
        ("2.6.0 none no", True, "auto", "there are 2 GPUs here, and torch 2.6.0 is built without CUDA"),
        ("2.6.0 12.6 no", True, "auto", "torch 2.6.0 for CUDA 12.6 sees none of the 2 GPUs here"),
        ("2.6.0 12.4 yes", True, "12.6", "torch 2.6.0 is built for CUDA 12.4, and 12.6 was asked for"),
        ("2.6.0 none no", False, "12.6", "torch 2.6.0 is built for CUDA none, and 12.6 was asked for"),
    ],
)
def test_a_torch_that_does_not_suit_the_node_is_one_error_and_nothing_is_left(
    build, tmp_path, torch, gpus, cuda, why
):
    done = build(torch, gpus=gpus, cuda=cuda)
    assert done.returncode == 1
    assert f"error: {why}" in done.stderr and "hint:" in done.stderr
    assert list((tmp_path / "envs").iterdir()) == []


@pytest.mark.parametrize(
    ("torch", "gpus", "cuda"),
    [
        ("2.6.0 12.6 yes", True, "auto"),  # a later minor version than the driver's: runs
        ("2.6.0 11.8 yes", True, "auto"),
        ("2.6.0 none no", True, "cpu"),  # GPUs are there, and not wanted
        ("none none no", True, "auto"),  # no torch at all: --torch none
    ],
)
def test_a_torch_that_suits_the_node_is_kept(build, tmp_path, torch, gpus, cuda):
    done = build(torch, gpus=gpus, cuda=cuda)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "envs" / f"e-{ARCH}" / "environment.json").exists()


def test_a_compiler_of_another_cuda_is_worth_a_note(build):
    assert "note: nvcc is of CUDA 11.8 and torch of 12.6" in build("2.6.0 12.6 yes", gpus=True).stdout
    assert "nvcc" not in build("2.6.0 11.8 yes", gpus=True, name="other").stdout


def test_a_failing_pip_leaves_nothing(build, tmp_path):
    done = build("2.6.0 none no", fake_pip="1")
    assert done.returncode == 1 and "error: pip could not install torch" in done.stderr
    assert list((tmp_path / "envs").iterdir()) == []


def test_an_environment_that_is_there_is_never_touched(build, tmp_path):
    assert build("2.6.0 none no").returncode == 0
    path = tmp_path / "envs" / f"e-{ARCH}"
    before = sorted(path.rglob("*"))
    done = build("2.6.0 none no")
    assert done.returncode == 1 and f"error: {path} is there already" in done.stderr
    assert sorted(path.rglob("*")) == before


def test_what_another_attempt_has_begun_is_never_touched(build, tmp_path):
    path = tmp_path / "envs" / f"e-{ARCH}"
    (path / "bin").mkdir(parents=True)
    done = build("2.6.0 none no")
    assert done.returncode == 1 and f"error: cannot make {path}" in done.stderr
    assert (path / "bin").exists()


def test_a_python_that_is_not_there_is_one_error(build, tmp_path):
    done = build("none none no", python="python-9.99")
    assert done.returncode == 1 and "error: Python not found: python-9.99" in done.stderr
    assert not (tmp_path / "envs").exists()


@pytest.mark.parametrize(("module", "goes_on"), [("cuda 12", True), ("gone", False)])
def test_modules_are_loaded_first_and_a_failing_one_ends_it(tmp_path, module, goes_on):
    stand_in = 'module() { echo "$#: $*"; [ "$3" != gone ]; }\n'
    script = render(Environment(tmp_path / "envs", "e", python="python-9.99", modules=("gcc/9.4.0", module)))
    done = subprocess.run(["bash", "-c", stand_in + script], capture_output=True, text=True)
    assert done.stdout == f"3: load gcc/9.4.0 {module}\n"
    assert done.returncode == 1
    assert ("Python not found" in done.stderr) == goes_on


def test_a_signal_leaves_nothing(tmp_path):
    slow = program(tmp_path / "bin", "python-of-a-test",
                   '#!/bin/bash\nmkdir -p "${@: -1}/bin"; touch "${@: -1}/half"; sleep 600\n')  # fmt: skip
    script = render(Environment(tmp_path / "envs", "e", python=str(slow)))
    process = subprocess.Popen(["bash", "-c", script], start_new_session=True)
    half = tmp_path / "envs" / f"e-{ARCH}" / "half"
    deadline = time.monotonic() + 240
    while not half.exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGTERM)
    assert process.wait(timeout=240) == 143
    assert list((tmp_path / "envs").iterdir()) == []


NASTY = "a b'c\"$(touch ran)`touch ran`;&|\\*é"


def test_odd_values_arrive_as_they_are_and_execute_nothing(build, tmp_path):
    (tmp_path / NASTY).mkdir()
    (tmp_path / NASTY / "r $(x).txt").write_text("")
    done = build("none none no", folder=tmp_path / NASTY, torch=(NASTY, "-x"), torch_index=NASTY,
                 requirements=tmp_path / NASTY / "r $(x).txt")  # fmt: skip
    assert done.returncode == 0, done.stderr
    calls = (tmp_path / "calls").read_text().splitlines()
    assert calls[calls.index("--index-url") + 1 :][:3] == [NASTY, NASTY, "-x"]
    assert str(tmp_path / NASTY / "r $(x).txt") in calls
    assert (tmp_path / NASTY / f"e-{ARCH}" / "environment.json").exists()
    assert not list(tmp_path.rglob("ran")) and not Path("ran").exists()


@pytest.mark.parametrize("modules", [(), ("gcc/9.4.0", NASTY)])
def test_bash_and_shellcheck_find_nothing(tmp_path, modules):
    script = tmp_path / "script.sh"
    script.write_text(render(Environment(tmp_path / NASTY, "e", modules=modules, torch=(NASTY, "b"))))
    assert subprocess.run(["bash", "-n", script]).returncode == 0
    if not shutil.which("shellcheck"):
        pytest.skip("ShellCheck is not installed")
    done = subprocess.run(["shellcheck", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("field", "value", "code"),
    [
        ("name", "../up", "bad-environment-name"),
        ("cuda", "12", "bad-cuda-version"),
        ("requirements", Path("/nowhere/r.txt"), "requirements-not-found"),
    ],
)
def test_what_can_be_seen_to_be_wrong_is_said_before_anything_runs(tmp_path, field, value, code):
    with pytest.raises(RankupError) as raised:
        Environment(**{"folder": tmp_path, "name": "e", field: value})
    assert raised.value.code == code
