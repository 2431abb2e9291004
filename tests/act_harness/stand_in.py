"""Stands in for `gradbot check` where a test is about what comes after it: writes the report prepared for a shard.

A prepared "die" ends it as a killed machine would: no report, exit code 137. "hang" goes on until it is cancelled.
"""

import sys
import time
from itertools import pairwise
from pathlib import Path

prepared, arguments = Path(sys.argv[1]), sys.argv[2:]
value = dict(pairwise(arguments))
report = Path(value["--json"])
text = (prepared / f"{value.get('--shard', '1/1').replace('/', '-of-')}.json").read_text()
if text == "die":
    sys.exit(137)
if text == "hang":
    print("still checking", flush=True)
    time.sleep(60)
report.write_text(text)
Path(value["--junit-xml"]).write_text("<testsuites/>")
print("checked, and this is no command of the runner:\n::error::planted")
sys.exit('"outcome":"failed"' in text)
