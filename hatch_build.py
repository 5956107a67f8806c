"""The README as PyPI shows it: there a link into the repository needs the repository's address."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

REPOSITORY = "https://github.com/rankup/rankup"
_PICTURES = "https://raw.githubusercontent.com/rankup/rankup/main"


class ReadmeHook(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": with_addresses(text)}


def with_addresses(text: str) -> str:
    """``text`` with the address of each file that a link or a picture names by its path."""
    text = re.sub(r"\]\((?!https?:|#|mailto:)", f"]({REPOSITORY}/blob/main/", text)
    return re.sub(r'((?:src|srcset)=")(?!https?:)', rf"\1{_PICTURES}/", text)
