"""make_buckets.py URL NAME...: create buckets at the S3 stand-in; waits until it answers."""

import sys
import time
import urllib.request

url, *names = sys.argv[1:]
for name in names:
    for attempt in range(60):
        try:
            urllib.request.urlopen(urllib.request.Request(f"{url}/{name}", method="PUT"), timeout=5)  # noqa: S310
            print(f"bucket {name}")
            break
        except OSError as error:
            if attempt == 59:
                sys.exit(f"{url}/{name}: {error}")
            time.sleep(1)
