"""The command line: what it prints, and with which exit status it ends."""
