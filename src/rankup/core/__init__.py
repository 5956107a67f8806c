"""Floor 0: the standard library only. Nothing here knows of torch, schedulers or the command line."""
