"""One computation, four ways: the characteristic function of a weighted prefix mixture at equally spaced knots.

For samples s_n, weights w(n, k) and a direction u: φ̂(τ) = Σ_n Σ_k w(n, k) exp(iτ uᵀ M_k s_n). SIGReg, MixSIGReg and
nested dropout's statistic differ only in the weights. `reference` is the definition; `recurrence` computes the same by
angle addition and keeps only the projections for the backward pass; `native` does it in C, for CPUs with a compiler,
without writing even those down; `gpu` is two Triton kernels. `dispatch` picks one and says why.
"""
