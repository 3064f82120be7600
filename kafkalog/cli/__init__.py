"""The `kafkalog` command: every verb is a library call plus a view."""
