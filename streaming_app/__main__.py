"""`python -m streaming_app` is the command `streams-groups`, for an environment whose scripts are not on the path."""

from streaming_app.cli.main import main

main(prog_name="streams-groups")
