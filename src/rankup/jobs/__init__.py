"""Jobs: from what was asked for to processes that run, are watched, and end. Start reading at ``local``."""
