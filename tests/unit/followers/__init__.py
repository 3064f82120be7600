"""Tests of live tails."""
