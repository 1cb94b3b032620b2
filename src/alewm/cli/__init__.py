"""The command line: parsing and messages only, one verb per file."""
