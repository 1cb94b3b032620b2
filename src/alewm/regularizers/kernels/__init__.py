"""One computation, three ways: the weighted empirical characteristic function at equally spaced knots.

`reference` is the definition; `recurrence` computes the same by angle addition and keeps only its inputs for the
backward pass; `native` is `recurrence` in C for CPUs that have a compiler. `dispatch` picks one and says why.
"""
