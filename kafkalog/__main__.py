"""`python -m kafkalog`: the same as the `kafkalog` command."""

from kafkalog.cli import main

if __name__ == "__main__":
    main()
