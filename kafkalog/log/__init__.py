"""One partition: segments, recovery, reading, appending, durability."""
