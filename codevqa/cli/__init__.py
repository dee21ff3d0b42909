"""The command line: a file for each subcommand, no logic of its own.

In: words, options, files. Out: text for a terminal, JSON or CSV, and an exit status.
"""
