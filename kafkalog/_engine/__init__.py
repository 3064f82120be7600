"""Compiled objects that hold the state of an open log (docs/architecture.md).

They may hold Python objects, a lock and a descriptor; they decide nothing that a user can
configure. Above `_core`, whose functions they use, and below everything else.
"""
