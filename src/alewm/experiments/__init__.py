"""The paper's experiments as code."""
