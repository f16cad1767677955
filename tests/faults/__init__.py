"""Real fits in real processes that are hurt: killed, starved, lied to. Nothing that was acknowledged may be lost.

``python -m tests.faults`` runs everything and prints the table; ``tests/test_faults.py`` runs a little of it.
"""
