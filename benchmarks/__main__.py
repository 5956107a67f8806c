"""``python -m benchmarks [NAME …] [--quick]``, from the root of the repository."""

from __future__ import annotations

import argparse
from importlib import import_module

from benchmarks import machine, report

BENCHES = (
    "steps",
    "records",
    "recording",
    "loader",
    "mnist",
    "startup",
    "slow_start",
    "scaling",
    "trainer",
    "snapshots",
    "resume",
    "report_page",
    "prediction",
    "monitor",
    "check",
    "doctor",
    "scale-out",
)
# Run only if it is named: it needs a GPU.
ASKED = ("throughput",)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="ratios, side by side in one run"
    )
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help=f"{', '.join(BENCHES)}; default: all of these; {', '.join(ASKED)}: where they can run",
    )
    parser.add_argument("--quick", action="store_true", help="a trial: few short rounds, nothing is written")
    options = parser.parse_args()
    if unknown := set(options.names) - {*BENCHES, *ASKED}:
        parser.error(f"no such bench: {', '.join(sorted(unknown))}")
    for name in options.names or BENCHES:
        facts = machine.facts()  # before the bench, so that the load is that of other programs
        doc = report.document(import_module(f"benchmarks.{name.replace('-', '_')}").run(options.quick), facts)
        print(report.text(doc), end="\n\n", flush=True)
        if not options.quick:
            report.save(doc)


if __name__ == "__main__":
    main()
