"""Validation of encoded batches before an append, and the fields that it corrects."""
