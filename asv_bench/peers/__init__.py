"""Peers: the same work by kafkalog and by another library, side by side in one process."""
