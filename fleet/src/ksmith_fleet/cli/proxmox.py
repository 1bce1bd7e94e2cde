"""Options of commands that ask a Proxmox cluster."""

import argparse
import os

from ksmith_fleet.apply.backend import ApplyError
from ksmith_fleet.apply.proxmox_api import TOKEN_VARIABLE, URL_VARIABLE, ProxmoxApi, read_token


def add_proxmox(parser: argparse.ArgumentParser) -> None:
    """Adds the options that say where the cluster is, and who asks it."""
    parser.add_argument("--api", metavar="URL", default=os.environ.get(URL_VARIABLE), help=f"Proxmox: https://NODE:8006 ({URL_VARIABLE})")
    parser.add_argument("--token-file", metavar="FILE", help=f"Proxmox: file with the API token ({TOKEN_VARIABLE} has it without one)")
    parser.add_argument("--ca", metavar="FILE", help="Proxmox: certificates that sign the node's, such as /etc/pve/pve-root-ca.pem")
    parser.add_argument("--fingerprint", metavar="SHA256", help="Proxmox: fingerprint of the node's certificate, instead of --ca")


def api_of(options: argparse.Namespace) -> ProxmoxApi:
    """Gives the API of the cluster that the options name."""
    if not options.api:
        raise ApplyError(f"Proxmox is asked by its API: give --api https://NODE:8006, or set {URL_VARIABLE}")
    return ProxmoxApi(options.api, read_token(options.token_file), options.ca, options.fingerprint)
