"""`alewm` and `python -m alewm`: answers signals before anything slow is imported, then runs the command line."""

from alewm.interrupts import end_quietly_while_loading


def main() -> None:
    """The console command."""
    end_quietly_while_loading("alewm")
    from alewm.cli.main import main as run

    run()


if __name__ == "__main__":
    main()
