"""The command line's fixtures, runs of experiments, and records to change at will."""

from command_line import alewm_here, alewm_in_a_folder, data, refused, trained  # noqa: F401
from copied_results import published  # noqa: F401
from smoke_runs import library  # noqa: F401
