"""Recordings in other formats, as episodes for our file."""
