"""Run folders turned into one page a person can read anywhere."""
