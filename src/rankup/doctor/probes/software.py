"""Versions and variables that must agree between nodes. Nothing is imported for it: torch alone would take seconds."""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

from rankup.core import shell
from rankup.doctor.plan import Plan

# Variables that change how ranks talk or compute. CUDA_VISIBLE_DEVICES and the like may differ between nodes.
_MATTER = re.compile(
    r"(NCCL|GLOO|TORCH|PYTORCH|OMP|MKL|KMP|FI|UCX|CXI|CUBLAS)_\w+|MASTER_(ADDR|PORT)|PYTHONPATH|LD_LIBRARY_PATH"
    r"|LD_PRELOAD|CUDA_HOME|VIRTUAL_ENV|CONDA_PREFIX|MKL_THREADING_LAYER|NVIDIA_TF32_OVERRIDE"
)
_SECRET = re.compile(r"TOKEN|SECRET|PASSWORD|CREDENTIAL|_KEY")
_NODE_OWN = re.compile(r"TORCHELASTIC_\w+|OMPI_\w+|FI_CXI_.*DEVICE.*")
# Printed by the interpreter of the job, which need not have rankup.
_ASK = (
    "import sys, json, importlib.util as u, platform, pathlib as p\n"
    "s = u.find_spec('torch')\n"
    "f = p.Path(s.origin).with_name('version.py') if s and s.origin else None\n"
    # Their folders' names tell the versions: to read each package's metadata takes long on a cluster's file system.
    "d = dict(x.name.removesuffix('.dist-info').rsplit('-', 1) for q in reversed(sys.path)\n"
    "         for x in p.Path(q).glob('nvidia_*-*.dist-info'))\n"
    "print(json.dumps([platform.python_version(), f.read_text() if f and f.exists() else '', str(f or ''), d]))\n"
)


def probe(plan: Plan, node: int) -> dict[str, Any]:
    facts: dict[str, Any] = {"variables": variables(), "executable": plan.python or sys.executable}
    facts |= interpreter(plan.python or sys.executable)
    facts["script"] = _digest(Path(plan.script)) if plan.script else None
    return facts


def variables() -> dict[str, str]:
    """Those that matter; of one that may hold a secret only a digest."""
    return {
        name: hashlib.sha256(value.encode("utf-8", "replace")).hexdigest()[:8]
        if _SECRET.search(name)
        else value
        for name, value in sorted(os.environ.items())
        if _MATTER.fullmatch(name) and not _NODE_OWN.fullmatch(name)
    }


def interpreter(python: str) -> dict[str, Any]:
    """Versions of Python and torch, or ``failed``: why the interpreter does not run here."""
    asked = shell.run([python, "-c", _ASK], timeout=5)
    try:
        # The last line: what a site's sitecustomize prints comes before it.
        version, text, file, packages = json.loads(asked.out.strip().splitlines()[-1])
    except (ValueError, IndexError, TypeError):
        said = asked.err.strip().splitlines()[-1:] or [f"exit code {asked.code}"]
        return {"failed": said[0][:300]}
    nccl = next((packages[name] for name in sorted(packages) if name.startswith("nvidia_nccl")), None)
    return {
        "python": version,
        "torch": _assigned(text, "__version__") if file else None,
        "torch_file": file or None,
        "cuda": _assigned(text, "cuda"),
        "nccl": nccl,
    }


def _assigned(text: str, name: str) -> str | None:
    """The text that torch/version.py assigns to ``name``."""
    match = re.search(rf"^{name}\b[^=\n]*= *['\"]([^'\"]*)['\"]", text, re.M)
    return match[1] if match else None


def _digest(path: Path) -> str:
    """Of the file's bytes, or why it cannot be read."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    except OSError as error:
        return f"unreadable: {error.strerror}"
