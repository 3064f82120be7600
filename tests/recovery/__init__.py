"""Tests of recovery: logs after a crash or damage on the disk, and their reopening."""
