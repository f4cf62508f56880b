"""The command line: parse, call, print where the result is."""
