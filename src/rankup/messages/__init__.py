"""Messages between ranks.

- ``tree``: exchanges of small values along a tree of ranks
"""
