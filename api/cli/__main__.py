"""`python -m raylog.api.cli`: the same as `raylog`."""

from raylog.api.cli.entry import main

if __name__ == "__main__":
    main()
