"""`python -m alewm`, for machines where the package runs from source without being installed."""

from alewm.cli.main import main

if __name__ == "__main__":
    main()
