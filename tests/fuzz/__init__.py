"""Hostile input, made by Hypothesis here and by a coverage-guided fuzzer in ``scripts/fuzz``.

What comes of any input is a value or an error of our own tree, at once.
"""
