"""`python -m gradbot`."""

from gradbot.cli.main import main

if __name__ == "__main__":
    main()
