"""The encoder's blocks by Triton kernels and library products; `chain` puts them in the place of plain ones."""
