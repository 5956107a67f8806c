"""Floor 7: the command line. One file per command under ``commands/``."""
