"""What people write by hand: N threads that GET these URLs with requests, for ever. N URL …"""

import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle

import requests

threads, urls = int(sys.argv[1]), sys.argv[2:]


def poll(first):
    for url in cycle(urls[first:] + urls[:first]):
        requests.get(url, timeout=5).raise_for_status()


with ThreadPoolExecutor(threads) as pool:
    for failed in pool.map(poll, range(threads)):
        pass
