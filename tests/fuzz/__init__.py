"""Fuzz targets: kernels run on hostile bytes and compared with the slow reference codec.

`python -m tests.fuzz TARGET` runs one (see `__main__.py`); `test_corpus.py` replays what is in
`corpus/`. A target accepts any bytes. It must not crash, may refuse them with errors of the engine
only, and results for accepted bytes must equal those of the reference.
"""
