"""What a lab of tests has besides that of ``rankup drill --here``: a folder, and a user whom this machine lacks."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rankup.core.shell import Completed
from rankup.drill.lab.lab import Lab
from rankup.drill.lab.users import User

ALICE = 61999
REPOSITORY = Path(__file__).parents[1]
JOBS = Path(__file__).parent / "drill" / "jobs"


class WithAlice(Lab):
    """``shared`` is a folder that all nodes see, ``alice`` the user's home in it. The repository and its Python
    are seen too."""

    def __init__(self, nodes: int, **sizes: Any) -> None:
        visible = (REPOSITORY, Path(sys.prefix), Path(sys.base_prefix))
        super().__init__(nodes, visible=visible, **sizes)
        self.shared = self._state / "shared"
        self.alice = self.shared / "alice"
        self._alice = User("alice", ALICE, ALICE, str(self.alice))

    def run_as(
        self,
        host: str,
        argv: Sequence[str | Path],
        env: Mapping[str, str] | None,
        timeout: float,
        *,
        alice: bool,
        text: str = "",
    ) -> Completed:
        """In a clean environment with ``env``: as root in the shared folder, or as alice in her home."""
        user, folder = (self._alice, self.alice) if alice else (None, self.shared)
        clean = self.environment(env, alice=alice)
        return Lab.run(self, host, argv, clean, timeout, user=user, folder=folder, text=text)

    def environment(self, env: Mapping[str, str] | None = None, *, alice: bool) -> dict[str, str]:
        return {
            "PATH": f"{sysconfig.get_path('scripts')}:{self.path}",
            "HOME": str(self.alice if alice else self.shared),
            "USER": "alice" if alice else "root",
            "LANG": "C.UTF-8",
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            **(env or {}),
        }

    def project(self, name: str, *files: str) -> Path:
        """A folder of alice's, with ``files`` of tests/drill/jobs."""
        folder = self.alice / name
        folder.mkdir()
        for file in files:
            shutil.copy(JOBS / file, folder)
        for path in (folder, *folder.iterdir()):
            os.chown(path, ALICE, ALICE)
        return folder

    def _write_files(self) -> None:
        super()._write_files()
        self.shared.mkdir()
        self.alice.mkdir()
        os.chown(self.alice, ALICE, ALICE)
        for name, line in {
            "passwd": f"alice:x:{ALICE}:{ALICE}::{self.alice}:/bin/bash",
            "group": f"alice:x:{ALICE}:",
            "shadow": "alice:*:19000:0:99999:7:::",
        }.items():
            path = self._state / "etc" / name
            others = [each for each in path.read_text().splitlines() if not each.startswith("alice:")]
            path.write_text("\n".join([*others, line, ""]))
