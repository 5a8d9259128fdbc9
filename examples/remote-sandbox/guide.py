"""Runs the blocks of a guide: those of the shell in one shell, those of Python in one Python.

The Python is that of the application's container, once a block of the shell has started it.
"""

import os
import subprocess
import sys
import textwrap

# Reads blocks, each behind a line with its number of bytes, and says after each how it went.
PYTHON = textwrap.dedent(
    """
    import sys, traceback
    names = {"__name__": "guide"}
    while line := sys.stdin.buffer.readline():
        block = sys.stdin.buffer.read(int(line)).decode()
        try:
            exec(compile(block, "the guide", "exec"), names)
        except BaseException:
            traceback.print_exc(file=sys.stdout)
            sys.exit(1)
        print("\\0", flush=True)
    """
)
SHELL = "set -euo pipefail\n"


def blocks(text):
    """Returns the language, the line and the text of each block that is to be run."""
    found, language, lines = [], None, []
    for number, line in enumerate(text.splitlines(), start=1):
        if language is None and line.startswith("```"):
            language, begins, lines = line[3:].strip() or "text", number, []
        elif language is not None and line == "```":
            if language in ("sh", "python"):
                found.append((language, begins, "\n".join(lines) + "\n"))
            language = None
        elif language is not None:
            lines.append(line)
    assert language is None, f"the block of line {begins} has no end"
    return found


class Runner:
    """One process that runs blocks."""

    def __init__(self, command, put):
        self.put = put
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )

    def run(self, block):
        """Runs a block; returns what it printed, and whether it ran to its end."""
        self.process.stdin.write(self.put(block))
        self.process.stdin.flush()
        printed = []
        for line in self.process.stdout:
            if line.endswith(b"\0\n"):
                printed.append(line[:-2])
                return b"".join(printed).decode(), True
            printed.append(line)
        return b"".join(printed).decode(), False


def in_shell(block):
    # What a command would read is not the next block.
    return (SHELL + "{\n" + block + "} </dev/null\nprintf '\\0\\n'\n").encode()


def in_python(block):
    bytes_ = block.encode()
    return b"%d\n" % len(bytes_) + bytes_


def main(path):
    with open(path, encoding="utf-8") as guide:
        found = blocks(guide.read())
    kinds = [language for language, _, _ in found]
    assert "sh" in kinds and "python" in kinds, "the guide has blocks of both kinds"
    shell = Runner(["bash"], in_shell)
    python = None
    for language, line, block in found:
        if language == "python" and python is None:
            app = f"{os.environ['COMPOSE_PROJECT_NAME']}_app_1"
            command = ["docker", "exec", "-i", app, "/opt/app/bin/python", "-c", PYTHON]
            python = Runner(command, in_python)
        runner = shell if language == "sh" else python
        printed, is_whole = runner.run(block)
        print(f"== {path}:{line} ({language})\n{printed}", flush=True)
        if not is_whole:
            sys.exit(f"{path}:{line}: the block failed:\n{block}")
    print(f"all {len(found)} blocks ran")


main(sys.argv[1])
