"""``python -m bertwright``."""

from bertwright.cli.app import main

if __name__ == "__main__":
    main()
