"""One file per command; each holds ``app``, a Typer application with one command or a small group."""
