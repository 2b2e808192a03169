"""`python -m headpond.cli`: the same as `headpond`."""

from headpond.cli import app

if __name__ == "__main__":
    app()
