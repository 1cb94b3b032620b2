"""Experiments, the oscillator study, benchmarks, publishing and the results page.

The lab imports `alewm`. `alewm` never imports the lab.
"""
