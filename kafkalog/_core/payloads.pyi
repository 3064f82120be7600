"""Types of the decompression of payloads: for kernels alone."""
