"""The rollout of a few hundred candidates, where launching kernels takes longer than what they compute: two per block.

Each kernel cuts a half-block both by rows and by what its last product sums over (heads, or hidden units), so that a
few hundred rows occupy the whole GPU. Programs write their parts of the sum; the last of a group of rows to arrive adds
them up in a fixed order, adds the residual, and normalises for the kernel that follows.
"""
