"""What a sandbox shows of a large folder with a mount below it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rankup.rehearse import layout
from rankup.rehearse.layout import Layout


class Refusing:
    """Stands in for the C library: it overlays, and binds nothing, as the kernel with another user's mounts below."""

    def __init__(self) -> None:
        self.overlaid: list[Path] = []

    def mount(self, source: str, target: Path, kind: str | None, *_: Any) -> None:
        if kind != "overlay":
            raise OSError
        self.overlaid.append(target)

    def call(self, *_: Any) -> None:
        raise OSError


def test_the_jobs_folder_is_there_although_a_folder_above_has_too_many_entries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(layout, "_MOST_ENTRIES", 3)
    many, scratch = tmp_path / "many", tmp_path / "scratch"
    for name in ("a", "b", "c", "job", "mounted"):
        (many / name).mkdir(parents=True)
    (scratch / "memory").mkdir(parents=True)
    libc = Refusing()
    plan = {"hosts": {}, "files": {}, "links": {}, "folder": str(many / "job")}
    made = Layout(libc, scratch / "root", scratch, plan)  # type: ignore[arg-type]
    made.mounts = [str(many / "mounted")]
    made._directory(many)
    assert libc.overlaid == [made._inside(many / "job")]
