"""``python -m bertwright``."""

from bertwright.cli.application import main

if __name__ == "__main__":
    main()
