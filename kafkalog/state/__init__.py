"""What is remembered between runs: checkpoints, markers, leader epochs, producer state."""
