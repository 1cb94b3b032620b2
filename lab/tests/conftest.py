"""The command line's fixtures; shapes are checked in the lab as in the library."""

from command_line import alewm_here, alewm_in_a_folder, data, refused, trained  # noqa: F401
