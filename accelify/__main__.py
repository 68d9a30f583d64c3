"""`python -m accelify`: the same as the command `accelify`."""

from accelify.cli.entry import main

if __name__ == "__main__":
    main()
