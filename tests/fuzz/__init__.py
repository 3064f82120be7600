"""Fuzz targets: hostile bytes against the kernels, each held to the slow reference codec.

`python -m tests.fuzz TARGET` runs one (see `__main__.py`); `test_corpus.py` replays what is in
`corpus/`. A target takes any bytes. It must not crash, may refuse them with the engine's own errors
alone, and what is accepted must be what the reference makes of the same bytes.
"""
