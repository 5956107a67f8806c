"""What a virtual environment is, read from its files: its Python's version, and the processor it was built for."""

from __future__ import annotations

import re
import struct
from pathlib import Path

# e_machine in the header of an ELF file → uname -m.
_MACHINES = {0x3E: "x86_64", 0xB7: "aarch64", 0x15: "ppc64le"}


def environment_version(venv: Path) -> str:
    """``3.11.7`` from ``pyvenv.cfg``; "" where it does not say."""
    try:
        text = (venv / "pyvenv.cfg").read_text()
    except OSError:
        return ""
    said = re.search(r"^version(?:_info)?\s*=\s*([\d.]+)", text, re.MULTILINE)
    return said[1].rstrip(".") if said else ""


def architecture(program: Path) -> str:
    """What ``uname -m`` says where ``program`` runs; "" for a file that is no ELF program."""
    try:
        with program.open("rb") as file:
            header = file.read(20)
    except OSError:
        return ""
    if len(header) < 20 or header[:4] != b"\x7fELF":
        return ""
    order = "<" if header[5] == 1 else ">"
    return _MACHINES.get(struct.unpack_from(f"{order}H", header, 18)[0], "")
