"""View of `kafkalog convert`: a library call with a progress bar, and its output."""
