"""Ranges of a partition read from its files alone: no log opened, nothing mapped, nothing changed.

For readers of which many share one partition, each with a range of offsets that was settled before,
in processes and on machines that know nothing of each other or of the writer.
"""
