"""Native kernels: bytes in, numbers out. No files, no locks, no policy (docs/architecture.md)."""
