"""What encoded batches must be before a log takes them, and what is set right in them."""
