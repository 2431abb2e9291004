"""Fetch this run's artifacts from the fake GitHub and unzip them."""

import io
import json
import os
import urllib.request
import zipfile
from fnmatch import fnmatchcase
from pathlib import Path

base, run = os.environ["FAKE_UPLOADS"], os.environ["GITHUB_RUN_ID"]
listing = json.load(urllib.request.urlopen(f"{base}/list/{run}", timeout=20))
for number, name in listing:
    wanted = name == os.environ["ARTIFACT"] if os.environ["ARTIFACT"] else fnmatchcase(name, os.environ["PATTERN"])
    if wanted:
        flat = os.environ["ARTIFACT"] or os.environ["MERGE"] == "true"
        data = urllib.request.urlopen(f"{base}/blob/{number}", timeout=20).read()
        zipfile.ZipFile(io.BytesIO(data)).extractall(Path(os.environ["TO"]) / ("" if flat else name))
        print("downloaded", name)
