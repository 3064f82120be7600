"""Types of the measuring of rows; nothing of it is for Python."""
