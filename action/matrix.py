"""Hand a planned matrix on as outputs, after a look at it: code that was planned could have written the file."""

import json
import re
import sys
from pathlib import Path

SHARD, DEVICE = re.compile(r"[1-9]\d{0,4}/[1-9]\d{0,4}"), re.compile(r"[a-z]{1,20}(:\d{1,3})?")

entries = json.loads(Path(sys.argv[1]).read_bytes()[: 1 << 20])["include"]
kept = [{"shard": str(each["shard"]), "device": str(each["device"])} for each in entries]
for each in kept:
    if not SHARD.fullmatch(each["shard"]) or not DEVICE.fullmatch(each["device"]):
        sys.exit(f"::error title=gradbot::the plan has an entry that is none: {json.dumps(each)[:200]}")
print("matrix=" + json.dumps({"include": kept}))
print("shards=" + " ".join(each["shard"] for each in kept))
