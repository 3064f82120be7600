"""Comparison with other programs, with its setup: `python3 ci/bench.py [--quick] [GROUP ...]`.

Measures together with aiokafka, kafka-python, librdkafka, LMDB, RocksDB, SQLite, Arrow IPC, Kafka's
storage classes (where there are a JDK and Maven) and bare calls of the system; keeps the results in
`asv_bench/results.jsonl` and draws `docs/benchmarks.md` from them. `--render` draws only, `--list`
names the groups. The work is done by `asv_bench.suite` in `.venv`, which the first run makes.
"""

from __future__ import annotations

import sys

import environment

if __name__ == "__main__":
    environment.become("bench", "dev", "-m", "asv_bench.suite", *sys.argv[1:])
