"""The comparisons of `asv_bench.peers` as one run and one page: `python3 ci/bench.py`."""
