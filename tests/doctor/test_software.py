"""Which torch and NCCL an interpreter has, from the names and one file of its packages: nothing is imported."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rankup.doctor.probes.software import interpreter


def a_torch(folder: Path, version: str, nccl: str) -> Path:
    (folder / "torch").mkdir(parents=True)
    (folder / "torch" / "__init__.py").write_text("raise SystemExit('imported')\n")
    (folder / "torch" / "version.py").write_text(f"__version__ = '{version}'\ncuda: str = '12.6'\n")
    (folder / f"nvidia_nccl_cu12-{nccl}.dist-info").mkdir()
    return folder


def test_the_versions_of_torch_and_nccl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Of two installations the first on the path counts, as in an import."""
    first, second = (
        a_torch(tmp_path / "a", "2.6.0+cu126", "2.21.5"),
        a_torch(tmp_path / "b", "2.13.0", "2.29.2"),
    )
    monkeypatch.setenv("PYTHONPATH", f"{first}:{second}:{tmp_path / 'missing'}")
    facts = interpreter(sys.executable)
    assert (facts["torch"], facts["cuda"], facts["nccl"]) == ("2.6.0+cu126", "12.6", "2.21.5")
    assert facts["torch_file"] == str(first / "torch" / "version.py")


def test_an_interpreter_that_does_not_run():
    assert interpreter("/missing/python")["failed"]
