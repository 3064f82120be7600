"""Types of what undoes codecs: for kernels alone."""
