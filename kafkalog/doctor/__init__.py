"""What ails a data directory or the machine under it: facts, findings, what to change."""
