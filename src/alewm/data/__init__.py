"""Recorded episodes: one HDF5 file, windows cut from it, and what is decided once per file and stored beside it."""
