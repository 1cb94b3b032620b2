"""The command line's fixtures."""

from command_line import alewm_here, alewm_in_a_folder, data, refused, trained  # noqa: F401
