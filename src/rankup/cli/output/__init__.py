"""What people read on the terminal. In reading order: ``help`` (the page of a command), ``table`` (rows in columns)."""
