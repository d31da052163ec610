"""What the answers of a listening test say: intervals, tests, ranking, power, and simulated studies to check them.

Pure functions over answers and arrays. scipy is imported inside functions: the page must not wait for it.
"""
