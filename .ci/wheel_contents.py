"""Check that a wheel holds the package and nothing else: ``python wheel_contents.py FILE``."""

import sys
import zipfile
from pathlib import PurePosixPath

with zipfile.ZipFile(sys.argv[1]) as wheel:
    files = [PurePosixPath(name) for name in wheel.namelist()]
    others = [str(f) for f in files if f.parts[0] != "bertwright" and "dist-info" not in f.parts[0]]
    lines = sum(len(wheel.read(str(f)).splitlines()) for f in files if f.suffix == ".py")
if others:
    sys.exit(f"{sys.argv[1]} holds files outside the package: {', '.join(others)}")
print(f"{sys.argv[1]}: {lines:,} lines of Python")
