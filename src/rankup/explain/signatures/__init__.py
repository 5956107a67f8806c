"""What failures look like: a table in TOML for each origin, which its first line names, and what reads them.

| module | what |
|---|---|
| ``signature`` | ``Signature`` and ``Level``: how much an event explains |
| ``tables`` | reads the tables, and refuses what is not in their schema |
| ``match`` | the signature of a text |
"""
