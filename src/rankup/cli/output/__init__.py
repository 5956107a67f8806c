"""What people read on the terminal. In reading order: ``help`` (a command's page), ``table`` (rows in columns)."""
