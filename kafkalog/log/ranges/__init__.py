"""Ranges of a partition read from its files alone: no log opened, nothing changed.

Files are read by `pread`; only a damaged file is mapped, while it is judged.

For readers of which many share one partition, each with a range of offsets that was settled before,
in processes and on machines that know nothing of each other or of the writer.
"""
