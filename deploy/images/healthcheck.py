"""healthcheck.py URL: exit code 0 if the URL answers with 200, else 1 and the reason; for HEALTHCHECK, without curl."""

import sys
import urllib.error
import urllib.request

try:
    with urllib.request.urlopen(sys.argv[1], timeout=3) as reply:  # noqa: S310 - the image's own server
        print(reply.status)
except urllib.error.HTTPError as error:
    sys.exit(error.read().decode(errors="replace"))
except OSError as error:
    sys.exit(f"{sys.argv[1]}: {error}")
