"""`python -m studio.parity FOLDER`: every fixture of a folder through our code, a line an array.

Exit status: 0 all within their tolerances, 1 something is not, 2 something is missing. The folder's make_weights.py is
run, if it has one, so give only folders that you trust.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from fnmatch import fnmatch
from pathlib import Path

from studio.parity.fixtures import Fixtures
from studio.parity.run import exit_status, run_fixture


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m studio.parity", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="fixtures as NAME.json and NAME.npz, and weights or their recipe")
    names = "names of fixtures, such as 04_*_mini"
    parser.add_argument("--only", nargs="+", default=["*"], metavar="PATTERN", help=names)
    parser.add_argument("--device", default="cpu", help="where the models run (default: cpu)")
    parser.add_argument("--slack", type=float, default=1.0, help="widens all tolerances (default: 1)")
    parser.add_argument("--least-snr-db", type=float, metavar="DB", help="in place of tolerances, for GPUs")
    asked = parser.parse_args(argv)
    fixtures = Fixtures(asked.folder.resolve(), asked.device, asked.slack, asked.least_snr_db)
    lines = []
    for name in fixtures.names():
        if any(fnmatch(name, pattern) for pattern in asked.only):
            for line in run_fixture(fixtures, name):
                print(line, flush=True)
                lines.append(line)
    count = Counter(line.verdict for line in lines)
    print(f"{count['pass']} passed, {count['FAIL']} failed, {count['missing']} missing, {count['aside']} aside")
    return exit_status(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
