"""``Endpoint``: the address and port where several nodes meet."""

from __future__ import annotations

import re
from typing import NamedTuple


class Endpoint(NamedTuple):
    """``port`` 0: node 0 chooses one, and tells the others."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Endpoint:
        """``HOST:PORT`` or ``[IPV6]:PORT``. Raises ``ValueError``."""
        host, colon, port = text.rpartition(":")
        if not colon or not host or not re.fullmatch(r"\d{1,5}", port) or int(port) > 65535:
            raise ValueError(f"{text!r} is not HOST:PORT: use e.g. 10.0.0.1:29400, the address of node 0")
        host = host.strip("[]")
        if host in ("0.0.0.0", "::", "*"):
            raise ValueError(f"no other node can reach {host!r}: use the address of node 0 on their network")
        return cls(host, int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
