"""Soak: services under load and bad input for an hour, judged by their records and resources.

`python3 ci/soak.py` runs it. `run` conducts a run, `faults` has the bad input, `numbered` judges
records, `flatness` judges resources, `page` draws `docs/soak.md`.
"""
