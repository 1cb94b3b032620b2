"""`alewm <verb>`."""


def main() -> None:
    """Entry point."""
