"""Standard input as srun, ssh and mpirun treat it: they read all of it, whether their command needs it or not."""

from __future__ import annotations

import os
import select
import stat
import sys
import tempfile

from rankup.rehearse.stand_ins.context import Here


def given_input(here: Here) -> str | None:
    """A file with what stands on standard input; None if there is nothing. It is gone for the script's other commands:
    so a ``while read host; do ssh $host …; done`` ends after its first round, here as there."""
    try:
        kind = os.fstat(0).st_mode
    except OSError:
        return None
    if not (stat.S_ISREG(kind) or stat.S_ISFIFO(kind)):
        return None
    data = b""
    while True:
        if stat.S_ISFIFO(kind) and not select.select([0], [], [], 0.5)[0]:
            break
        part = os.read(0, 1 << 16)
        data += part
        if not part or len(data) > 1 << 22:
            break
    if not data:
        return None
    with tempfile.NamedTemporaryFile(dir=here.scenario.scratch, prefix="stdin-", delete=False) as file:
        file.write(data)
    sys.stdin = None
    return file.name
