"""``python -m rankup.train.parameter_bytes TARGET``: the bytes of each trained parameter of a workload, as JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

from rankup.errors import RankupError
from rankup.train.workload import make_workload


def main() -> None:
    sys.path.insert(0, str(Path.cwd()))
    try:
        with torch.device("meta"):  # sizes need no memory
            model = make_workload(sys.argv[1], {}).model()
    except RankupError as error:
        print(json.dumps(error.as_dict()))
        raise SystemExit(error.exit_code) from None
    sizes = [p.numel() * p.element_size() for p in model.parameters() if p.requires_grad]
    print(json.dumps(sizes))


if __name__ == "__main__":
    main()
