"""The command line: parsing and messages only, a module for each group of `alewm --help`."""
