"""`alewm-lab`: the benchmarks, the experiments, and publishing."""
