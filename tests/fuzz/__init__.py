"""Files spoilt at random, with their structure in mind: everything that reads them works or refuses, and does no more.

``python -m tests.fuzz`` does so for minutes and keeps the figures; ``tests/test_fuzz.py`` does a little of it.
"""
