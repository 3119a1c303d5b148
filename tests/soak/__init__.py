"""Ten minutes of random faults: `python -m tests.soak --seconds 600 --seed 1`.

Twenty servers of every kind with random faults from a seed, 64 callers, and a ledger that checks what the
host promises. Exit code 1 when a promise was broken, with its name.
"""
