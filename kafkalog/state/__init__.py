"""State that is kept between runs: checkpoints, markers, leader epochs, producer state."""
