"""``python -m rankup``: the command line, for launchers that start this interpreter by path."""

from rankup.cli.app import main

main()
