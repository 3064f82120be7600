"""Tests of the command line: output and exit status."""
