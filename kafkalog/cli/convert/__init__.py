"""The view of `kafkalog convert`: a library call with a progress bar, and what it says then."""
