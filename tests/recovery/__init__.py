"""What a crash, or damage on the disk, may leave, and what opening makes of it."""
