"""Where a server may call out to."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twoshift.errors import InvalidInput
from twoshift.policy.addresses import Target, is_public, target_of


@pytest.mark.parametrize("address", ["93.184.215.14", "8.8.8.8", "2606:4700::6810:84e5", "::ffff:8.8.8.8", "1.1.1.1"])
def test_the_internet_is_public(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "127.255.0.3", "0.0.0.0", "10.1.2.3", "172.16.0.1", "172.31.255.255", "192.168.1.1",  # noqa: S104
        "169.254.169.254", "169.254.170.2", "100.100.100.200", "168.63.129.16", "192.0.0.192", "198.18.0.1",
        "224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255", "192.0.2.1", "203.0.113.9",
        "::1", "::", "fe80::1", "fe80::1%eth0", "fc00::1", "fd00:ec2::254", "ff02::1", "2001:db8::1", "fec0::1",
        "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1", "64:ff9b::7f00:1",
        "64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "2002:7f00:1::", "2002:a9fe:a9fe::1", "2001:0:7f00:1::",
        "::ffff:0:127.0.0.1", "", "localhost", "0x7f000001", "127.1", "2130706433",
    ],
)  # fmt: skip
def test_nothing_else_is(address: str) -> None:
    assert not is_public(address)


PRIVATE = [ipaddress.ip_network(each) for each in ("10.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "192.168.0.0/16")]


@given(st.sampled_from(PRIVATE), st.integers(0, 2**24 - 1), st.sampled_from(["{}", "::ffff:{}", "64:ff9b::{}", "::{}"]))
def test_a_private_address_is_none_however_it_is_written(
    network: ipaddress.IPv4Network, number: int, form: str
) -> None:
    address = network[number % network.num_addresses]
    assert not is_public(form.format(address))
    assert not is_public(str(ipaddress.ip_address((0x2002 << 112) | (int(address) << 80))))


def test_a_url_is_taken_apart() -> None:
    assert target_of("https://hooks.example.com/a/b?c=d", False) == Target(
        "https", "hooks.example.com", 443, "/a/b?c=d"
    )
    assert target_of("https://hooks.example.com", False).path == "/"
    assert target_of("https://hooks.example.com:8443/", False).authority == "hooks.example.com:8443"
    assert target_of("http://[::1]:9000/x", True).authority == "[::1]:9000"
    assert target_of("http://127.0.0.1:9000/x", True) == Target("http", "127.0.0.1", 9000, "/x")


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("hooks.example.com/x", "a URL such as"),
        ("ftp://hooks.example.com/x", "a URL such as"),
        ("file:///etc/passwd", "a URL such as"),
        ("https:///x", "a URL such as"),
        ("https://hooks.example.com:99999/", "a URL such as"),
        ("https://user:secret@hooks.example.com/", "without a user"),
        ("https://hooks.example.com/#x", "without a user"),
        ("http://hooks.example.com/", "https"),
        ("https://hooks.example.com:22/", "port 443 or 8443"),
        ("https://127.0.0.1/", "a public IP address"),
        ("https://[::1]/", "a public IP address"),
        ("https://[::ffff:10.0.0.1]/", "a public IP address"),
        ("https://hooks.example.com/a b", "a URL such as"),
        ("https://hooks.example.com/a\r\nhost: x", "a URL such as"),
        ("https://hooks.example.com\\@10.0.0.1/", "a URL such as"),
        ("https://höoks.example.com/", "a URL such as"),
        ("https://[fe80::1%25eth0]/", "a public IP address"),
    ],
)
def test_a_url_that_may_not_be_called_is_refused(url: str, told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        target_of(url, False)
