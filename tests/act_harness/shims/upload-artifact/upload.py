"""Zip a folder or file and hand it to the fake GitHub, as an artifact of this run; names are taken once only."""

import io
import os
import sys
import urllib.request
import zipfile
from pathlib import Path

source, buffer = Path(os.environ["FROM"]), io.BytesIO()
files = [source] if source.is_file() else sorted(path for path in source.rglob("*") if path.is_file())
if not files:
    sys.exit(print("nothing to upload"))
with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
    for path in files:
        archive.write(path, path.name if source.is_file() else path.relative_to(source))
url = f"{os.environ['FAKE_UPLOADS']}/upload/{os.environ['GITHUB_RUN_ID']}/{os.environ['ARTIFACT']}"
urllib.request.urlopen(urllib.request.Request(url, data=buffer.getvalue(), method="POST"), timeout=20).read()
print("uploaded", os.environ["ARTIFACT"], [path.name for path in files])
