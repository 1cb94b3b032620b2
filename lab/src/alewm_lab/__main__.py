"""`python -m alewm_lab`, for machines where the package runs from source without being installed."""

from alewm_lab.cli.main import main

if __name__ == "__main__":
    main()
