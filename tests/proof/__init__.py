"""Failure tests whose checks share no code with the engine: `python3 ci/proof.py [PART ...]`.

Nothing here is collected by pytest. A part runs the library in a separate process, does something
to it that a test cannot (a power cut, a kill, a failing call), and judges what is left by a record
of what was acknowledged and by the bytes of the files, which it reads with separate code.
"""
