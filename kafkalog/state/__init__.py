"""What is remembered between runs: checkpoints, leader epochs, clean-shutdown marker."""
