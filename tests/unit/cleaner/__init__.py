"""Tests of the cleaner package."""
