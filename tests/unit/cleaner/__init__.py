"""Tests of the cleaner room."""
