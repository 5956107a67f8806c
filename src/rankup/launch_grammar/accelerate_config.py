"""accelerate's configuration file, which gives what the options of ``accelerate launch`` leave out."""

from __future__ import annotations

import json
import re

#: A key of the file → the option's name in the grammar.
_OPTIONS = {
    "num_machines": "nnodes",
    "num_processes": "num_processes",
    "machine_rank": "node_rank",
    "main_process_ip": "master_addr",
    "main_process_port": "master_port",
    "rdzv_backend": "rdzv_backend",
}


def accelerate_config(text: str) -> dict[str, str]:
    """Sizes and the rendezvous, by their options, from the top level of YAML or JSON; {} for what cannot be read."""
    if text.lstrip().startswith("{"):
        try:
            found = {key: str(value) for key, value in json.loads(text).items() if value is not None}
        except ValueError:
            found = {}
    else:
        lines = re.findall(r"^(\w+):[ \t]+([^\s#].*?)[ \t]*(?:#.*)?$", text, re.MULTILINE)
        found = {key: value.strip("'\"") for key, value in lines}
    empty = ("", "null", "~")
    return {_OPTIONS[key]: value for key, value in found.items() if key in _OPTIONS and value not in empty}
