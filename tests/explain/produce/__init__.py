"""Makes the fixtures of ``tests/explain/logs`` again, from real failures. See ``__main__.py``."""
